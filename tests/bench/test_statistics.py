"""Intervals cover the truth at their stated rate, and tests against a limit err no more often than stated."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maitred.bench.statistics import (
    adjusted,
    binomial,
    breaks,
    holds,
    independent,
    judge,
    mean,
    needed,
    quantile,
    student,
    variance,
    wilson,
)
from maitred.sim.measure import samples_min

SEEDS = 1000
RARELY = 4
"""By so many standard deviations a count over the seeds may be off."""


def count_of(misses: int, chance: float) -> bool:
    """Whether so many misses in all seeds are not more than this chance explains."""
    return misses <= SEEDS * chance + RARELY * math.sqrt(SEEDS * chance * (1 - chance))


def test_a_quantile_is_a_value_between_two_others() -> None:
    values = [float(number) for number in range(1, 101)]
    median = quantile(values, 0.5)
    assert (median.value, median.low, median.high) == (50, 40, 61)  # the table of any textbook
    assert quantile(values, 0.9).value == 90
    lone = quantile([7.0], 0.5)
    assert (lone.value, lone.low, lone.high) == (7, None, None)
    with pytest.raises(ValueError, match="no values"):
        quantile([], 0.5)


@pytest.mark.parametrize("q", [0.5, 0.9, 0.95, 0.99, 0.999])
def test_the_upper_bound_needs_so_many_values(q: float) -> None:
    enough = samples_min(q)
    values = [float(number) for number in range(enough)]
    assert quantile(values, q).high == values[-1]
    assert quantile(values[:-1], q).high is None


@pytest.mark.parametrize(
    ("draw", "inverse"),
    [
        (lambda rng: rng.expovariate(1), lambda q: -math.log(1 - q)),
        (lambda rng: rng.random() ** 8, lambda q: q**8),
    ],
    ids=["exponential", "steep"],
)
@pytest.mark.parametrize(("q", "n"), [(0.5, 30), (0.9, 100), (0.99, 500)])
def test_the_interval_of_a_quantile_covers_the_truth(
    draw: Callable[[Random], float], inverse: Callable[[float], float], q: float, n: int
) -> None:
    below = above = 0
    for seed in range(SEEDS):
        rng = Random(seed)
        found = quantile(sorted(draw(rng) for _ in range(n)), q)
        below += found.high is not None and found.high < inverse(q)
        above += found.low is not None and found.low > inverse(q)
    assert count_of(below, 0.025)
    assert count_of(above, 0.025)
    assert below + above > 0.015 * SEEDS  # no wider than it must be


def stuck(rng: Random, values: int, alike: int) -> list[float]:
    """Exponential times, each of them so many times in a row: as in a queue, only worse."""
    return [time for _ in range(values // alike) for time in [rng.expovariate(1)] * alike]


@pytest.mark.parametrize("q", [0.5, 0.9])
def test_values_that_hang_together_count_for_less(q: float) -> None:
    """A thousand values worth fifty; the interval that takes them for a thousand mostly misses."""
    truth, seeds = -math.log(1 - q), 300
    covered = naive = 0
    for seed in range(seeds):
        values = stuck(Random(seed), 1000, 20)
        found = quantile(sorted(values), q, in_order=values)
        assert found.low is not None
        assert found.low > sorted(values)[int(1000 * (q - 0.4))]  # no wider than it must be
        covered += found.low <= truth and (found.high is None or truth <= found.high)
        plain = quantile(sorted(values), q)
        assert plain.low is not None
        assert plain.high is not None
        naive += plain.low <= truth <= plain.high
    assert covered > 0.88 * seeds
    assert naive < 0.6 * seeds


def test_independent_requests_are_worth_as_many_as_they_are() -> None:
    whole = 0
    for seed in range(SEEDS):
        rng = Random(seed)
        whole += independent([rng.random() < 0.9 for _ in range(400)]) == 400
    assert count_of(SEEDS - whole, 0.05)


def test_requests_that_hang_together_are_worth_their_groups() -> None:
    found = sorted(independent([time < 1 for time in stuck(Random(seed), 4000, 40)]) for seed in range(100))
    assert found[50] == pytest.approx(100, rel=0.3)
    assert independent([True] * 600) == independent([False] * 600) == 600
    assert independent([]) == 0
    assert independent([True] * 20 + [False] * 29) == 49
    assert independent([True] * 30 + [False] * 30) < 10


def test_failures_take_for_ever() -> None:
    values = adjusted([3.0, 1.0, 2.0, *[5.0] * 94], lost=3)
    assert values[:3] == [1, 2, 3]
    assert quantile(values, 0.97).value == 5
    assert quantile(values, 0.98).value == math.inf
    p95 = quantile(values, 0.95)
    assert (p95.value, p95.high) == (5, math.inf)


@given(st.integers(0, 60), st.integers(1, 60), st.floats(0.001, 0.999))
def test_the_binomial_is_the_sum_of_its_terms(k: int, n: int, p: float) -> None:
    exact = math.fsum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(min(k, n) + 1))
    assert binomial(k, n, p) == pytest.approx(exact, abs=1e-9)


def test_the_binomial_of_many_is_nearly_normal() -> None:
    assert binomial(500_000, 1_000_000, 0.5) == pytest.approx(0.5, abs=1e-3)
    assert binomial(500_000 + 980, 1_000_000, 0.5) == pytest.approx(0.975, abs=1e-3)
    assert binomial(100, 1_000_000, 0.5) == 0


def test_wilsons_interval() -> None:
    assert wilson(19, 20) == pytest.approx((0.76387, 0.99112), abs=1e-5)
    assert wilson(20, 20) == pytest.approx((0.83887, 1), abs=1e-5)
    assert wilson(0, 20) == pytest.approx((0, 0.16113), abs=1e-5)
    assert wilson(0, 0) == (0, 1)


def test_wilsons_interval_covers_the_truth_on_the_average() -> None:
    """For a single share it is off by a few percent either way, as only so many values can occur."""
    misses = 0
    for seed in range(SEEDS):
        rng = Random(seed)
        share = rng.uniform(0.8, 1)
        low, high = wilson(sum(rng.random() < share for _ in range(150)), 150)
        misses += not low <= share <= high
    assert count_of(misses, 0.05)
    assert misses > 0.03 * SEEDS


@pytest.mark.parametrize(
    ("degrees", "confidence", "t"),
    [
        (1, 0.95, 12.7062),
        (2, 0.95, 4.3027),
        (4, 0.99, 4.6041),
        (9, 0.99, 3.2498),
        (30, 0.95, 2.0423),
        (9999, 0.95, 1.9600),
    ],
)
def test_students_t(degrees: int, confidence: float, t: float) -> None:
    assert student(degrees, confidence) == pytest.approx(t, abs=1e-4)


@pytest.mark.parametrize(("n", "alike"), [(4, 1), (49, 1), (100, 1), (1000, 20)])
def test_the_interval_of_a_mean_covers_the_truth(n: int, alike: int) -> None:
    misses = 0
    for seed in range(SEEDS):
        rng = Random(seed)
        found = mean([value for _ in range(n // alike) for value in [rng.gauss(10, 3)] * alike])
        assert found.low is not None
        assert found.high is not None
        misses += not found.low <= 10 <= found.high
    assert count_of(misses, 0.05)
    assert misses > 0.03 * SEEDS


def test_the_mean_of_a_few() -> None:
    assert mean([1.0] * 49 + [2.0]).high == pytest.approx(1.02 + student(9, 0.95) * 0.02)
    assert variance([1, 2, 3, 4]) == pytest.approx(5 / 3)
    assert mean([5.0]).value == 5
    assert mean([5.0]).low is None
    with pytest.raises(ValueError, match="no values"):
        mean([])


@pytest.mark.parametrize(
    ("q", "counts"), [(0.99, (459, 662, 838, 1307)), (0.95, (90, 130, 165, 259)), (0.9, (44, 64, 81, 127))]
)
def test_so_many_requests_show_that_a_quantile_is_within(q: float, counts: tuple[int, ...]) -> None:
    """Of MLPerf's rules of inference."""
    assert tuple(needed(misses, q) for misses in (0, 1, 2, 5)) == counts
    assert holds(counts[1], 1, q)
    assert not holds(counts[1] - 1, 1, q)
    assert needed(0, 0.95, confidence=0.95) == 59


def test_a_limit_is_kept_broken_or_cannot_be_told() -> None:
    assert judge(459, 0, 0.99) is True
    assert judge(458, 0, 0.99) is None
    assert judge(459, 0.1, 0.99) is None  # part of a miss is one
    assert judge(500, 12, 0.99) is False
    assert judge(500, 11.9, 0.99) is None  # and not yet the twelfth


@pytest.mark.parametrize("n", [50, 300, 1000])
@pytest.mark.parametrize("confidence", [0.95, 0.99])
def test_a_quantile_just_at_the_limit_is_judged_wrong_no_more_often_than_stated(
    n: int, confidence: float
) -> None:
    chances = [math.comb(n, misses) * 0.05**misses * 0.95 ** (n - misses) for misses in range(n + 1)]
    within = math.fsum(chances[misses] for misses in range(n + 1) if holds(n, misses, 0.95, confidence))
    over = math.fsum(chances[misses] for misses in range(n + 1) if breaks(n, misses, 0.95, confidence))
    assert within <= 1 - confidence
    assert over <= 1 - confidence
    assert within + over > 0 or n < needed(0, 0.95, confidence)
