"""Who has which key: a mask for each, with a bit for everybody. What both indexes of caches are made of."""

from __future__ import annotations


class Masks:
    """`by_key` holds the mask of each key that somebody has, `names` whose each bit is."""

    __slots__ = ("by_key", "names")

    def __init__(self) -> None:
        self.by_key: dict[int, int] = {}
        self.names: dict[int, str] = {}

    def enter(self, name: str) -> int:
        """The bit of somebody who is new: the lowest that is free."""
        bit = 1
        while bit in self.names:
            bit <<= 1
        self.names[bit] = name
        return bit

    def drop(self, key: int, bit: int) -> None:
        """Whose bit this is has the key no more."""
        rest = self.by_key[key] & ~bit
        if rest:
            self.by_key[key] = rest
        else:
            del self.by_key[key]
