"""Numbers as good as random that follow from what they are made of: the same in every process and replay."""

from __future__ import annotations

from zlib import crc32

MASK = 2**64 - 1


def mix(key: int, salt: int) -> int:
    """One number of 64 bits from two, by the finish of splitmix64: each bit of both changes half of it."""
    mixed = (key + (salt + 1) * 0x9E3779B97F4A7C15) & MASK
    mixed = ((mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9) & MASK
    mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & MASK
    return mixed ^ mixed >> 31


def uniform(number: int) -> float:
    """A number of 64 bits as one above 0 and below 1."""
    return ((number >> 12) + 0.5) / 2**52


def key_of(text: str) -> int:
    """A number for a text; Python's own hash differs from process to process."""
    return crc32(text.encode())
