"""Runs over real sockets, in this process and by several; and how what they saw is put together."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import pytest
import uvloop
from msgspec import structs

from maitred.bench import workers
from maitred.bench.forms import FORMS
from maitred.bench.interrupt import STOPS, Interrupt
from maitred.bench.load import LoadOptions, Progress
from maitred.bench.shot import Ending, Own, Run, Shot
from maitred.bench.targets import Target, TargetError
from maitred.bench.workers import Task, merge, run, together
from maitred.net.seams import Sockets
from maitred.sim.workload import Spec
from maitred.twin.twin import Twin
from tests.bench.place import SALT, specified
from tests.twin.place import PROFILE

TWO_KINDS = """
traffic:
  - {name: short, model: smollm2, prompts: {tokens: 20}, output: 5, share: 50%}
  - {name: chat, model: smollm2, prompts: {turns: 3, own: 20, system: 64}, output: 5, share: 50%}
arrivals: {stages: [{rate: 40/s, duration: 500ms}]}
"""
ENDLESS = """
traffic: [{name: short, model: smollm2, prompts: {tokens: 20}, output: 5}]
arrivals: {stages: [{rate: 10/s, duration: 10m}]}
"""


@pytest.fixture(name="url", scope="module")
def served() -> Iterator[str]:
    """A quick twin on a thread of its own."""
    ready: deque[str] = deque()
    begun, over = threading.Event(), threading.Event()

    async def serve() -> None:
        step = structs.replace(PROFILE.step, base_s=0.002, prefill_tokens_per_s=1e6)
        profile = structs.replace(PROFILE, step=step, kv_blocks=5000, sequences_max=64)
        twin = Twin(profile, Sockets(), time.monotonic)
        host, port = await twin.start("127.0.0.1", 0)
        ready.append(f"http://{host}:{port}")
        begun.set()
        while not over.is_set():
            await asyncio.sleep(0.01)
        twin.stop()

    thread = threading.Thread(target=lambda: uvloop.run(serve()))
    thread.start()
    assert begun.wait(60.0)
    yield ready[0]
    over.set()
    thread.join()


def task(url: str, spec: Spec) -> Task:
    kinds = tuple(kind.name for kind in spec.file.traffic)
    return Task(spec, Target(url), LoadOptions("w", kinds=kinds, seed=3, salt=SALT))


@pytest.mark.parametrize("count", [1, 2])
def test_everything_is_sent_once_by_however_many(url: str, tmp_path: Path, count: int) -> None:
    looks: list[int] = []

    def watch(progress: Progress) -> bool:
        looks.append(progress.sent)
        return False

    seen = run(task(url, specified(tmp_path, TWO_KINDS)), count, watch)
    assert [shot.ending for shot in seen.shots] == [Ending.COMPLETED] * 40
    assert [shot.over_at for shot in seen.shots] == sorted(shot.over_at for shot in seen.shots)
    assert len({shot.number for shot in seen.shots}) == 40
    chats = [shot for shot in seen.shots if shot.kind == "chat"]
    assert len(chats) == 30
    for number in {shot.conversation for shot in chats}:
        turns = [shot for shot in chats if shot.conversation == number]
        assert [shot.turn for shot in turns] == [1, 2, 3]
    begun = sorted(shot.due_at for shot in seen.shots if shot.turn < 2)
    assert begun == pytest.approx(DUE or begun), "the same schedule, however many send it"
    DUE[:] = begun
    assert (seen.workers, seen.workers_lost, seen.ended_early) == (count, 0, False)
    assert 0.0 < seen.own.cpu_share <= seen.own.cpu_share_max
    assert looks
    assert looks == sorted(looks)


DUE: list[float] = []
"""When the first run said that requests were due."""


@pytest.mark.parametrize("count", [1, 2])
def test_whoever_watches_may_end_it(url: str, tmp_path: Path, count: int) -> None:
    seen = run(task(url, specified(tmp_path, ENDLESS)), count, lambda progress: progress.endings[0] >= 4)
    assert seen.ended_early
    assert 4 <= len(seen.shots) < 1000


def test_what_is_over_before_it_began_sends_nothing(url: str, tmp_path: Path) -> None:
    seen = run(task(url, specified(tmp_path, ENDLESS)), 1, lambda _: True)
    assert (seen.shots, seen.ended_early) == ([], True)


@pytest.mark.parametrize("number", STOPS)
@pytest.mark.parametrize("count", [1, 2])
def test_a_signal_to_all_keeps_what_there_is(
    url: str, tmp_path: Path, count: int, number: signal.Signals
) -> None:
    def watch(progress: Progress) -> bool:
        if progress.endings[0] >= 2 and not interrupt.heard():
            for child in multiprocessing.active_children():  # Ctrl-C goes to all of a terminal's processes
                os.kill(child.pid or 0, number)
            os.kill(os.getpid(), number)
        return interrupt.heard()

    with Interrupt() as interrupt:
        seen = run(task(url, specified(tmp_path, ENDLESS)), count, watch)
    assert seen.ended_early
    assert seen.workers_lost == 0
    assert len(seen.shots) >= 2


def test_a_signal_while_workers_start_is_heard_then(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*words: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        heard.append(interrupt.heard())
        started(*words)

    heard: list[bool] = []
    started = workers._start
    monkeypatch.setattr(workers, "_start", start)
    resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]  # as in a fresh process
    with Interrupt() as interrupt:
        seen = run(task(url, specified(tmp_path, ENDLESS)), 2, lambda _: interrupt.heard())
        assert heard == [False, False]
        assert interrupt.heard()
    assert (seen.ended_early, seen.workers_lost) == (True, 0)
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & set(STOPS)
    assert not multiprocessing.active_children()


def test_the_end_of_all_leaves_no_worker(url: str, tmp_path: Path) -> None:
    def watch(progress: Progress) -> bool:
        if progress.sent:
            raise SystemExit
        return False

    with pytest.raises(SystemExit):
        run(task(url, specified(tmp_path, ENDLESS)), 2, watch)
    assert not multiprocessing.active_children()


def test_a_lost_worker_is_told(url: str, tmp_path: Path) -> None:
    def watch(progress: Progress) -> bool:
        if progress.sent > 2 and not killed:
            killed.append(next(iter(multiprocessing.active_children())).pid or 0)
            os.kill(killed[0], signal.SIGKILL)
        return len(killed) > 0

    killed: list[int] = []
    seen = run(task(url, specified(tmp_path, ENDLESS)), 2, watch)
    assert (seen.workers, seen.workers_lost) == (2, 1)


def test_stages_that_wait_for_everybody_need_one_worker(url: str, tmp_path: Path) -> None:
    spec = specified(tmp_path, TWO_KINDS.replace("500ms}]", "500ms}], between: {drain: true}"))
    with pytest.raises(TargetError, match="needs --workers 1"):
        run(task(url, spec), 2)


@pytest.mark.parametrize("form", FORMS)
def test_a_task_can_be_sent_to_a_worker(form: str, tmp_path: Path) -> None:
    one = Task(specified(tmp_path, TWO_KINDS), Target("http://u", form=FORMS[form]), LoadOptions(salt=SALT))
    assert pickle.loads(pickle.dumps(one)) == one


# -- putting together ---------------------------------------------------------------------------------


def shot(number: int, over_at: float, conversation: int = 0) -> Shot:
    return Shot(number, "k", "t", 0, 0.0, 0.0, over_at, Ending.COMPLETED, conversation=conversation)


def test_runs_are_merged() -> None:
    one = Run("u", "w", 1, [shot(1, 2.0, 1), shot(2, 4.0)], Own(0.5, 0.9, 0.1, 3, 1, 10), 5.0)
    two = Run("u", "w", 1, [shot(1, 3.0, 1)], Own(0.6, 0.7, 0.2, 4, 0, 20), 6.0, ended_early=True)
    whole = merge({0: one, 2: two}, 3)
    assert [(it.number, it.over_at, it.conversation) for it in whole.shots] == [
        (3, 2.0, 3),
        (5, 3.0, 5),
        (6, 4.0, 0),
    ]
    assert whole.own == Own(0.6, 0.9, 0.2, 7, 1, 20)
    assert (whole.duration_s, whole.workers, whole.workers_lost, whole.ended_early) == (6.0, 3, 1, True)


def test_how_all_stand() -> None:
    one = Progress(2.0, 5, 3, [2, 0, 0, 0], deque([(1.0, 0.1), (3.0, 0.3)]))
    two = Progress(4.0, 4, 1, [1, 1, 1, 0], deque([(2.0, 0.2)]))
    stand = together([one, two])
    assert (stand.at, stand.sent, stand.in_flight, stand.endings) == (4.0, 9, 4, [3, 1, 1, 0])
    assert list(stand.recent) == [(1.0, 0.1), (2.0, 0.2), (3.0, 0.3)]
