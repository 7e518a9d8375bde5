"""Where the top-level members of a JSON object lie in its bytes, duplicates included.

An edit must know the exact range of one member and must see what ordinary decoding hides: a key that comes
twice. msgspec walks the values at C speed. Where the sizes of what it finds leave no room for a key that came
twice, there was none; else a key type that equals nothing but itself keeps duplicates apart.
The bytes are known to be a valid JSON object (`wire/requests.py` has decoded them before). What costs more
than that walk is bounded, so that no body can hold up the loop: the members, and the bytes between values.
"""

from __future__ import annotations

import re
from collections.abc import Collection, ValuesView

from msgspec import DecodeError, Raw, Struct
from msgspec.json import Decoder

from maitred.core.outcome import Outcome, Refusal

MEMBERS_MAX = 512
"""Bound of the members of one object; real bodies have a few dozen at most."""

GAPS_BYTES_MAX = 64 * 1024
"""Bound of keys, blanks and punctuation, in all; the pattern that skips them takes up to 20 ns a byte."""

SMALL_BYTES_MAX = 16 * 1024
"""Up to this size a body is first read as if no key came twice: 3,000 members at most, in 0.5 ms."""

_BARE = len('"":,')
AGAIN = len(',"":0')
"""What a member takes besides its key and its value, and what one takes at least that came before."""

TOO_DEEP = "the body is nested too deeply"
TOO_MANY = "too many members in the body"
TOO_WIDE = "the members of the body are too far apart"


class Member(Struct, frozen=True):
    """One member: `body[start:end]` from the key's opening quote on, its value `body[value_start:end]`."""

    key: str
    start: int
    value_start: int
    end: int


Scanned = tuple[Collection[str], ValuesView[Raw], int]
"""All keys, unescaped, and their raw values, in order; and the bytes that these and the punctuation leave.

Where these are none, keys are written as they are, with no blanks between; where they are AGAIN or more, or
were not counted, a key may be there twice.
"""


class _Place:
    """Stands for the key at one place of an object. Two are equal only by identity."""

    __slots__ = ()


_PLACES = tuple(_Place() for _ in range(MEMBERS_MAX))


class _Scan:
    """The decoder that tells all keys. It is built once, for that takes as long as a small body.

    So it keeps the keys of the body it is at; it is done with one before anybody can come with another.
    """

    __slots__ = ("_decode", "_names")

    def __init__(self) -> None:
        self._names: list[str] = []
        self._decode = Decoder(dict[_Place, Raw], dec_hook=self._place).decode

    def __call__(self, body: bytes | memoryview) -> Scanned:
        """Scan one object; raise Refusal at depth or when there are too many members."""
        names: list[str] = []
        self._names = names
        try:
            return names, self._decode(body).values(), AGAIN
        except RecursionError:  # the same bytes passed before, on a shorter stack
            message = TOO_DEEP
        except IndexError:
            message = TOO_MANY
        raise Refusal(Outcome.BAD_REQUEST, message)

    def _place(self, _type: type, name: str) -> _Place:
        names = self._names
        place = _PLACES[len(names)]  # beyond the last, the error ends the decoding at once
        names.append(name)
        return place


_scan = _Scan()
_by_key = Decoder(dict[str, Raw]).decode
# What stands between two values: blanks, the brace or comma, the key and its colon.
_GAP = re.compile(rb'[\s{,]*+("(?:[^"\\]++|\\.)*+")\s*+:\s*+')


def scan(body: bytes | memoryview) -> Scanned:
    """Scan one object; raise Refusal at depth or when there are too many members."""
    size = len(body)
    if size <= SMALL_BYTES_MAX:
        try:
            found = _by_key(body)
        except (DecodeError, RecursionError):
            return _scan(body)  # which says what is wrong
        values, count = found.values(), len(found)
        # A key is never longer than it is written.
        spare = size - len("".join(found)) - len(b"".join(values)) - count * _BARE - 1
        if spare < AGAIN and count <= MEMBERS_MAX:
            return found, values, spare
    return _scan(body)


def members(body: bytes | memoryview, scanned: Scanned | None = None) -> list[Member]:
    """Return the ranges of all top-level members, in order. `scanned`: what `scan` said, if already known."""
    names, values, spare = scanned or scan(body)
    sizes = [memoryview(value).nbytes for value in values]
    if len(body) - sum(sizes) > GAPS_BYTES_MAX:
        raise Refusal(Outcome.BAD_REQUEST, TOO_WIDE)
    found = []
    end = 0
    for name, size in zip(names, sizes, strict=True):
        if not spare:
            start = end + 1
            value_start = start + len(name) + len('"":')
            end = value_start + size
            found.append(Member(name, start, value_start, end))
            continue
        match = _GAP.match(body, end)
        assert match is not None  # noqa: S101 - the body is valid JSON
        end = match.end() + size
        found.append(Member(name, match.start(1), match.end(), end))
    return found
