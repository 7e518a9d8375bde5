"""Fit the engine model to a measured run, and say how well a profile foretells one.

The whole run is simulated with the lengths that it had. In the model an answer takes

    steps x base + tokens of context in these steps x share of each + tokens of prompts in them / speed

so the three figures that explain the measured times best are a linear regression over requests. What is in
the steps depends on how long they take, so simulation and regression take turns until they agree, and the
figures with the lowest loss on the way are kept. Judge on requests that were not fitted.

A share for each sequence is not fitted (it is set to 0): one run cannot tell it from the share of context.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from maitred.sim.engine import Engine
from maitred.sim.job import Job, Milestone, block_keys
from maitred.sim.measured import Measured
from maitred.sim.profile import Profile, StepTime

ROUNDS = 15
REQUESTS_MIN = 10
DAMPING = 0.5
DECODE_TOLERANCE = 0.03
"""Who is further off than this counts less: it may have been preempted in one of the two worlds only."""

TTFT_TOLERANCE, TTFT_TOLERANCE_S = 0.1, 0.05
"""Parts of the loss: an error in time to first token weighs 1 at 10 % + 50 ms."""

INDEPENDENT = 1e-9
"""What must be left of a figure's square when the others have been taken out of it."""

STEPS, CONTEXT, PROMPTS = range(3)
"""What an answer's time is made of, as places in a list."""


class Errors(Struct, frozen=True):
    """How a simulated run differs from the measured one: relative errors, signed but for `tpot_mape`.

    `tpot_mape` is the mean of |error| of every request's time per token; the others are errors of the mean or
    the percentile over all requests.
    """

    tpot_mean: float
    tpot_mape: float
    ttft_p50: float
    ttft_p90: float
    e2e_mean: float


class Fitted(Struct, frozen=True):
    """A profile with its step time fitted; `loss` and `errors` are of the requests it was fitted to."""

    profile: Profile
    loss: float
    errors: Errors


def named(profile: Profile, name: str, run: str) -> Profile:
    """A fitted profile under a name of its own, saying where its step time is from."""
    return replace(profile, name=name, sources={**profile.sources, "step": f"fitted to {run}"})


class Served(Struct):
    """A request as the model serves it; `work` is what was in the steps between its first and last token."""

    times: Measured
    work: list[float]


def judge(requests: Sequence[Measured], profile: Profile, part: slice) -> Errors:
    """Simulate a whole run, and compare a part of it (by order of arrival) with what was measured.

    Raises ValueError where a request can never fit.
    """
    return _errors(requests[part], replay(requests, profile)[part])


def fit(
    requests: Sequence[Measured],
    profile: Profile,
    part: slice,
    progress: Callable[[float], None] | None = None,
    *,
    context: bool = True,
) -> Fitted:
    """Fit a profile's step time to a part of a run (by order of arrival), starting from what it is.

    `progress` hears how much is done, 0 to 1; 300 requests take two seconds. `context` False leaves the share
    of context out, which shows what it is worth. The speed of prompts stays as it is where no answer had to
    wait for one. Raises ValueError where a request can never fit, or they are too much alike.
    """
    wanted = (STEPS, CONTEXT, PROMPTS) if context else (STEPS, PROMPTS)
    step, real = profile.step, requests[part]
    if sum(each.tokens > 1 for each in real) < REQUESTS_MIN:
        raise ValueError(
            f"to fit a profile, at least {REQUESTS_MIN} requests must have answers of several tokens"
        )
    figures = [step.base_s, step.per_token_s if context else 0.0, 1 / step.prefill_tokens_per_s]
    tried: list[Fitted] = []
    for number in range(ROUNDS):
        candidate = replace(
            profile, step=StepTime(figures[STEPS], 0.0, figures[CONTEXT], 1 / figures[PROMPTS])
        )
        served = replay(requests, candidate)[part]
        tried.append(Fitted(candidate, _loss(real, served), _errors(real, served)))
        found = _regress(real, served, figures, wanted)
        figures = [now + DAMPING * (then - now) for now, then in zip(figures, found, strict=True)]
        if progress is not None:
            progress((number + 1) / ROUNDS)
    return min(tried, key=lambda fitted: fitted.loss)


# -- the run in the model -------------------------------------------------------------------------


def replay(requests: Sequence[Measured], profile: Profile) -> list[Served]:
    """A run as the model serves it. Raises ValueError where a request can never fit.

    Prompts share nothing, but a preempted request finds what is left of its own.
    """
    engine = Engine(profile, progress_tokens=0, lazy=False)
    work = [0.0, 0.0, 0.0]
    marks: dict[tuple[Job, Milestone], list[float]] = {}

    def run(until: float) -> None:
        while engine.next_at is not None and engine.next_at <= until:
            _, context, prompts = engine.load
            told = engine.advance(engine.next_at)
            work[:] = engine.steps, work[CONTEXT] + context, work[PROMPTS] + prompts
            for each in told:
                marks[each.job, each.milestone] = list(work)

    jobs = []
    for number, request in enumerate(requests):
        text = ((number, request.prompt_tokens + request.tokens),)
        keys = block_keys(text, profile.block_tokens)
        job = Job(number, request.prompt_tokens, request.tokens, keys)
        run(request.arrived_at)
        engine.submit(job, request.arrived_at)
        jobs.append(job)
    run(math.inf)
    return [
        Served(
            replace(request, queued_at=job.queued_at, first_at=job.first_at, last_at=job.over_at),
            [b - a for a, b in zip(marks[job, Milestone.FIRST], marks[job, Milestone.DONE], strict=True)],
        )
        for request, job in zip(requests, jobs, strict=True)
    ]


# -- how well it agrees ---------------------------------------------------------------------------


def _errors(real: Sequence[Measured], served: Sequence[Served]) -> Errors:
    model = [each.times for each in served]
    pairs = [(a.tpot_s, b.tpot_s) for a, b in zip(real, model, strict=True) if a.tokens > 1]
    ttft, ttft_model = sorted(each.ttft_s for each in real), sorted(each.ttft_s for each in model)
    return Errors(
        tpot_mean=sum(b for _, b in pairs) / sum(a for a, _ in pairs) - 1,
        tpot_mape=sum(abs(b / a - 1) for a, b in pairs) / len(pairs),
        ttft_p50=_percentile(ttft_model, 0.5) / _percentile(ttft, 0.5) - 1,
        ttft_p90=_percentile(ttft_model, 0.9) / _percentile(ttft, 0.9) - 1,
        e2e_mean=sum(each.e2e_s for each in model) / sum(each.e2e_s for each in real) - 1,
    )


def _percentile(ordered: Sequence[float], part: float) -> float:
    """Linear between the two nearest."""
    place = part * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _loss(real: Sequence[Measured], served: Sequence[Served]) -> float:
    """Mean of soft absolute residuals: decode times by ratio, waits for the first token by difference."""
    total = 0.0
    for truth, each in zip(real, served, strict=True):
        if truth.tokens > 1:
            total += _soft(math.log(each.times.decode_s / truth.decode_s) / DECODE_TOLERANCE)
        tolerance_s = TTFT_TOLERANCE * truth.ttft_s + TTFT_TOLERANCE_S
        total += _soft((each.times.ttft_s - truth.ttft_s) / tolerance_s)
    return total / len(real)


def _soft(residual: float) -> float:
    return 2 * (math.sqrt(1 + residual * residual) - 1)


# -- the regression -------------------------------------------------------------------------------


def _regress(
    real: Sequence[Measured], served: Sequence[Served], figures: Sequence[float], wanted: Sequence[int]
) -> list[float]:
    """The figures, none below 0, that explain the measured decode times best; those not `wanted` are 0.

    Least squares of relative errors, those beyond the tolerance under `figures` weighted down (Huber).
    """
    rows = [
        [part / truth.decode_s for part in each.work]
        for truth, each in zip(real, served, strict=True)
        if truth.tokens > 1
    ]
    weights = [_weight(row, figures) for row in rows]
    idle = [part for part in wanted if not any(row[part] for row in rows)]
    found = [figures[part] if part in idle else 0.0 for part in (STEPS, CONTEXT, PROMPTS)]
    for part, value in _least_squares(weights, rows, [part for part in wanted if part not in idle]):
        found[part] = value
    return found


def _weight(row: Sequence[float], figures: Sequence[float]) -> float:
    error = abs(sum(part * figure for part, figure in zip(row, figures, strict=True)) - 1)
    return DECODE_TOLERANCE / error if error > DECODE_TOLERANCE else 1.0


def _least_squares(
    weights: Sequence[float], rows: Sequence[Sequence[float]], wanted: list[int]
) -> list[tuple[int, float]]:
    """The parts that explain 1 in each row, with their figures; what would be negative is left out."""
    while wanted:
        matrix = [[_dot(weights, rows, a, b) for b in wanted] for a in wanted]
        solution = _solve(matrix, [_dot(weights, rows, a) for a in wanted])
        if min(solution) >= 0:
            return list(zip(wanted, solution, strict=True))
        del wanted[solution.index(min(solution))]
    return []


def _dot(weights: Sequence[float], rows: Sequence[Sequence[float]], a: int, b: int | None = None) -> float:
    return sum(
        weight * row[a] * (1.0 if b is None else row[b]) for weight, row in zip(weights, rows, strict=True)
    )


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Solve a small system of normal equations by elimination."""
    size = len(right)
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for pivot in range(size):
        if rows[pivot][pivot] <= INDEPENDENT * matrix[pivot][pivot]:
            raise ValueError("the requests of this run are too much alike to tell what takes their time")
        for other in range(size):
            if other != pivot:
                factor = rows[other][pivot] / rows[pivot][pivot]
                rows[other] = [a - factor * b for a, b in zip(rows[other], rows[pivot], strict=True)]
    return [rows[index][size] / rows[index][index] for index in range(size)]
