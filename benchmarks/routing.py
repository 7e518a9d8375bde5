#!/usr/bin/env python3
"""Routing policies beside each other, on fleets and loads that others have published: docs/routing.md.

    .venv/bin/python benchmarks/routing.py [--quick] [--only LOAD ...] [--seeds N] [--traces DIR]

Writes each load's table between its marks in docs/routing.md, and docs/images/routing-*.svg. `--quick` takes
one seed, one level and three policies, and only prints. A ladder in which a request was refused, put out or
failed is an error.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from maitred.sim.ladder import FROM_RATE, ORACLE
from maitred.sim.plots import by_rate
from routing_loads import PRECISE, ROOT, Ladder, Replay, Result, loads

POLICIES = ("default", PRECISE, "llm-d", "llm-d-blend", "smg-cache-aware", "prefix-hash", "least-requests")
QUICK = ("default", "llm-d")
GREY = (ORACLE, "least-requests")
"""What the others are drawn beside."""
PAGE = ROOT / "docs" / "routing.md"
IMAGES = ROOT / "docs" / "images"
EMULATED = {"llm-d", "llm-d-blend", "smg-cache-aware", "prefix-hash"}

Key = tuple[str, float]
"""A policy at a level."""
Results = Mapping[Key, Sequence[Result]]
"""What each came to, by seed in order."""


class Job(Struct, frozen=True):
    """One run."""

    load: Ladder | Replay
    policy: str
    level: float
    seed: int


def play(job: Job) -> tuple[Job, Result]:
    """Do it, in a worker."""
    return job, job.load.run(job.policy, job.level, job.seed)


def mean(values: Sequence[float]) -> float:
    """The mean of the seeds."""
    return sum(values) / len(values)


def spread(values: Sequence[float], digits: int = 1, sign: str = "") -> str:
    """The mean over the seeds, and the lowest and highest of them."""
    low, high = min(values), max(values)
    text = f"{mean(values):{sign}.{digits}f}"
    return text if len(values) == 1 else f"{text} ({low:{sign}.{digits}f} to {high:{sign}.{digits}f})"


def label(policy: str) -> str:
    """Its name as tables say it."""
    return f"`{policy}`" + (", emulated" if policy in EMULATED else "")


def row(cells: Sequence[str]) -> str:
    """One line of a table."""
    return "| " + " | ".join(cells) + " |"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table of Markdown."""
    return [row(head), row(["---"] * len(head)), *map(row, rows)]


# -- the ladder -----------------------------------------------------------------------------------


def peak(result: Result) -> float:
    """The most tokens a second of any stage."""
    return max(stage.output_tokens_per_s for stage in result.stages)


def from_40(result: Result) -> float:
    """The mean tokens a second from 40 requests/s on."""
    return mean([stage.output_tokens_per_s for stage in result.stages if stage.rate >= FROM_RATE])


def stage_means(results: Sequence[Result], figure: str) -> list[tuple[float, float]]:
    """A figure of each stage by its rate, the mean over the seeds."""
    stages = zip(*(result.stages for result in results), strict=True)
    return [(each[0].rate, mean([getattr(one, figure) or 0.0 for one in each])) for each in stages]


def ladder_table(results: Results) -> list[str]:
    """The policies beside the oracle."""
    (level,) = {level for _, level in results}
    oracle = results[ORACLE, level]
    worst = stage_means(oracle, "ttft_p90_s")
    rows = []
    for (policy, _), found in results.items():
        p90 = stage_means(found, "ttft_p90_s")
        behind = max(mine[1] - its[1] for mine, its in zip(p90, worst, strict=True))
        peaks = [100 * peak(mine) / peak(its) for mine, its in zip(found, oracle, strict=True)]
        means = [100 * from_40(mine) / from_40(its) for mine, its in zip(found, oracle, strict=True)]
        rows.append(
            [
                label(policy),
                f"{mean([peak(one) for one in found]):,.0f}",
                spread(peaks),
                spread(means),
                f"{p90[-1][1]:.2f}",
                f"{max(value for _, value in p90):.1f}",
                f"{behind:+.1f}",
            ]
        )
    head = (
        "policy",
        "peak, tok/s",
        "of the oracle's, %",
        "from 40/s, %",
        "p90 at 60/s",
        "worst p90",
        "behind",
    )
    return table(head, rows)


def ladder_plots(load: Ladder, results: Results) -> dict[str, str]:
    """Output and waits by rate."""
    drawn = {}
    for figure, title, unit in (
        ("output_tokens_per_s", "Output", "tokens per s"),
        ("ttft_p90_s", "Time to first token, p90", "seconds"),
    ):
        lines = {policy: stage_means(found, figure) for (policy, _), found in results.items()}
        greys = {name: lines.pop(name) for name in GREY if name in lines}
        name = f"routing-{load.name}-{'output' if unit != 'seconds' else 'ttft'}"
        drawn[name] = by_rate(name, title, unit, lines, greys)
    return drawn


def check(load: Ladder, results: Results) -> None:
    """Nobody may have been refused, put out or let down."""
    for (policy, _), found in results.items():
        if lost := sum(result.lost for result in found):
            sys.exit(f"{load.name}: {lost} requests were not served by {policy}")


# -- replays --------------------------------------------------------------------------------------


def replay_table(load: Replay, results: Results) -> list[str]:
    """The policies at each speed, beside the emulation of llm-d with the same seeds."""
    rows = []
    for (policy, level), found in results.items():
        goods, theirs = (
            [100 * one.figures["goodput_share"] for one in each] for each in (found, results["llm-d", level])
        )
        ahead = [mine - its for mine, its in zip(goods, theirs, strict=True)]
        times = [mean([one.figures[f"ttft_{name}_s"] for one in found]) for name in ("p50", "p90", "p99")]
        rows.append(
            [
                f"{level:g}x, {load.rate(level):.1f}/s",
                label(policy),
                f"{mean(goods):.1f}",
                "" if policy == "llm-d" else spread(ahead, sign="+"),
                *(f"{seconds:.2f}" for seconds in times),
                f"{100 * mean([one.figures.get('cached_share', 0.0) for one in found]):.1f}",
                f"{round(mean([one.lost for one in found]), 1):g}",
            ]
        )
    head = (
        "speed",
        "policy",
        "good, %",
        "beside `llm-d`, points",
        "TTFT p50",
        "p90",
        "p99",
        "hits, %",
        "lost",
    )
    return table(head, rows)


def replay_plots(load: Replay, results: Results) -> dict[str, str]:
    """The share that is good by rate."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for (policy, level), found in results.items():
        goods = [100 * one.figures["goodput_share"] for one in found]
        lines.setdefault(policy, []).append((load.rate(level), mean(goods)))
    name = f"routing-{load.name}"
    greys = {grey: lines.pop(grey) for grey in GREY if grey in lines}
    return {name: by_rate(name, load.title, "within 2 s and 0.1 s/token (%)", lines, greys)}


# -- all of it ------------------------------------------------------------------------------------


def jobs_of(load: Ladder | Replay, seeds: int, *, quick: bool) -> list[Job]:
    """All runs of a load, seeds last."""
    names = QUICK if quick else POLICIES
    if isinstance(load, Ladder):
        names = (*names, ORACLE)
    levels = load.levels[1:2] or load.levels if quick else load.levels
    numbers = range(1, 2 if quick else min(seeds or load.seeds, load.seeds) + 1)
    return [
        Job(load, policy, level, seed) for level, policy, seed in itertools.product(levels, names, numbers)
    ]


def write(load: Ladder | Replay, lines: Sequence[str], plots: Mapping[str, str]) -> None:
    """Put the table between its marks, and the plots beside the page."""
    begin, end = f"<!-- {load.name} -->", f"<!-- /{load.name} -->"
    before, _, rest = PAGE.read_text().partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        sys.exit(f"{PAGE}: has no place for {load.name}; write {begin} and {end}")
    PAGE.write_text("\n".join((before + begin, "", *lines, "", end + after)))
    for name, svg in plots.items():
        (IMAGES / f"{name}.svg").write_text(svg)


def main() -> None:
    """Run, print and write down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="one seed, one level, three policies; only prints"
    )
    parser.add_argument("--only", nargs="+", metavar="LOAD", help="only these loads")
    parser.add_argument("--seeds", type=int, default=0, help="so many, instead of 8 or 5")
    parser.add_argument("--traces", type=Path, default=ROOT / "benchmarks" / "traces", help="where they are")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as made, multiprocessing.Pool(min(2, os.cpu_count() or 1)) as workers:
        for load in loads(asked.traces, Path(made)):
            if asked.only and load.name not in asked.only:
                continue
            results: dict[Key, list[Result]] = {}
            for job, result in workers.imap(play, jobs_of(load, asked.seeds, quick=asked.quick)):
                results.setdefault((job.policy, job.level), []).append(result)
            if isinstance(load, Ladder):
                check(load, results)
                lines, plots = ladder_table(results), ladder_plots(load, results)
            else:
                lines, plots = replay_table(load, results), replay_plots(load, results)
            seeds = len(next(iter(results.values())))
            seen = f"{seeds} seeds." if seeds > 1 else "one seed, which proves little."
            if load.seeds == 1:
                seen = "its times are exact, so all seeds are alike."
            lines = [f"{load.title}; {seen}", "", *lines]
            print("", *lines, sep="\n", flush=True)
            if not asked.quick:
                write(load, lines, plots)


if __name__ == "__main__":
    main()
