"""Durations, sizes and counts as people write them: `50ms`, `64MiB`, `2k`.

Numbers are whole, so that a value written out again reads as the same value. A bare number where a unit is
needed is refused rather than guessed, because `2` has meant seconds and milliseconds to different tools.
"""

from __future__ import annotations

import re

DURATION_MS = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
SIZE_BYTES = {
    "GiB": 1024**3,
    "GB": 1000**3,
    "MiB": 1024**2,
    "MB": 1000**2,
    "KiB": 1024,
    "KB": 1000,
    "B": 1,
}
COUNT = {"M": 1_000_000, "k": 1_000, "": 1}
MICRO_USD = 1_000_000
DIGITS_MAX = 9
"""Keeps every duration exact in a float and every number short of absurd."""

_NUMBER = re.compile(r"([0-9]+)([A-Za-z]*)")
_MONEY = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,6}))?")
_PERCENT = re.compile(r"([0-9]{1,3})(%?)")


def quote(text: str) -> str:
    """The value as error messages show it: on one line and no longer than a line."""
    return repr(text if len(text) <= 60 else text[:57] + "…")


def parse_duration(text: str) -> float:
    """Seconds in `2s`, `50ms`, `2m` or `24h`; ValueError says what to write instead."""
    return _parse(text, DURATION_MS, "a duration", "30s", bare_unit="s") / 1000


def print_duration(duration_s: float) -> str:
    """The duration in the largest unit that leaves it whole; finer than a millisecond is rounded away."""
    return _print(round(duration_s * 1000), DURATION_MS) if duration_s else "0s"


def parse_size(text: str) -> int:
    """Bytes in `64MiB`, `64KiB` or `1GB`; ValueError says what to write instead."""
    return _parse(text, SIZE_BYTES, "a size", "64MiB", bare_unit="MiB" if len(text) < 7 else "B")


def print_size(size_bytes: int) -> str:
    """The size in the largest unit that leaves it whole."""
    return _print(size_bytes, SIZE_BYTES) if size_bytes else "0B"


def parse_count(text: str) -> int:
    """The number in `256`, `32k` (32,000) or `2M` (2,000,000); ValueError says what to write instead."""
    return _parse(text, COUNT, "a count", "256")


def parse_usd(text: str) -> int:
    """Millionths of a USD in `2000` or `0.15`; ValueError says what to write instead."""
    match = _MONEY.fullmatch(text)
    if not match:
        raise ValueError(f"{quote(text)} is no sum of USD; write a number such as 2000 or 0.15")
    return int(match[1]) * MICRO_USD + int((match[2] or "").ljust(6, "0"))


def print_usd(micro_usd: int) -> str | int:
    """The sum without zeros at its end; a whole one as a number."""
    whole, part = divmod(micro_usd, MICRO_USD)
    return f"{whole}.{part:06}".rstrip("0") if part else whole


def parse_percent(text: str) -> float:
    """The part, 0 to 1, in `10%`; ValueError says what to write instead."""
    match = _PERCENT.fullmatch(text)
    if not match or int(match[1]) > 100:
        raise ValueError(f"{quote(text)} is no percentage; write 0% to 100%")
    if not match[2]:
        raise ValueError(f"{text} has no unit; write {text}%")
    return int(match[1]) / 100


def print_percent(part: float) -> str:
    """The part as a whole percentage."""
    return f"{round(part * 100)}%"


def _parse(text: str, units: dict[str, int], noun: str, example: str, bare_unit: str = "") -> int:
    match = _NUMBER.fullmatch(text)
    if match and not match[2] and "" not in units:
        raise ValueError(f"{text} has no unit; write {text}{bare_unit}")
    if not match or match[2] not in units:
        *most, last = (unit or "no unit" for unit in reversed(units))
        known = f"{', '.join(most)} or {last}"
        raise ValueError(f"{quote(text)} is not {noun}; write a whole number with {known}, such as {example}")
    if len(match[1]) > DIGITS_MAX:
        raise ValueError(f"{quote(text)} has more than {DIGITS_MAX} digits; write it in a larger unit")
    return int(match[1]) * units[match[2]]


def _print(number: int, units: dict[str, int]) -> str:
    """`units` go from large to small; the last is 1 and always fits."""
    return next(f"{number // one}{unit}" for unit, one in units.items() if number % one == 0)
