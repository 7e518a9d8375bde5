"""Lengths: what is drawn has the figures that were asked for, and never passes its upper end."""

from __future__ import annotations

from random import Random
from statistics import mean, median, quantiles

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maitred.sim.lengths import Cdf, Fixed, Length, Lognormal, Point, Uniform

DRAWS = 4000

tokens = st.integers(1, 10_000)
lengths = st.one_of(
    st.builds(Fixed, tokens),
    st.tuples(tokens, tokens).map(lambda ends: Uniform(min(ends), max(ends))),
    st.tuples(tokens, tokens).map(lambda pair: Lognormal(pair[0], pair[0] + pair[1])),
    st.lists(tokens, min_size=1, max_size=6, unique=True).map(
        lambda steps: Cdf(
            tuple(Point(step, (place + 1) / len(steps)) for place, step in enumerate(sorted(steps)))
        )
    ),
)


def drawn(length: Length, seed: int = 1) -> list[int]:
    rng = Random(seed)
    return [length.draw(rng) for _ in range(DRAWS)]


@given(lengths, st.integers(0, 2**32))
def test_a_length_is_at_least_one_and_at_most_its_end(length: Length, seed: int) -> None:
    rng = Random(seed)
    assert all(1 <= length.draw(rng) <= length.tokens_max for _ in range(20))


@given(st.integers(10, 1000), st.integers(0, 1000))
def test_the_mean_of_a_uniform_length(low: int, width: int) -> None:
    assert mean(drawn(Uniform(low, low + width))) == pytest.approx(low + width / 2, rel=0.05)


@given(st.integers(50, 5000), st.floats(1.5, 8))
def test_a_lognormal_length_has_the_figures_it_was_given(middle: int, factor: float) -> None:
    p95 = round(middle * factor)
    found = drawn(Lognormal(middle, p95))
    assert median(found) == pytest.approx(middle, rel=0.1)
    assert quantiles(found, n=20)[-1] == pytest.approx(p95, rel=0.15)
    assert max(found) <= 4 * p95


def test_a_measured_distribution_is_met_at_its_points_and_straight_between() -> None:
    found = drawn(Cdf((Point(100, 0.2), Point(1000, 0.2), Point(2000, 1.0))))
    at_most = [sum(one <= limit for one in found) / DRAWS for limit in (50, 100, 1000, 1500, 2000)]
    assert at_most == pytest.approx([0.1, 0.2, 0.2, 0.6, 1.0], abs=0.02)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Uniform(5, 2), "min 5 is above max 2; exchange them"),
        (lambda: Lognormal(5, 5), "median must be below p95, and p95 not above max"),
        (lambda: Lognormal(5, 9, 8), "median must be below p95, and p95 not above max"),
        (lambda: Cdf((Point(5, 0.5),)), "cdf must end with share: 100%"),
        (
            lambda: Cdf((Point(5, 0.5), Point(5, 1.0))),
            "cdf must rise: each point with more tokens and no smaller share than the last",
        ),
        (
            lambda: Cdf((Point(5, 1.0), Point(6, 0.5))),
            "cdf must rise: each point with more tokens and no smaller share than the last",
        ),
    ],
)
def test_what_is_no_distribution(make: object, said: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError) as caught:
        make()
    assert str(caught.value) == said
