"""How sure a figure is: confidence intervals of percentiles, shares and means, and a test against a limit.

Nothing here assumes a shape of the times measured, but for the mean, whose interval needs values that lie
about as a normal distribution does. The formulas are of independent requests; those of one run are not, for a
queue makes all that wait in it late together. `independent` tells how many they are worth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import NormalDist, fmean

from msgspec import Struct

DEGREES_MAX = 500
"""With more degrees of freedom than this, Student's t is taken as normal (less than 0.3 % off)."""
SECTIONS = 10
SECTION_REQUESTS_MIN = 5
EXCESS_MAX = 1.88
"""Sections of independent requests differ by more than this, for their size, one time in 20 (chi-square)."""


class Quantile(Struct, frozen=True):
    """A quantile and its confidence interval, in the unit of the values.

    `low`, `high` None: too few values for a bound on that side. Infinite: a request that never got there.
    `independent`: how many independent values it rests on.
    """

    value: float
    low: float | None
    high: float | None
    independent: int


class Mean(Struct, frozen=True):
    """A mean and its confidence interval; None where a single value has none."""

    value: float
    low: float | None
    high: float | None


def quantile(
    sorted_values: Sequence[float],
    q: float,
    confidence: float = 0.95,
    in_order: Sequence[float] | None = None,
) -> Quantile:
    """The smallest value that a share `q` of the values reaches, between two other values of them.

    How many values lie below the true quantile is binomial, whatever their distribution, so two order
    statistics enclose it (David and Nagaraja, Order Statistics, 7.1). The upper one exists from
    ln(alpha / 2) / ln(q) values on: 36 for the p90, 72 for the p95, 368 for the p99, at 95 %. `in_order`:
    the same values in order of time; given that, they count for as many as they are worth. Raises ValueError
    where there is no value.
    """
    n = len(sorted_values)
    if not n:
        raise ValueError("no values, no quantile")
    value = sorted_values[math.ceil(q * n) - 1]
    worth = n if in_order is None else independent([other <= value for other in in_order])
    lower, upper = _ranks(worth, q, (1 - confidence) / 2)
    return Quantile(
        value,
        sorted_values[int((lower + 0.5) * n / worth)] if lower >= 0 else None,
        sorted_values[int((upper + 0.5) * n / worth)] if upper < worth else None,
        worth,
    )


def independent(hits: Sequence[bool]) -> int:
    """How many independent requests these are worth, in order of time, for the share of hits among them.

    Of independent ones, the shares in ten sections would spread by share x (1 - share) / requests in each;
    the more they spread beyond that, the fewer they are worth (batch means: Schmeiser, Operations Research
    30(3), 1982). Of fewer than 50 nothing can be told.
    """
    n = len(hits)
    share = sum(hits) / n if n else 0.0
    if n < SECTIONS * SECTION_REQUESTS_MIN or not 0 < share < 1:
        return n
    squares = [(fmean(hits[first:last]) - share) ** 2 for first, last in sections(n)]
    excess = math.fsum(squares) / (SECTIONS - 1) / (share * (1 - share) / (n / SECTIONS))
    return n if excess <= EXCESS_MAX else max(1, int(n / excess))


def sections(n: int) -> Iterable[tuple[int, int]]:
    """Where so many values are cut into ten nearly equal parts: the first of each, and the one after it."""
    return pairwise(n * number // SECTIONS for number in range(SECTIONS + 1))


def adjusted(values: Iterable[float], lost: int) -> list[float]:
    """The values in order, and behind them the requests that never got there: they take for ever."""
    return [*sorted(values), *[math.inf] * lost]


def wilson(good: float, n: float, confidence: float = 0.95) -> tuple[float, float]:
    """The interval of a share, by Wilson (1927): good for few requests, and for shares near 0 or 1, too."""
    if not n:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share, weight = good / n, z * z / n
    centre = share + weight / 2
    margin = z * math.sqrt(share * (1 - share) / n + weight / (4 * n))
    low = 0.0 if good == 0 else (centre - margin) / (1 + weight)
    high = 1.0 if good == n else (centre + margin) / (1 + weight)
    return low, high


def mean(in_order: Sequence[float], confidence: float = 0.95) -> Mean:
    """The mean of values in order of time, and its t interval. Raises ValueError of nothing.

    From 50 values on, the interval is that of the means of ten sections, since neighbours hang together.
    """
    n = len(in_order)
    if not n:
        raise ValueError("no values, no mean")
    centre = math.fsum(in_order) / n
    if n == 1:
        return Mean(centre, None, None)
    few = n < SECTIONS * SECTION_REQUESTS_MIN
    drawn = in_order if few else [fmean(in_order[first:last]) for first, last in sections(n)]
    margin = student(len(drawn) - 1, confidence) * math.sqrt(variance(drawn) / len(drawn))
    return Mean(centre, centre - margin, centre + margin)


def variance(values: Sequence[float]) -> float:
    """The variance of what at least two values were drawn from."""
    centre = math.fsum(values) / len(values)
    return math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1)


def needed(misses: int, q: float, confidence: float = 0.99) -> int:
    """How many requests show, so many of them over the limit, that the quantile is within it.

    MLPerf's early stopping: the smallest n for which so few misses would be a luck of less than
    1 - confidence, were more than 1 - q of all requests over. 459 without a miss for the p99, 662 with one.
    """
    most = misses + 1
    while not holds(most, misses, q, confidence):
        most *= 2
    least = max(misses, most // 2)
    while least + 1 < most:
        middle = (least + most) // 2
        if holds(middle, misses, q, confidence):
            most = middle
        else:
            least = middle
    return most


def judge(worth: int, misses: float, q: float, confidence: float = 0.99) -> bool | None:
    """Whether the quantile is within the limit: True, False, or None where this cannot be told.

    `worth` independent requests, of which `misses` are over it: part of one, where requests hang together.
    """
    if holds(worth, math.ceil(misses), q, confidence):
        return True
    return False if breaks(worth, math.floor(misses), q, confidence) else None


def holds(n: int, misses: int, q: float, confidence: float = 0.99) -> bool:
    """Whether `n` requests, `misses` of them over the limit, show that the quantile is within it."""
    return binomial(misses, n, 1 - q) <= 1 - confidence


def breaks(n: int, misses: int, q: float, confidence: float = 0.99) -> bool:
    """The reverse: whether they show that the quantile is over the limit."""
    return 1 - binomial(misses - 1, n, 1 - q) <= 1 - confidence


def binomial(k: int, n: int, p: float) -> float:
    """The chance of at most `k` successes in `n` trials, each of chance `p` (between 0 and 1)."""
    if k >= n:
        return 1.0
    return math.fsum(_chances(n, p, k))


def student(degrees: int, confidence: float) -> float:
    """Student's t that encloses `confidence` of the middle, with so many degrees of freedom, at least 1."""
    if degrees > DEGREES_MAX:
        return NormalDist().inv_cdf((1 + confidence) / 2)
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        if _within_angle(angle, degrees) < confidence:
            low = angle
        else:
            high = angle
    return math.tan(low) * math.sqrt(degrees)


def _within_angle(angle: float, degrees: int) -> float:
    """The chance of |t| <= sqrt(degrees) * tan(angle): Abramowitz and Stegun 26.7.3 and 26.7.4."""
    odd = degrees % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for step in range(odd, degrees - 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (step + 1) / (step + 2)
    inner = math.sin(angle) * total
    return (angle + inner) * 2 / math.pi if odd else inner


def _ranks(n: int, q: float, tail: float) -> tuple[int, int]:
    """Places in the order, from 0, of the values that bound the quantile; -1 and n where there is none.

    The largest k with at most `tail` of the binomial up to it, and the smallest with at least 1 - `tail`.
    """
    lower, below = -1, 0.0
    start = _first(n, q)
    for k, chance in enumerate(_chances(n, q, n - 1), start):
        below += chance
        if below <= tail:
            lower = k
        if below >= 1 - tail:
            return lower, k
    return lower, n


def _chances(n: int, p: float, last: int) -> Iterable[float]:
    """The chances of k successes, from `_first` to `last`."""
    k = _first(n, p)
    if k > last:
        return
    chance = math.exp(
        math.lgamma(n + 1)
        - math.lgamma(k + 1)
        - math.lgamma(n - k + 1)
        + k * math.log(p)
        + (n - k) * math.log1p(-p)
    )
    odds = p / (1 - p)
    for successes in range(k, last + 1):
        yield chance
        chance *= (n - successes) / (successes + 1) * odds


def _first(n: int, p: float) -> int:
    """The fewest successes that are worth a thought: what lies below has no chance to speak of (1e-12)."""
    return max(0, math.floor(n * p - 12 * math.sqrt(n * p * (1 - p)) - 12))
