"""The figures of some requests of one run: counts, rates, and how long everything took.

A percentile is an order statistic, the smallest value that the share of them reaches. It has an upper bound
only when enough requests were seen, see `samples_min`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from maitred.config.tree import Slo
from maitred.core.outcome import Outcome
from maitred.sim.arrival import Record

PERCENTILES = {"p50": 0.50, "p90": 0.90, "p99": 0.99}
CONFIDENCE = 0.95


class Figure(Struct, frozen=True, omit_defaults=True):
    """One figure: the mean over the seeds, and the lowest and highest of them.

    `bounded` False: a percentile of too few requests. The value is what was seen, and has no upper bound.
    """

    mean: float
    low: float
    high: float
    bounded: bool = True


Figures = dict[str, Figure]


class Part(Struct, frozen=True):
    """Figures of some of the requests, by name; `refused` and `failed` count them by outcome.

    Refused requests never came to an engine, failed ones did. `goodput_*` counts requests within their SLO
    (absent where there is none); `goodput_share` is their part of all that were sent. Rates are over the
    time from the first arrival to the last end. `cached_share`: prompt tokens found in a prefix cache. Times
    are in seconds: `ttft_*`, `tpot_*` (each token after the first), `e2e_*` of completed requests, `queue_*`
    until a place was found, or given up.
    """

    figures: Figures
    refused: Figures
    failed: Figures


def samples_min(share: float) -> int:
    """How many requests a percentile needs before its confidence interval has an upper end.

    Of the distribution-free interval between order statistics: n >= ln((1 - confidence) / 2) / ln(share);
    36 for the p90, 368 for the p99.
    """
    return math.ceil(math.log((1 - CONFIDENCE) / 2) / math.log(share))


def e2e_s(record: Record) -> float:
    """From the arrival to the end."""
    return record.over_at - record.arrival.at


def tpot_s(record: Record) -> float | None:
    """Seconds for each token after the first; None where there was only one, or nobody saw the first."""
    if record.outcome is not Outcome.COMPLETED or record.ttft_s is None or record.tokens < 2:
        return None
    return (e2e_s(record) - record.ttft_s) / (record.tokens - 1)


def within(record: Record, slo: Slo) -> bool:
    """Whether a request was completed within its SLO.

    An answer that is not streamed shows neither its first token nor its pace, so the whole must come within
    the time a stream at the SLO would have taken.
    """
    if record.outcome is not Outcome.COMPLETED:
        return False
    if record.arrival.stream:
        first_s = e2e_s(record) if record.ttft_s is None else record.ttft_s
        pace_s = tpot_s(record) or 0
        return first_s <= (slo.ttft_s or math.inf) and pace_s <= (slo.tpot_s or math.inf)
    later_tokens = max(0, record.tokens - 1)
    if slo.ttft_s is None or (slo.tpot_s is None and later_tokens):
        return True
    return e2e_s(record) <= slo.ttft_s + later_tokens * (slo.tpot_s or 0)


def figures(values: Mapping[str, float]) -> Figures:
    """Figures of a single seed."""
    return {name: Figure(value, value, value) for name, value in values.items()}


def part(records: Sequence[Record], slos: Mapping[str, Slo]) -> Part:
    """The figures of these requests, at least one; `slos` by model."""
    completed = [r for r in records if r.outcome is Outcome.COMPLETED]
    left = [r for r in records if r.outcome is Outcome.CLIENT_GONE]
    others = [r for r in records if r.outcome not in {Outcome.COMPLETED, Outcome.CLIENT_GONE}]
    refused = [r for r in others if not r.attempts]
    failed = [r for r in others if r.attempts]
    counts = {
        "requests": len(records),
        "completed": len(completed),
        "left": len(left),
        "refused": len(refused),
        "failed": len(failed),
        "preemptions": sum(r.preemptions for r in records),
    }
    return Part(
        figures(counts | _rates(records, slos))
        | _times("ttft", (r.ttft_s for r in records))
        | _times("tpot", (tpot_s(r) for r in records))
        | _times("e2e", (e2e_s(r) for r in completed))
        | _times("queue", (r.queue_s for r in records)),
        _by_outcome(refused),
        _by_outcome(failed),
    )


def _rates(records: Sequence[Record], slos: Mapping[str, Slo]) -> dict[str, float]:
    rates: dict[str, float] = {}
    span_s = max(r.over_at for r in records) - min(r.arrival.at for r in records)
    goals = {model: slo for model, slo in slos.items() if slo != Slo()}
    promised = [r for r in records if r.arrival.model in goals]
    good = sum(within(r, goals[r.arrival.model]) for r in promised)
    if promised:
        rates["goodput_share"] = good / len(promised)
    if span_s and promised:
        rates["goodput_per_s"] = good / span_s
    if span_s:
        rates["output_tokens_per_s"] = sum(r.tokens for r in records) / span_s
    completed = [r for r in records if r.outcome is Outcome.COMPLETED]
    if prompt_tokens := sum(r.arrival.prompt_tokens for r in completed):
        rates["cached_share"] = sum(r.cached_tokens for r in completed) / prompt_tokens
    return rates


def _times(name: str, seconds: Iterable[float | None]) -> Figures:
    known = sorted(value for value in seconds if value is not None)
    if not known:
        return {}
    times = figures({f"{name}_mean_s": math.fsum(known) / len(known)})
    for percentile, share in PERCENTILES.items():
        value = known[math.ceil(share * len(known)) - 1]
        times[f"{name}_{percentile}_s"] = Figure(value, value, value, len(known) >= samples_min(share))
    return times


def _by_outcome(records: Sequence[Record]) -> Figures:
    counts = dict.fromkeys((outcome.label for outcome in Outcome), 0)
    for record in records:
        counts[record.outcome.label] += 1
    return figures({label: count for label, count in counts.items() if count})
