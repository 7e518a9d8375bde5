"""What the runs of one configuration say together, and how two configurations differ.

One seed proves nothing: two configurations differ where the ranges of their seeds do not overlap, and
nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct

from maitred.sim.arrival import Record
from maitred.sim.measure import PERCENTILES, Figure, Figures, Part, figures, part
from maitred.sim.run import EndpointUse, Run

HIGHER_IS_BETTER = {
    "completed": True,
    "left": False,
    "refused": False,
    "failed": False,
    "goodput_share": True,
    "goodput_per_s": True,
    "output_tokens_per_s": True,
    "cached_share": True,
    "preemptions": False,
    **{f"{time}_{of}_s": False for time in ("ttft", "tpot") for of in ("mean", *PERCENTILES)},
}
"""The figures by which configurations are compared."""
DIGITS = 6

Name = TypeVar("Name", str, int)
Found = TypeVar("Found")


class Summary(Struct, frozen=True):
    """One configuration. `whole` has `busy_share` too: the mean over its endpoints, of the run's time.

    A tenant (band, model, stage, endpoint) is summed up over those seeds in which it occurs.
    """

    name: str
    seeds: list[int]
    whole: Part
    tenants: dict[str, Part]
    bands: dict[str, Part]
    models: dict[str, Part]
    stages: dict[int, Part]
    endpoints: dict[str, Figures]


class StageRow(Struct, frozen=True):
    """One stage of a ladder of rates (requests/s), seed means. TTFT is None where nothing was answered."""

    rate: float
    ttft_p50_s: float | None
    ttft_p90_s: float | None
    output_tokens_per_s: float
    requests: float = 0
    refused: float = 0
    failed: float = 0
    preemptions: float = 0


class Change(Struct, frozen=True):
    """How a figure differs from another configuration's: `share` of that one, None where that one is 0.

    `verdict` is "better", "worse", "same" or "cannot tell".
    """

    share: float | None
    verdict: str


def summarize(runs: Sequence[Run]) -> Summary:
    """Sum up one configuration from its runs, at least one, which differ only in their seeds."""
    endpoints = [_endpoints(run) for run in runs]
    busy = [
        figures({"busy_share": math.fsum(use["busy_share"].mean for use in uses.values()) / len(uses)})
        for uses in endpoints
        if uses
    ]
    whole = _over_seeds([part(run.records, run.slos) for run in runs if run.records])
    return Summary(
        name=runs[0].name,
        seeds=[run.seed for run in runs],
        whole=Part(whole.figures | _spread(busy), whole.refused, whole.failed),
        tenants=_by(runs, lambda record: record.arrival.tenant),
        bands=_by(runs, lambda record: record.arrival.band),
        models=_by(runs, lambda record: record.arrival.model),
        stages=_by(runs, lambda record: record.arrival.stage),
        endpoints={name: _spread(uses) for name, uses in _gather(endpoints).items()},
    )


def ladder(summary: Summary, rates: Mapping[int, float]) -> list[StageRow]:
    """The stages that have a rate, in order of their rates; `rates` by stage, in requests/s."""
    rows = []
    for stage, rate in sorted(rates.items(), key=lambda item: item[1]):
        if stage in summary.stages:
            means = {name: figure.mean for name, figure in summary.stages[stage].figures.items()}
            rows.append(
                StageRow(
                    rate=rate,
                    ttft_p50_s=means.get("ttft_p50_s"),
                    ttft_p90_s=means.get("ttft_p90_s"),
                    output_tokens_per_s=means.get("output_tokens_per_s", 0),
                    requests=means["requests"],
                    refused=means["refused"],
                    failed=means["failed"],
                    preemptions=means["preemptions"],
                )
            )
    return rows


def compare(base: Summary, other: Summary) -> dict[str, Change]:
    """How each figure of `other` differs from the same figure of `base`."""
    ours, theirs = base.whole.figures, other.whole.figures
    alone = min(len(base.seeds), len(other.seeds)) < 2
    return {
        name: _change(ours[name], theirs[name], higher, alone)
        for name, higher in HIGHER_IS_BETTER.items()
        if name in ours and name in theirs
    }


def to_json(summaries: Sequence[Summary]) -> bytes:
    """The summaries as JSON; the same runs give the same bytes."""
    return msgspec.json.format(msgspec.json.encode(summaries), indent=2)


def _change(base: Figure, other: Figure, higher_is_better: bool, alone: bool) -> Change:
    share = (other.mean - base.mean) / base.mean if base.mean else None
    if base == other:
        return Change(share, "same")
    if alone or (other.low <= base.high and base.low <= other.high):
        return Change(share, "cannot tell")
    return Change(share, "better" if (other.mean > base.mean) is higher_is_better else "worse")


def _endpoints(run: Run) -> dict[str, Figures]:
    return {use.name: _endpoint(use, run.ended_at - run.began_at) for use in run.endpoints}


def _endpoint(use: EndpointUse, span_s: float) -> Figures:
    return figures(
        {
            "busy_share": use.busy_s / span_s if span_s else 0,
            "requests": use.requests,
            "output_tokens": use.output_tokens,
            "cached_share": use.cached_tokens / use.prompt_tokens if use.prompt_tokens else 0,
            "preemptions": use.preemptions,
        }
    )


def _by(runs: Sequence[Run], key: Callable[[Record], Name]) -> dict[Name, Part]:
    found: list[dict[Name, Part]] = []
    for run in runs:
        groups: dict[Name, list[Record]] = {}
        for record in run.records:
            groups.setdefault(key(record), []).append(record)
        found.append({name: part(records, run.slos) for name, records in groups.items()})
    return {name: _over_seeds(parts) for name, parts in sorted(_gather(found).items())}


def _gather(found: Sequence[Mapping[Name, Found]]) -> dict[Name, list[Found]]:
    """What was found under each name, over the seeds."""
    gathered: dict[Name, list[Found]] = {}
    for seed in found:
        for name, value in seed.items():
            gathered.setdefault(name, []).append(value)
    return gathered


def _over_seeds(parts: Sequence[Part]) -> Part:
    return Part(
        _spread([part.figures for part in parts]),
        _spread(_with_zeros([part.refused for part in parts])),
        _spread(_with_zeros([part.failed for part in parts])),
    )


def _with_zeros(counts: Sequence[Figures]) -> list[Figures]:
    """An outcome that a seed did not see, it saw 0 times."""
    zeros = {name: Figure(0, 0, 0) for seed in counts for name in seed}
    return [zeros | seed for seed in counts]


def _spread(seeds: Sequence[Figures]) -> Figures:
    return {name: _mean(found) for name, found in _gather(seeds).items()}


def _mean(found: Sequence[Figure]) -> Figure:
    values = [figure.mean for figure in found]
    return Figure(
        mean=_rounded(math.fsum(values) / len(values)),
        low=_rounded(min(values)),
        high=_rounded(max(values)),
        bounded=all(figure.bounded for figure in found),
    )


def _rounded(value: float) -> float:
    """As many digits as mean anything; whole numbers stay whole."""
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short.is_integer() else short
