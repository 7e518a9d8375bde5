"""Stages: exact counts, within their time, spread as their pattern says."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from statistics import mean, stdev

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from maitred.sim.stages import Bursts, Constant, Gamma, Pattern, RateStage, UserStage

POISSON = Gamma(1.0)


def cv(times: list[float]) -> float:
    gaps = [after - before for before, after in pairwise(times)]
    return stdev(gaps) / mean(gaps)


@given(
    st.sampled_from([POISSON, Gamma(0.3), Gamma(20.0), Constant(), Bursts(7)]),
    st.floats(0.1, 50),
    st.floats(0.1, 50),
    st.floats(10, 60),
    st.sampled_from([1.0, 0.5, 0.07]),
    st.integers(0, 2**32),
)
@example(Gamma(20.0), 1.0, 1.0, 10.0, 0.07, 2**32)  # one arrival, its two gaps too small for a float
def test_counts_are_exact_and_times_in_order_within_the_stage(
    pattern: Pattern, rate: float, rate_to: float, duration_s: float, share: float, seed: int
) -> None:
    stage = RateStage(rate, duration_s, rate_to)
    times = stage.offsets(pattern, share, Random(seed))
    assert len(times) == stage.count(share) == round(share * duration_s * (rate + rate_to) / 2)
    assert times == sorted(times)
    assert all(0 <= time <= duration_s * (1 + 1e-9) for time in times)


@given(st.integers(0, 2**32))
def test_gaps_vary_as_asked(seed: int) -> None:
    stage = RateStage(50.0, 60.0)
    for asked, tolerance in ((0.3, 0.05), (1.0, 0.1), (2.0, 0.4)):
        assert cv(stage.offsets(Gamma(asked), 1.0, Random(seed))) == pytest.approx(asked, abs=tolerance)


def test_half_of_a_poisson_stage_comes_in_half_of_its_time() -> None:
    times = RateStage(60.0, 25.0).offsets(POISSON, 1.0, Random(3))
    assert len(times) == 1500
    assert sum(time < 12.5 for time in times) == pytest.approx(750, abs=60)


def test_constant_and_bursts() -> None:
    stage = RateStage(2.0, 3.0)
    assert stage.offsets(Constant(), 1.0, Random(1)) == pytest.approx([0, 0.5, 1, 1.5, 2, 2.5])
    assert stage.offsets(Bursts(4), 1.0, Random(1)) == pytest.approx([0, 0, 0, 0, 2, 2])


@pytest.mark.parametrize(("rate", "rate_to", "early"), [(10, 30, 0.375), (30, 10, 0.625)])
def test_a_ramp_sends_at_the_rate_of_the_moment(rate: float, rate_to: float, early: float) -> None:
    times = RateStage(rate, 100.0, rate_to).offsets(Constant(), 1.0, Random(1))
    assert len(times) == 2000
    assert sum(time < 50 for time in times) / 2000 == pytest.approx(early, abs=0.001)
    assert sum(10 <= time < 11 for time in times) == pytest.approx(rate + (rate_to - rate) * 0.105, abs=1)


def test_users_do_not_begin_all_at_once() -> None:
    stage = UserStage(100, 60.0, 5.0)
    times = stage.offsets(POISSON, 0.5, Random(1))
    assert len(times) == 50
    assert times == sorted(times)
    assert max(times) <= 5
    assert mean(times) == pytest.approx(2.5, abs=0.6)


def test_what_is_no_stage() -> None:
    for make in (lambda: RateStage(0.1, 1.0), lambda: RateStage(1e5, 1e5), lambda: UserStage(2_000_000, 1.0)):
        with pytest.raises(ValueError, match=r"must be 1 to 1,000,000"):
            make()
    with pytest.raises(ValueError, match=r"^cv 21 is too large; write at most 20$"):
        Gamma(21.0)
