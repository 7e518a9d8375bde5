"""Running a load: in this process, or by several when one core is not enough.

Each worker has a part of the workload (whole conversations and users), a clock in common, and its own
connections. What they saw is put together as one run. Signals are no business of theirs: who watches ends the
run, and when that process is gone, so are they.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import resource
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from operator import attrgetter
from random import Random
from typing import Any

import uvloop
from msgspec import Struct, structs

from maitred.bench.interrupt import STOPS
from maitred.bench.load import RECENT_MAX, Load, LoadOptions, Progress
from maitred.bench.shot import Own, Run
from maitred.bench.targets import Target, TargetError
from maitred.net.seams import Sockets
from maitred.sim.senders import WHOLE, Part
from maitred.sim.traffic import Generated
from maitred.sim.workload import Spec

LOOK_S = 0.25
BEGIN_S = 0.1
"""Between the word to all workers, who are ready, and the begin of the run."""

Watch = Callable[[Progress], bool]
"""Called four times a second with how the run stands; True ends it."""


class Task(Struct, frozen=True):
    """One run: what is sent, where to, and how."""

    spec: Spec
    target: Target
    options: LoadOptions


def run(task: Task, workers: int = 1, watch: Watch | None = None) -> Run:
    """Run it to its end. Raises TargetError where it cannot be run by so many workers."""
    _allow_connections()
    watch = watch or (lambda _: False)
    if workers == 1:
        return uvloop.run(_here(task, watch))
    if _drains(task.spec):
        raise TargetError("a workload that drains between stages (arrivals.between.drain) needs --workers 1")
    return _there(task, workers, watch)


def _drains(spec: Spec) -> bool:
    """Whether a stage begins when everybody's requests are over, which no worker knows of the others."""
    own = [kind.arrivals for kind in spec.file.traffic if isinstance(kind, Generated)]
    return any(arrivals.between.drain for arrivals in (spec.file.arrivals, *own) if arrivals)


async def _here(task: Task, watch: Watch) -> Run:
    """In this process."""
    load = _load(task, WHOLE)
    _look(load, watch)
    return await load.run()


def _look(load: Load, watch: Watch) -> None:
    """Show how it stands, and again in a moment."""
    if watch(load.progress):
        load.stop()
    else:
        asyncio.get_running_loop().call_later(LOOK_S, _look, load, watch)


def _load(task: Task, part: Part) -> Load:
    """A load of a part of the workload. What lives from here on is none of the collector's business."""
    gc.collect()
    gc.freeze()
    return Load(task.target, task.spec.workload(Random(task.options.seed), part), task.options, Sockets())


def _allow_connections() -> None:
    """As many files as the system lets us have open: each request under way is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


# -- several processes --------------------------------------------------------------------------------


def _there(task: Task, workers: int, watch: Watch) -> Run:
    lines: list[Connection] = []
    processes: list[BaseProcess] = []
    try:
        with _signals_later():
            for index in range(workers):
                _start(task, Part(index, workers), lines, processes)
        for line in lines:
            line.recv()
        begin_at = time.monotonic() + BEGIN_S
        for line in lines:
            line.send(begin_at)
        runs = _gather(lines, watch)
    except (EOFError, OSError):
        runs = {}
    finally:
        for process in processes:  # they have said all they will
            process.kill()
            process.join()
    if not runs:
        raise TargetError("a worker died before the run began; try --workers 1 to see why")
    return merge(runs, workers)


def _start(task: Task, part: Part, lines: list[Connection], processes: list[BaseProcess]) -> None:
    """One more worker, with a line to it."""
    context = multiprocessing.get_context("spawn")
    near, far = context.Pipe()
    process = context.Process(target=_work, args=(far, task, part), daemon=True)
    process.start()
    far.close()
    lines.append(near)
    processes.append(process)


@contextmanager
def _signals_later() -> Iterator[None]:
    """Hold back the signals that end a run. Processes started meanwhile never hear them; we do, after it."""
    resource_tracker.ensure_running()  # else the first process starts it, and it lets them through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _gather(lines: Sequence[Connection], watch: Watch) -> dict[int, Run]:
    """Listen to all workers until each has handed in its run, or is gone; the runs by worker."""
    stands = [Progress() for _ in lines]
    runs: dict[int, Run] = {}
    unheard = {line: index for index, line in enumerate(lines)}
    stopping = False
    while unheard:
        for line in wait(list(unheard), LOOK_S):
            _hear(line, unheard, stands, runs)
        if watch(together(stands)) and not stopping:
            stopping = True
            for line in unheard:
                with suppress(OSError):
                    line.send(None)
    return runs


def _hear(line: Any, unheard: dict[Connection, int], stands: list[Progress], runs: dict[int, Run]) -> None:
    """What one worker says: how it stands, or its run; one that is gone says nothing more."""
    index = unheard[line]
    try:
        said = line.recv()
    except (EOFError, OSError):
        del unheard[line]
        return
    if isinstance(said, Progress):
        stands[index] = said
    else:
        runs[index] = said
        del unheard[line]


def _work(line: Connection, task: Task, part: Part) -> None:
    """One worker, from its begin to its end, which is also that of its parent."""
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        line.send(uvloop.run(_worker(line, task, part)))


async def _worker(line: Connection, task: Task, part: Part) -> Run:
    load = _load(task, part)
    line.send(None)
    begin_at = line.recv()
    loop = asyncio.get_running_loop()

    def heard() -> None:  # the parent wants the end, or is gone
        loop.remove_reader(line.fileno())
        load.stop()

    def tell(progress: Progress) -> bool:
        with suppress(OSError):
            line.send(progress)
        return False

    loop.add_reader(line.fileno(), heard)
    _look(load, tell)
    try:
        return await load.run(begin_at)
    finally:
        loop.remove_reader(line.fileno())


# -- putting together ---------------------------------------------------------------------------------


def together(stands: Sequence[Progress]) -> Progress:
    """How all workers stand."""
    recent = sorted(entry for stand in stands for entry in stand.recent)
    return Progress(
        at=max(stand.at for stand in stands),
        sent=sum(stand.sent for stand in stands),
        in_flight=sum(stand.in_flight for stand in stands),
        endings=[sum(counts) for counts in zip(*(stand.endings for stand in stands), strict=True)],
        recent=deque(recent, maxlen=RECENT_MAX),
    )


def merge(runs: Mapping[int, Run], workers: int) -> Run:
    """One run of what the workers saw. Of how they fared it tells the worst, and counts together."""
    for index, run in runs.items():
        for shot in run.shots:  # so that numbers stay different
            shot.number = shot.number * workers + index
            shot.conversation = shot.conversation and shot.conversation * workers + index
    parts = list(runs.values())
    owns = [run.own for run in parts]
    own = Own(
        cpu_share=max(own.cpu_share for own in owns),
        cpu_share_max=max(own.cpu_share_max for own in owns),
        stall_s=max(own.stall_s for own in owns),
        connects=sum(own.connects for own in owns),
        connect_failures=sum(own.connect_failures for own in owns),
        buffered_bytes=max(own.buffered_bytes for own in owns),
    )
    return structs.replace(
        parts[0],
        shots=sorted((shot for run in parts for shot in run.shots), key=attrgetter("over_at")),
        own=own,
        duration_s=max(run.duration_s for run in parts),
        workers=workers,
        workers_lost=workers - len(runs),
        ended_early=any(run.ended_early for run in parts),
    )
