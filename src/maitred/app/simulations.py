"""Many simulations at once: one process each, as many as there are cores, with progress and a clean end."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty
from random import Random
from typing import Any

import msgspec
from msgspec import Struct, structs

from maitred.config.load import load
from maitred.config.tree import Config
from maitred.sim.arrival import Workload
from maitred.sim.fleet import Write
from maitred.sim.invariants import Violation
from maitred.sim.ladder import Partitioned, endless, measure, partitioned
from maitred.sim.profile import Profile
from maitred.sim.run import Run
from maitred.sim.simulate import SimulationError, nodes_of, routed, simulate
from maitred.sim.summary import Summary, summarize
from maitred.sim.workload import Spec, load_workload

PLAIN, ORACLE, BOUND = "", "oracle", "bound"
POLL_S = 0.1
TOLD_EVERY = 20
"""Progress is told once in so many samples."""


class Task(Struct, frozen=True):
    """One run to be made: a configuration (with another routing, if given), a workload, a seed.

    `profile` is the engine at every endpoint, if given. `kind`: "", or which yardstick.
    """

    name: str
    config: Path
    workload: Path
    seed: int
    routing: str = ""
    profile: str = ""
    kind: str = PLAIN
    strict: bool = False


class News(Struct, frozen=True):
    """How far a task is, by its number: requests over. Its run comes with the last."""

    task: int
    over: int
    run: Run | None = None


def configured(task: Task) -> Config:
    """The configuration of a task. Raises ConfigError."""
    config = load(task.config, {"simulate.profile": task.profile} if task.profile else {})
    return routed(config, task.routing) if task.routing else config


def look(tasks: Sequence[Task]) -> tuple[Spec, list[str]]:
    """The workload of these tasks, and what is to be said before they run.

    Raises ConfigError and SimulationError.
    """
    spec = load_workload(tasks[0].workload, strict=tasks[0].strict)
    warnings = []
    for name, trace in spec.traces.items():
        if trace.bad:
            warnings.append(f"{name}: {trace.bad} rows of its trace were left out; the first:")
            warnings += [f"  {line}" for line in trace.bad_first]
        if trace.spread_s:
            warnings.append(f"{name}: its times stand on a grid of {trace.spread_s:g} s; spread at random")
    longest = spec.longest_tokens()
    for task in {(task.config, task.profile): task for task in tasks}.values():
        holds: dict[str, int] = {}
        for node in nodes_of(configured(task)):
            holds[node.pool] = max(holds.get(node.pool, 0), node.profile.request_tokens_max)
        for model, tokens in longest.items():
            if model not in holds:
                message = f"{task.config}: the workload asks for {model!r}, which it does not serve"
                raise SimulationError(message)
            if tokens > holds[model]:
                warnings.append(
                    f"{task.config}: {model} is asked for up to {tokens} tokens, prompt and answer; "
                    f"its engines hold {holds[model]}, so they refuse such requests"
                )
    return spec, warnings


def yardsticks(tasks: Sequence[Task]) -> list[Task]:
    """For each run of a ladder, one that deals out the groups, and one whose caches never fill besides."""
    return [
        structs.replace(task, name=f"{task.name}: {kind}", kind=kind)
        for kind in (ORACLE, BOUND)
        for task in tasks
    ]


def ladder_json(summary: Summary, runs: Sequence[Run], spec: Spec) -> bytes:
    """What a ladder of rates shows of one configuration, beside its yardsticks, as one JSON object."""
    oracle, bound = (
        summarize([run for run in runs if run.name == f"{summary.name}: {kind}"]) for kind in (ORACLE, BOUND)
    )
    shown = measure(summary, oracle, bound, spec.rates(), spec.counted)
    return msgspec.json.format(msgspec.json.encode(shown), indent=2)


def run_task(task: Task, told: Callable[[int], None] = lambda _over: None) -> Run:
    """Make one run. After a violation the run is made again, to leave its journal in the current folder."""
    config, spec = configured(task), load_workload(task.workload, strict=task.strict)
    workload: Callable[[Random], Workload] = spec.workload
    if task.kind != PLAIN:
        endpoints = {model.name: len(model.endpoints) for model in config.models}  # type: ignore[arg-type]
        config = partitioned(config)

        def workload(rng: Random) -> Workload:
            return Partitioned(spec.workload(rng), endpoints)

    change = endless if task.kind == BOUND else _as_it_is

    def run(journal: Write | None = None) -> Run:
        return simulate(task.name, config, workload, task.seed, lambda _at, over: told(over), journal, change)

    try:
        return run()
    except Violation as violation:
        path = Path(f"violation-{task.seed}.journal")
        with path.open("wb") as journal, suppress(Violation):

            def write(line: bytes) -> None:
                journal.write(line)

            run(write)
        violation.add_note(f"its journal is {path}; `maitred replay {path}` decides it all again")
        raise


def run_all(tasks: Sequence[Task]) -> Iterator[News]:
    """Make all runs, telling how far each is, and each run once. An error ends them all and is raised."""
    context = multiprocessing.get_context("spawn")
    queue: Any = context.Queue()
    processes = min(len(tasks), os.cpu_count() or 1)
    with context.Pool(processes, _start, (queue,)) as pool:  # leaving it, whyever, ends every process
        results = [pool.apply_async(_run, (number, task)) for number, task in enumerate(tasks)]
        waiting = dict(enumerate(results))
        while waiting:
            with suppress(Empty):
                yield News(*queue.get(timeout=POLL_S))
            for number in [number for number, result in waiting.items() if result.ready()]:
                run = waiting.pop(number).get()
                yield News(number, len(run.records), run)


def _as_it_is(profile: Profile) -> Profile:
    return profile


def _start(queue: Any) -> None:
    """A process begins; Ctrl-C is for its parent to hear."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _run.queue = queue  # type: ignore[attr-defined]


def _run(number: int, task: Task) -> Run:
    samples = 0

    def told(over: int) -> None:
        nonlocal samples
        samples += 1
        if samples % TOLD_EVERY == 0:
            _run.queue.put((number, over))  # type: ignore[attr-defined]

    return run_task(task, told)
