"""The plots of a report: how times were distributed, what happened when, and what a rising rate did."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain
from statistics import median

from maitred.bench.figures import Part, Summary
from maitred.bench.shot import Ending, Run, Shot
from maitred.sim import plots

POINTS = 120
"""Of a course over time."""
STEP_S_MIN = 1.0

DISTRIBUTIONS: tuple[tuple[str, str, str, Callable[[Shot], float | None]], ...] = (
    ("ttft", "How long until the first token came", "time to first token", lambda shot: shot.ttft_s),
    ("tpot", "How fast the tokens followed", "time per output token", lambda shot: shot.tpot_s),
    (
        "e2e",
        "How long until the answer was whole",
        "end to end",
        lambda shot: shot.e2e_s if shot.ending is Ending.COMPLETED else None,
    ),
)


def of_run(run: Run, summary: Summary) -> list[str]:
    """SVG of every plot for which there is something to show."""
    shots = run.measured()
    classes: dict[str, list[Shot]] = {}
    for shot in shots:
        classes.setdefault(shot.kind, []).append(shot)
    ladder = {run.rates[number]: part for number, part in summary.stages.items() if number in run.rates}
    drawn = [*_distributions(classes), *_courses(shots)]
    if len(ladder) > 1:
        drawn += _ladder(dict(sorted(ladder.items())), run.rates_of)
    return drawn


def of_sides(sides: Mapping[str, Sequence[Run]]) -> list[str]:
    """SVG of the distributions of both sides, all runs of a side together."""
    return list(
        _distributions({name: list(chain(*(run.measured() for run in runs))) for name, runs in sides.items()})
    )


def _distributions(shots: Mapping[str, Sequence[Shot]]) -> list[str]:
    drawn = []
    for name, title, x_title, value in DISTRIBUTIONS:
        times = {
            label: [known for known in map(value, group) if known is not None]
            for label, group in shots.items()
        }
        if any(times.values()):
            drawn.append(plots.distribution(name, title, x_title, times))
    return drawn


def _courses(shots: Sequence[Shot]) -> list[str]:
    """What happened when; time counts from the begin of the run."""
    if not shots:
        return []
    step_s = max(STEP_S_MIN, max(shot.over_at for shot in shots) / POINTS)
    drawn = [
        plots.over_time("inflight", "Requests under way", "requests", {"under way": in_flight(shots, step_s)})
    ]
    waits = _medians([(shot.due_at, ttft_s) for shot in shots if (ttft_s := shot.ttft_s) is not None], step_s)
    if waits:
        drawn.append(
            plots.over_time("waits", "TTFT p50, by when it was to be sent", "seconds", {"TTFT p50": waits})
        )
    lost = {
        ending.name.lower(): _per_s([shot.over_at for shot in shots if shot.ending is ending], step_s)
        for ending in (Ending.REFUSED, Ending.FAILED, Ending.LEFT)
    }
    if any(lost.values()):
        drawn.append(plots.over_time("lost", "Requests that were not served", "per second", lost))
    return drawn


def _ladder(stages: Mapping[float, Part], rates_of: str) -> list[str]:
    """What a rising rate did, stage by stage."""
    by_rate = partial(plots.by_rate, rates_of=rates_of)

    def line(name: str, percentile: str) -> list[tuple[float, float]]:
        found = {rate: part.times.get(name) for rate, part in stages.items()}
        values = {rate: times.percentiles[percentile].value for rate, times in found.items() if times}
        return [(rate, value) for rate, value in values.items() if value is not None]

    def rates(name: str, factor: float = 1.0) -> list[tuple[float, float]]:
        return [
            (rate, factor * (part.rates[name].value or 0.0))
            for rate, part in stages.items()
            if name in part.rates
        ]

    ttft = {"p50": line("ttft_s", "p50"), "p90": line("ttft_s", "p90")}
    output, good = rates("output_tokens_per_s"), rates("goodput_share", 100)
    drawn = [
        by_rate(
            "ladder-output",
            "Tokens that came out, by rate",
            "output tokens (per s)",
            {"all requests": output},
        )
    ]
    if any(ttft.values()):
        drawn.append(by_rate("ladder-ttft", "Time to first token, by rate", "seconds", ttft))
    if good:
        drawn.append(
            by_rate("ladder-goodput", "Requests within the SLO, by rate", "%", {"all requests": good})
        )
    return drawn


def in_flight(shots: Sequence[Shot], step_s: float) -> list[tuple[float, float]]:
    """How many were under way, at the end of each step."""
    changes: dict[int, int] = {}
    for shot in shots:
        for at, change in ((shot.sent_at, 1), (shot.over_at, -1)):
            changes[int(at / step_s)] = changes.get(int(at / step_s), 0) + change
    steps = range(max(changes) + 1)
    counts = accumulate(changes.get(step, 0) for step in steps)
    return [(step * step_s, count) for step, count in zip(steps, counts, strict=True)]


def _medians(points: Sequence[tuple[float, float]], step_s: float) -> list[tuple[float, float]]:
    """The median of the values in each step that has any."""
    steps: dict[int, list[float]] = {}
    for at, value in points:
        steps.setdefault(int(at / step_s), []).append(value)
    return [(step * step_s, median(values)) for step, values in sorted(steps.items())]


def _per_s(instants: Sequence[float], step_s: float) -> list[tuple[float, float]]:
    """How many there were per second, in each step."""
    if not instants:
        return []
    counts: dict[int, int] = {}
    for at in instants:
        counts[int(at / step_s)] = counts.get(int(at / step_s), 0) + 1
    return [(step * step_s, counts.get(step, 0) / step_s) for step in range(max(counts) + 2)]
