"""Fitting: a run that the model itself made must give its figures back."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from maitred.sim.calibrate import Errors, fit, judge, replay
from maitred.sim.measured import Measured
from maitred.sim.profile import Profile, StepTime
from tests.sim.kitchen import profile

TRUTH = StepTime(base_s=0.02, per_sequence_s=0.0, per_token_s=2e-7, prefill_tokens_per_s=12_000)
ENGINE = profile(
    step=TRUTH, kv_blocks=20_000, block_tokens=16, sequences_max=64, step_tokens_max=2048, asynchronous=True
)
GUESS = replace(ENGINE, step=StepTime(0.03, 0.001, 1e-7, 20_000))


def requests(number: int = 60, of: Profile = ENGINE) -> list[Measured]:
    """A run as the model serves it, as if it had been measured."""
    rng = random.Random(1)
    at, asked = 0.0, []
    for _ in range(number):
        at += rng.expovariate(8)
        asked.append(Measured(at, rng.randint(10, 4000), rng.randint(1, 300), at, at, at))
    return [served.times for served in replay(asked, of)]


def test_the_figures_of_a_run_are_found_again() -> None:
    done: list[float] = []
    fitted = fit(requests(), GUESS, slice(0, 40), done.append)
    step = fitted.profile.step
    assert step.base_s == pytest.approx(TRUTH.base_s, rel=0.03)
    assert step.per_token_s == pytest.approx(TRUTH.per_token_s, rel=0.1)
    assert step.prefill_tokens_per_s == pytest.approx(TRUTH.prefill_tokens_per_s, rel=0.05)
    assert step.per_sequence_s == 0.0
    assert fitted.loss < 0.05
    assert fitted.errors.tpot_mape < 0.01
    assert done == sorted(done)
    assert done[-1] == 1.0


def test_a_few_that_were_held_up_do_not_matter() -> None:
    run = requests()
    held = [
        replace(each, last_at=each.last_at + 30) if number % 8 == 0 else each
        for number, each in enumerate(run)
    ]
    step = fit(held, GUESS, slice(0, 40)).profile.step
    assert step.base_s == pytest.approx(TRUTH.base_s, rel=0.05)
    assert step.prefill_tokens_per_s == pytest.approx(TRUTH.prefill_tokens_per_s, rel=0.1)


def test_without_context_it_fits_worse() -> None:
    run = requests()
    without = fit(run, GUESS, slice(0, 40), context=False)
    assert without.profile.step.per_token_s == 0.0
    assert without.loss > 2 * fit(run, GUESS, slice(0, 40)).loss


def test_an_error_is_signed_and_relative() -> None:
    run = requests()
    assert judge(run, ENGINE, slice(40, None)) == Errors(0.0, 0.0, 0.0, 0.0, 0.0)
    slow = replace(ENGINE, step=StepTime(0.022, 0.0, 2.2e-7, 12_000 / 1.1))
    errors = judge(run, slow, slice(40, None))
    assert 0.05 < errors.tpot_mean < 0.3
    assert errors.tpot_mape == pytest.approx(errors.tpot_mean, abs=0.1)
    assert errors.e2e_mean > 0.05


def test_where_no_answer_waits_for_a_prompt_the_speed_of_prompts_stays() -> None:
    asked = [Measured(100.0 * at, 10 + 90 * at, 50, 100.0 * at, 0, 0) for at in range(20)]
    run = [served.times for served in replay(asked, ENGINE)]
    step = fit(run, GUESS, slice(0, 20)).profile.step
    assert step.base_s == pytest.approx(TRUTH.base_s, rel=0.01)
    assert step.per_token_s == pytest.approx(TRUTH.per_token_s, rel=0.01)
    assert step.prefill_tokens_per_s == GUESS.step.prefill_tokens_per_s


def test_a_run_that_tells_too_little_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 10 requests"):
        fit(requests(), GUESS, slice(0, 9))
    alike = [Measured(100.0 * at, 10, 50, 100.0 * at, 0, 0) for at in range(20)]
    run = [served.times for served in replay(alike, ENGINE)]
    with pytest.raises(ValueError, match="too much alike"):
        fit(run, GUESS, slice(0, 20))


def test_a_request_that_never_fits_is_said() -> None:
    with pytest.raises(ValueError, match="more than its context"):
        fit(requests(), replace(GUESS, context_tokens_max=500), slice(0, 40))
