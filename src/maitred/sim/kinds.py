"""The kinds of value that only workloads have: rates, shares and factors."""

from __future__ import annotations

import re

from maitred.config.kinds import Kind
from maitred.config.units import quote

PERIODS_S = {"s": 1, "m": 60, "h": 3600}

_RATE = re.compile(r"([0-9]{1,6})(?:/([a-z]*))?")
_DECIMAL = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?")


def parse_rate(text: str) -> float:
    """Requests per second in `15/s`, `90/m` or `200/h`; ValueError says what to write instead."""
    match = _RATE.fullmatch(text)
    if match and match[2] is None:
        raise ValueError(f"{text} has no unit; write {text}/s")
    if not match or match[2] not in PERIODS_S or not int(match[1]):
        raise ValueError(f"{quote(text)} is not a rate; write a whole number per s, m or h, such as 15/s")
    return int(match[1]) / PERIODS_S[match[2]]


def print_rate(rate: float) -> str:
    """The rate in the shortest period that leaves it whole."""
    period = next((name for name, s in PERIODS_S.items() if (rate * s).is_integer()), "h")
    return f"{round(rate * PERIODS_S[period])}/{period}"


def parse_share(text: str) -> float:
    """The part, 0 to 1, in `30%` or `0.5%`; ValueError says what to write instead."""
    number = text.removesuffix("%")
    if number == text or not _DECIMAL.fullmatch(number) or float(number) > 100:
        raise ValueError(f"{quote(text)} is not a share; write 0% to 100%, such as 30%")
    return float(number) / 100


def parse_factor(text: str) -> float:
    """The number in `2` or `1.85`, more than zero; ValueError says what to write instead."""
    if not _DECIMAL.fullmatch(text) or not float(text):
        raise ValueError(f"{quote(text)} is not a factor; write a number above zero, such as 1.5")
    return float(text)


RATE = Kind(parse_rate, print_rate, {"type": "string", "pattern": "^[0-9]{1,6}/[smh]$"}, "15/s")
SHARE = Kind(
    parse_share,
    lambda share: f"{100 * share:g}%",
    {"type": "string", "pattern": f"^{_DECIMAL.pattern}%$"},
    "30%",
)
FACTOR = Kind(parse_factor, lambda factor: f"{factor:g}", {"type": "number", "exclusiveMinimum": 0}, "1.5")
