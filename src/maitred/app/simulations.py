"""Many simulations at once: one process each, as many as there are cores, with progress and a clean end."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import cast

import msgspec
from msgspec import Struct, structs

from maitred.app.outside import load
from maitred.config.raw import ConfigError
from maitred.config.tree import Config
from maitred.sim.fleet import Write
from maitred.sim.invariants import Violation
from maitred.sim.ladder import BOUND, ORACLE, measure
from maitred.sim.run import Run
from maitred.sim.simulate import SimulationError, nodes_of, routed, simulate
from maitred.sim.summary import Summary, summarize
from maitred.sim.workload import Spec, load_workload

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
    kind: str = ""
    strict: bool = False


class WorkerDied(Exception):  # noqa: N818 - names what happened
    """The process of a run is gone, and nobody knows why."""

    def __init__(self, name: str, code: int | None) -> None:
        super().__init__(f"the process of {name} died with {code}; was it killed for its memory?")


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
    shown = measure(summary, oracle, bound, spec.rates())
    return msgspec.json.format(msgspec.json.encode(shown), indent=2)


def run_task(task: Task, told: Callable[[int], None] = lambda _over: None) -> Run:
    """Make one run. After a violation the run is made again, to leave its journal in the current folder."""
    config, spec = configured(task), load_workload(task.workload, strict=task.strict)

    def run(journal: Write | None = None) -> Run:
        return simulate(task.name, config, spec, task.seed, task.kind, lambda _at, over: told(over), journal)

    try:
        return run()
    except Violation as violation:
        path = Path(f"violation-{re.sub('[^a-z0-9]+', '-', task.name.lower())}-{task.seed}.journal")
        try:
            with path.open("wb") as journal, suppress(Violation):

                def write(line: bytes) -> None:
                    journal.write(line)

                run(write)
        except OSError as error:
            violation.add_note(f"its journal could not be written: {error}")
        else:
            violation.add_note(f"its journal is {path}; `maitred replay {path}` decides it all again")
        raise


def run_all(tasks: Sequence[Task]) -> Iterator[News]:
    """Make all runs, telling how far each is, and each run once. Raises the first error of any.

    However it is left, no process stays.
    """
    context = multiprocessing.get_context("spawn")
    waiting, running = list(enumerate(tasks))[::-1], dict[Connection, tuple[int, SpawnProcess]]()
    try:
        while waiting or running:
            while waiting and len(running) < (os.cpu_count() or 1):
                number, task = waiting.pop()
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_run, args=(task, theirs), daemon=True)
                process.start()
                theirs.close()
                running[ours] = number, process
            for ours in cast("list[Connection]", wait(running)):
                number, process = running[ours]
                try:
                    said = ours.recv()
                except EOFError:
                    process.join()
                    raise WorkerDied(tasks[number].name, process.exitcode) from None
                if isinstance(said, Exception):
                    raise said
                if isinstance(said, Run):
                    del running[ours]
                    process.join()
                    yield News(number, len(said.records), said)
                else:
                    yield News(number, said)
    finally:
        for _, process in running.values():
            process.kill()
            process.join()


def _run(task: Task, parent: Connection) -> None:
    """One run in a process of its own, which ends when nobody listens any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # for its parent to hear
    samples = 0

    def told(over: int) -> None:
        nonlocal samples
        samples += 1
        if samples % TOLD_EVERY == 0:
            parent.send(over)

    with suppress(BrokenPipeError):
        try:
            parent.send(run_task(task, told))
        except (ConfigError, SimulationError, Violation) as error:
            parent.send(error)
