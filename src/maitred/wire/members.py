"""Where the top-level members of a JSON object lie in its bytes, duplicates included.

An edit must know the exact range of one member and must see what ordinary decoding hides: a key that comes
twice. msgspec walks the values at C speed; a key type that equals nothing but itself keeps duplicates apart.
The bytes are known to be a valid JSON object (`wire/requests.py` has decoded them before).
"""

from __future__ import annotations

import re

from msgspec import Raw, Struct
from msgspec.json import Decoder

from maitred.core.outcome import Outcome, Refusal

TOO_DEEP = "the body is nested too deeply"


class Key:
    """One occurrence of a key, unescaped in `name`. Two are equal only by identity."""

    __slots__ = ("name",)

    def __init__(self, _type: type, name: str) -> None:
        self.name = name


class Member(Struct, frozen=True):
    """One member: `body[start:end]` from the key's opening quote on, its value `body[value_start:end]`."""

    key: str
    start: int
    value_start: int
    end: int


_OCCURRENCES = Decoder(dict[Key, Raw], dec_hook=Key)
# What stands between two values: blanks, the brace or comma, the key and its colon.
_KEY = re.compile(rb'[\s{,]*+("(?:[^"\\]++|\\.)*+")\s*+:\s*+')


def scan(body: bytes) -> dict[Key, Raw]:
    """Return every occurrence of every top-level key with its raw value, in order; raise Refusal at depth."""
    try:
        return _OCCURRENCES.decode(body)
    except RecursionError:  # the same bytes passed before, on a shorter stack
        raise Refusal(Outcome.BAD_REQUEST, TOO_DEEP) from None


def members(body: bytes, scanned: dict[Key, Raw] | None = None) -> list[Member]:
    """Return the ranges of all top-level members, in order. `scanned`: what `scan` said, if already known."""
    found = []
    end = 0
    for key, value in (scan(body) if scanned is None else scanned).items():
        match = _KEY.match(body, end)
        assert match is not None  # noqa: S101 - the body is valid JSON
        end = match.end() + memoryview(value).nbytes
        found.append(Member(key.name, match.start(1), match.end(), end))
    return found
