"""A line is learned from what is seen: exactly, soon, in spite of outliers, and within bounds."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maitred.core.line import LEAST, MEMORY, MOST, UNKNOWN, Line

TOKENS = (100, 1000, 8000, 30_000)
BASE, SLOPE = 0.1, 1 / 16_000


def learned(readings: int, noise: float = 0.0, wild: float = 0.0) -> Line:
    """From a guess that is far off; some readings are `wild`: a hundred times too long."""
    line, rng = Line(0.02, 1 / 2000), Random(1)
    for _ in range(readings):
        tokens = rng.choice(TOKENS)
        took_s = (BASE + SLOPE * tokens) * math.exp(rng.gauss(0, noise))
        line.learn(tokens, took_s * 100 if rng.random() < wild else took_s)
    return line


def test_it_finds_a_line_exactly() -> None:
    line = learned(2000)
    assert (line.base, line.slope) == pytest.approx((BASE, SLOPE), rel=0.001)
    assert line.told == 2000
    assert line.error < 0.001


def test_ten_readings_are_about_enough() -> None:
    line = learned(10)
    for tokens in TOKENS:
        assert line.at(tokens) == pytest.approx(BASE + SLOPE * tokens, rel=0.2)


@pytest.mark.parametrize(("noise", "wild"), [(0.3, 0.0), (0.0, 0.05), (0.3, 0.05)])
def test_neither_noise_nor_outliers_lead_it_astray(noise: float, wild: float) -> None:
    line = learned(1000, noise, wild)
    for tokens in TOKENS:
        assert line.at(tokens) == pytest.approx(BASE + SLOPE * tokens, rel=0.2)


def test_one_odd_reading_of_one_who_knows_moves_it_little() -> None:
    line = learned(500)
    before = line.at(1000)
    line.learn(1000, 3600.0)
    assert before < line.at(1000) < 1.02 * before


def test_many_that_are_late_together_move_it_by_no_more_than_half() -> None:
    line = learned(500)
    before = line.at(1000)
    for _ in range(60):
        line.learn(1000, 3600.0)
    assert before < line.at(1000) < 1.5 * before


def test_it_follows_a_change() -> None:
    line, rng = learned(500), Random(2)
    for _ in range(3 * MEMORY):
        tokens = rng.choice(TOKENS)
        line.learn(tokens, 3 * (BASE + SLOPE * tokens))
    for tokens in TOKENS:
        assert line.at(tokens) == pytest.approx(3 * (BASE + SLOPE * tokens), rel=0.15)


def test_the_error_is_how_far_predictions_were_off_lately() -> None:
    line = Line(1.0, 0.001)
    line.learn(1000, 2 * math.e)
    assert line.error == pytest.approx(1.0)
    for number in range(5 * MEMORY):
        line.learn(1000, math.exp(0.2 * (-1) ** number))
    assert line.error == pytest.approx(0.2, rel=0.05)


READINGS = st.lists(
    st.tuples(
        st.one_of(st.just(0.0), st.floats(1e-3, 1e9), st.sampled_from([10.0, 1000.0])),
        st.one_of(st.floats(1e-9, 1e9), st.sampled_from([1e-9, 0.1, 1e9])),
    ),
    max_size=200,
)


@given(READINGS, st.integers(1, 20))
def test_whatever_is_seen_it_stays_within_bounds(readings: list[tuple[float, float]], times: int) -> None:
    line = Line(0.05, 1 / 4096)
    for x, seen in readings * times:
        line.learn(x, seen)
        assert LEAST <= line.base <= MOST
        assert LEAST <= line.slope <= MOST
        assert 0 <= line.error < 100
        assert 0 < line.base_variance <= UNKNOWN
        assert 0 < line.slope_variance <= UNKNOWN
        assert line.covariance**2 <= line.base_variance * line.slope_variance * (1 + 1e-9)
