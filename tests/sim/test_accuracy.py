"""The model against real vLLM: fitted to the first half of a run, judged on the second.

Where it may be off is asked too: models that lack a part of it must fail.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace

from maitred.sim.calibrate import Errors, fit, judge
from maitred.sim.measured import Measured, read_run
from maitred.sim.profile import StepTime
from maitred.sim.profiles import load

RUNS = Path(__file__).parents[1] / "data" / "vllm_runs"
FITTED, JUDGED = slice(0, 150), slice(150, None)

LLAMA, QWEN, MIXTURE = "rtxpro6000-llama-3.1-8b", "rtxpro6000-qwen3-32b", "rtxpro6000-qwen3-30b-a3b"
TIGHT = "rtx4090-llama-3.1-8b"
FILES = {
    LLAMA: "RTXPRO6000_Llama-3.1-8B",
    QWEN: "RTXPRO6000_Qwen3-32B",
    MIXTURE: "RTXPRO6000_Qwen3-30B-A3B-Instruct-2507",
    TIGHT: "RTX4090_Llama-3.1-8B",
}

LIMITS = {
    LLAMA: Errors(tpot_mean=0.03, tpot_mape=0.05, ttft_p50=0.05, ttft_p90=0.05, e2e_mean=0.03),
    QWEN: Errors(tpot_mean=0.03, tpot_mape=0.05, ttft_p50=0.05, ttft_p90=0.05, e2e_mean=0.03),
    MIXTURE: Errors(tpot_mean=0.03, tpot_mape=0.05, ttft_p50=0.15, ttft_p90=0.10, e2e_mean=0.03),
    TIGHT: Errors(tpot_mean=0.03, tpot_mape=0.08, ttft_p50=0.05, ttft_p90=0.10, e2e_mean=0.03),
}

WITHOUT_CONTEXT = {
    LLAMA: StepTime(0.02951, 0.0, 0.0, 35_750),
    QWEN: StepTime(0.05967, 0.0, 0.0, 5_910),
    MIXTURE: StepTime(0.04996, 0.0, 0.0, 1e8),
}
"""The best that can be fitted where a step does not depend on contexts."""


@cache
def run(name: str) -> list[Measured]:
    read = read_run(RUNS / f"{FILES[name]}.requests.jsonl")
    assert (len(read.requests), read.bad) == (300, 0)
    return read.requests


def beyond(errors: Errors, name: str) -> list[str]:
    """The figures that are further off than they may be."""
    limits = LIMITS[name]
    return [
        field for field in Errors.__struct_fields__ if abs(getattr(errors, field)) > getattr(limits, field)
    ]


@pytest.mark.parametrize("name", LIMITS)
def test_a_fitted_profile_foretells_what_it_has_not_seen(name: str) -> None:
    assert beyond(judge(run(name), load(name), JUDGED), name) == []


@pytest.mark.parametrize("name", WITHOUT_CONTEXT)
def test_without_the_context_the_time_per_token_is_wrong(name: str) -> None:
    flat = replace(load(name), step=WITHOUT_CONTEXT[name])
    assert "tpot_mape" in beyond(judge(run(name), flat, JUDGED), name)


def test_without_asynchronous_scheduling_the_first_token_is_early() -> None:
    errors = judge(run(MIXTURE), replace(load(MIXTURE), asynchronous=False), JUDGED)
    assert errors.ttft_p50 < -0.3


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.7, 1.0, 1.5])
@pytest.mark.parametrize("name", LIMITS)
def test_fitting_from_scratch_is_as_good(name: str, factor: float) -> None:
    step = load("rtxpro6000-qwen3-8b").step  # of no run, and computed
    start = StepTime(step.base_s * factor, 0.0, step.per_token_s * factor, step.prefill_tokens_per_s / factor)
    fitted = fit(run(name), replace(load(name), step=start), FITTED)
    assert beyond(judge(run(name), fitted.profile, JUDGED), name) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", WITHOUT_CONTEXT)
def test_without_the_context_no_fit_is_good(name: str) -> None:
    fitted = fit(run(name), load(name), FITTED, context=False)
    assert "tpot_mape" in beyond(judge(run(name), fitted.profile, JUDGED), name)


@pytest.mark.slow
def test_without_asynchronous_scheduling_no_fit_is_good() -> None:
    fitted = fit(run(MIXTURE), replace(load(MIXTURE), asynchronous=False), FITTED)
    assert "ttft_p50" in beyond(judge(run(MIXTURE), fitted.profile, JUDGED), MIXTURE)
