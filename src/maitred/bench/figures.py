"""The figures of a run: what became of its requests, how long everything took, and how sure that is.

All times of a request count from when the schedule wanted it sent, so that a client or a server that holds
requests up cannot hide it; `ttft_sent_s` counts from when it really was sent. docs/measuring.md defines each.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TypeVar

from msgspec import Struct

from maitred.bench.limits import Limit, limits
from maitred.bench.shot import UNFINISHED, Ending, Run, Shot
from maitred.bench.statistics import independent, mean, quantile, wilson

PERCENTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}

Name = TypeVar("Name", str, int)


class Figure(Struct, frozen=True, omit_defaults=True):
    """A value and its 95 % confidence interval, where one was computed.

    `value` None: never reached, for too many requests failed. `bounded` False: a percentile of too few
    requests; the value is what was seen, and has no upper bound. `independent`: how many independent requests
    a percentile rests on, where they hang together.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    bounded: bool = True
    independent: int | None = None


class Times(Struct, frozen=True):
    """How long something took, in seconds, over `count` requests (gaps, for `itl_s`)."""

    count: int
    mean: Figure
    most: float | None
    percentiles: dict[str, Figure]


class Part(Struct, frozen=True):
    """Figures of some of the requests.

    `why` counts the reasons of those refused, failed and left, by these words. `span_s`: from when the first
    should have been sent to the end of the last.

    `rates`: `requests_per_s` (while they were sent), `goodput_share` (of all that were sent),
    `goodput_per_s`, `output_tokens_per_s`, `cached_share` (of prompt tokens, where the server tells).

    `times`: `ttft_s`, `ttft_sent_s`, `answer_s` (first token that is no reasoning), `tpot_s`, `itl_s`,
    `gap_s` (the longest of an answer), `e2e_s`, `queue_s`, `prefill_s`, `decode_s`, `connect_s` (new
    connections), `lag_s` (the client sent so much too late); and `ttft_adjusted_s`, `e2e_adjusted_s`, in
    which a request that was not served takes for ever.
    """

    requests: int
    completed: int
    refused: int
    failed: int
    left: int
    why: dict[str, dict[str, int]]
    span_s: float
    rates: dict[str, Figure]
    times: dict[str, Times]


class Summary(Struct, frozen=True):
    """One run in figures: whole, and by class, tenant and stage.

    `stages` are the common ones, without classes that have arrivals of their own. `limits`: whether the p99
    is within those of the SLO. `unfinished`: cut off by the run's end.
    """

    whole: Part
    classes: dict[str, Part]
    tenants: dict[str, Part]
    stages: dict[int, Part]
    limits: dict[str, Limit]
    unfinished: int


def summarize(run: Run) -> Summary:
    """The figures of a run, be it empty."""
    shots = run.measured()
    return Summary(
        whole=part(shots, run),
        classes=_by(shots, run, lambda shot: shot.kind),
        tenants=_by(shots, run, lambda shot: shot.tenant),
        stages=_by([shot for shot in shots if shot.kind not in run.apart], run, lambda shot: shot.stage),
        limits=limits(shots, run),
        unfinished=sum(shot.why == UNFINISHED for shot in run.shots),
    )


def part(shots: Sequence[Shot], run: Run) -> Part:
    """The figures of some shots of a run."""
    endings = Counter(shot.ending for shot in shots)
    span_s = max(shot.over_at for shot in shots) - min(shot.due_at for shot in shots) if shots else 0.0
    return Part(
        requests=len(shots),
        completed=endings[Ending.COMPLETED],
        refused=endings[Ending.REFUSED],
        failed=endings[Ending.FAILED],
        left=endings[Ending.LEFT],
        why=_reasons(shots),
        span_s=span_s,
        rates=_rates(shots, run, span_s),
        times={name: times for name, times in _times_of(shots).items() if times is not None},
    )


def _by(shots: Sequence[Shot], run: Run, key: Callable[[Shot], Name]) -> dict[Name, Part]:
    groups: dict[Name, list[Shot]] = {}
    for shot in shots:
        groups.setdefault(key(shot), []).append(shot)
    return {name: part(group, run) for name, group in sorted(groups.items())}


def _reasons(shots: Sequence[Shot]) -> dict[str, dict[str, int]]:
    """How often each reason was given, the most frequent first."""
    reasons = {
        ending.name.lower(): Counter(shot.why for shot in shots if shot.ending is ending)
        for ending in (Ending.REFUSED, Ending.FAILED, Ending.LEFT)
    }
    return {name: dict(counts.most_common()) for name, counts in reasons.items() if counts}


def _rates(shots: Sequence[Shot], run: Run, span_s: float) -> dict[str, Figure]:
    rates: dict[str, Figure] = {}
    if run.promises and shots:
        hits = list(map(run.good, shots))
        good, worth = sum(hits), independent(hits)
        low, high = wilson(worth * good / len(shots), worth)
        rates["goodput_share"] = Figure(good / len(shots), low, high)
        if span_s:
            per_s = len(shots) / span_s
            rates["goodput_per_s"] = Figure(good / span_s, low * per_s, high * per_s)
    due_at = [shot.due_at for shot in shots]
    if len(set(due_at)) > 1:
        rates["requests_per_s"] = Figure((len(shots) - 1) / (max(due_at) - min(due_at)))
    if span_s:
        rates["output_tokens_per_s"] = Figure(sum(shot.tokens for shot in shots) / span_s)
    told = [shot for shot in shots if shot.cached_tokens is not None]
    if prompt_tokens := sum(shot.prompt_tokens for shot in told):
        rates["cached_share"] = Figure(sum(shot.cached_tokens or 0 for shot in told) / prompt_tokens)
    return rates


def _times_of(shots: Sequence[Shot]) -> dict[str, Times | None]:
    completed = [shot for shot in shots if shot.ending is Ending.COMPLETED]
    thought = any(shot.answer_at != shot.first_at for shot in completed)
    return {
        "ttft_s": _times(shot.ttft_s for shot in shots),
        "ttft_sent_s": _times(shot.first_at - shot.sent_at for shot in shots if shot.first_at is not None),
        "ttft_adjusted_s": _adjusted(shots, lambda shot: shot.ttft_s),
        "answer_s": _times(shot.answer_at - shot.due_at for shot in completed if shot.answer_at is not None)
        if thought
        else None,
        "tpot_s": _times(shot.tpot_s for shot in shots),
        "itl_s": _itl(shots),
        "gap_s": _times(shot.gap_max_s for shot in completed if shot.gaps),
        "e2e_s": _times(shot.e2e_s for shot in completed),
        "e2e_adjusted_s": _adjusted(shots, lambda shot: shot.e2e_s),
        "queue_s": _times(shot.queue_s for shot in shots),
        "prefill_s": _times(_prefill_s(shot) for shot in shots),
        "decode_s": _times(shot.over_at - shot.first_at for shot in completed if shot.first_at is not None),
        "connect_s": _times(shot.connect_s for shot in shots if shot.connect_s),
        "lag_s": _times(shot.lag_s for shot in shots),
    }


def _prefill_s(shot: Shot) -> float | None:
    """What it took to read the prompt: as the server tells, else from its queue to the first token."""
    if shot.prefill_s is not None:
        return shot.prefill_s
    if shot.first_at is None or shot.queue_s is None:
        return None
    return max(0.0, shot.first_at - shot.sent_at - shot.queue_s)


def _times(seconds: Iterable[float | None]) -> Times | None:
    """Mean and percentiles with their intervals; None of nothing."""
    in_order = [value for value in seconds if value is not None]
    if not in_order:
        return None
    known = sorted(in_order)
    percentiles = {name: _percentile(known, q, in_order) for name, q in PERCENTILES.items()}
    return Times(len(known), _mean(in_order), _finite(known[-1]), percentiles)


def _percentile(known: Sequence[float], q: float, in_order: Sequence[float]) -> Figure:
    found = quantile(known, q, in_order=in_order)
    if math.isinf(found.value):
        return Figure(None)
    worth = found.independent if found.independent < len(known) else None
    return Figure(found.value, found.low, _finite(found.high), found.high is not None, worth)


def _mean(in_order: Sequence[float]) -> Figure:
    if math.inf in in_order:
        return Figure(None)
    found = mean(in_order)
    return Figure(found.value, None if found.low is None else max(0.0, found.low), found.high)


def _adjusted(shots: Sequence[Shot], seconds: Callable[[Shot], float | None]) -> Times | None:
    """Over all that were sent: who was not served waits for ever. None where all were served."""
    if all(shot.ending is Ending.COMPLETED for shot in shots):
        return None
    return _times(seconds(shot) if shot.ending is Ending.COMPLETED else math.inf for shot in shots)


def _itl(shots: Sequence[Shot]) -> Times | None:
    """Every gap between reads that brought tokens. Gaps of one answer hang together: no intervals."""
    gaps = sorted(later - earlier for shot in shots for earlier, later in pairwise(shot.reads_at))
    if not gaps:
        return None
    percentiles = {name: Figure(gaps[math.ceil(q * len(gaps)) - 1]) for name, q in PERCENTILES.items()}
    return Times(len(gaps), Figure(math.fsum(gaps) / len(gaps)), gaps[-1], percentiles)


def _finite(seconds: float | None) -> float | None:
    return seconds if seconds is not None and math.isfinite(seconds) else None
