"""The supervisor with real children; only the time between two lives is made up."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop

from maitred.control.processes import GRACE_S, LINE_BYTES_MAX, Supervisor

PYTHON = [sys.executable, "-I", "-S", "-c"]
STAY = [*PYTHON, "import signal; print('up', flush=True); signal.pause()"]
STUBBORN_CODE = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
signal.pause()
"""
STUBBORN = [*PYTHON, STUBBORN_CODE]

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Both event loops, each with its own way to watch children."""
    runner: Run = request.param
    return runner


class Lines(logging.Handler):
    """What the children said, to be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: asyncio.Queue[str] = asyncio.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self.queue.put_nowait(f"{record.name.removeprefix('maitred.engine.')}: {record.getMessage()}")

    async def next(self) -> str:
        async with asyncio.timeout(60):
            return await self.queue.get()


@pytest.fixture
def lines() -> Iterator[Lines]:
    logger = logging.getLogger("maitred.engine")
    handler = Lines()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def is_gone(pid: int) -> bool:
    """Whether the process has ended and was waited for."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


class MadeUpTime:
    """A clock by which each life lasts as long as it is told, and waits that take no time.

    The last wait never ends; `over` tells that it has begun.
    """

    def __init__(self, lives_s: list[float]) -> None:
        self.now = 0.0
        self.readings = (length for life_s in lives_s for length in (0.0, life_s))
        self.lives = len(lives_s)
        self.waits: list[float] = []
        self.over = asyncio.Event()

    def clock(self) -> float:
        self.now += next(self.readings)
        return self.now

    async def sleep(self, wait_s: float) -> None:
        self.waits.append(wait_s)
        if len(self.waits) == self.lives:
            self.over.set()
            await asyncio.Event().wait()


def test_waits_double_up_to_a_bound_and_start_anew_after_a_long_life(run: Run) -> None:
    async def scenario() -> None:
        time = MadeUpTime([0.0] * 8 + [59.0, 60.0, 0.0])
        supervisor = Supervisor(time.sleep, time.clock)
        supervisor.start("brief", ["/bin/false"])
        async with asyncio.timeout(60):
            await time.over.wait()
        assert time.waits == [0.5, 1, 2, 4, 8, 16, 30, 30, 30, 0.5, 1]
        assert supervisor.restarts == {"brief": 10}
        assert supervisor.children == {}
        await supervisor.stop()

    run(scenario())


def test_a_killed_child_comes_back(run: Run, lines: Lines) -> None:
    async def scenario() -> None:
        time = MadeUpTime([1.0, 1.0])
        supervisor = Supervisor(time.sleep, time.clock)
        supervisor.start("a", STAY)
        assert await lines.next() == "a: up"
        first = supervisor.children["a"]
        os.kill(first, signal.SIGKILL)
        assert await lines.next() == "a: the process ended with -9; it starts again in 0.5 s"
        assert await lines.next() == "a: up"
        assert supervisor.children["a"] != first
        assert supervisor.restarts == {"a": 1}
        await supervisor.stop()

    run(scenario())


def test_output_is_logged_line_by_line_and_a_long_line_in_pieces(run: Run, lines: Lines) -> None:
    code = f"""
import os
os.write(1, b"one\\ntwo \\xff\\n")
os.write(2, b"y" * {3 * LINE_BYTES_MAX} + b"\\nunfinished")
"""

    async def scenario() -> None:
        time = MadeUpTime([1.0])
        supervisor = Supervisor(time.sleep, time.clock)
        supervisor.start("talker", [*PYTHON, code])
        said = []
        while not (line := await lines.next()).startswith("talker: the process"):
            said.append(line.removeprefix("talker: "))
        assert said[:2] == ["one", "two �"]
        assert said[-1] == "unfinished"
        assert "".join(said[2:-1]) == "y" * 3 * LINE_BYTES_MAX
        assert max(map(len, said)) <= 2 * LINE_BYTES_MAX
        await supervisor.stop()

    run(scenario())


def test_what_cannot_be_started_is_tried_again(run: Run, lines: Lines) -> None:
    async def scenario() -> None:
        time = MadeUpTime([1.0, 1.0])
        supervisor = Supervisor(time.sleep, time.clock)
        supervisor.start("nothing", ["/nowhere/to/be/found"])
        assert "No such file" in await lines.next()
        await time.over.wait()
        assert supervisor.restarts == {"nothing": 1}
        await supervisor.stop()

    run(scenario())


def test_stop_asks_first_and_hears_last_words(run: Run, lines: Lines) -> None:
    code = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(print("goodbye")))
print("up", flush=True)
signal.pause()
"""

    async def scenario() -> None:
        supervisor = Supervisor()
        supervisor.start("polite", [*PYTHON, code])
        assert await lines.next() == "polite: up"
        pid = supervisor.children["polite"]
        await supervisor.stop(grace_s=10)
        assert await lines.next() == "polite: goodbye"
        assert is_gone(pid)
        assert supervisor.children == {}

    run(scenario())


def test_stop_kills_who_does_not_listen(run: Run, lines: Lines) -> None:
    async def scenario() -> None:
        supervisor = Supervisor()
        supervisor.start("deaf", STUBBORN)
        supervisor.start("mute", STUBBORN)
        assert {await lines.next(), await lines.next()} == {"deaf: up", "mute: up"}
        pids = list(supervisor.children.values())
        async with asyncio.timeout(GRACE_S - 1.0):  # sooner than by the usual one
            await supervisor.stop(grace_s=0.05)
        assert all(map(is_gone, pids))

    run(scenario())


def test_what_a_child_started_goes_with_it(run: Run, lines: Lines) -> None:
    code = f"""
import subprocess, signal
print(subprocess.Popen({STUBBORN!r}).pid, flush=True)
signal.pause()
"""

    async def scenario() -> None:
        supervisor = Supervisor()
        supervisor.start("parent", [*PYTHON, code])
        said = {await lines.next(), await lines.next()} - {"parent: up"}
        (grandchild,) = (int(line.removeprefix("parent: ")) for line in said)
        gone = os.pidfd_open(grandchild)
        await supervisor.stop(grace_s=0.05)
        assert select.select([gone], [], [], 60)[0]
        os.close(gone)

    run(scenario())


def test_a_loop_that_ends_takes_its_children_along(run: Run, lines: Lines) -> None:
    pids: list[int] = []

    async def scenario() -> None:
        supervisor = Supervisor()
        supervisor.start("orphan", STAY)
        await lines.next()
        pids.extend(supervisor.children.values())

    run(scenario())
    assert [is_gone(pid) for pid in pids] == [True]


def test_a_stop_that_is_cancelled_kills(run: Run, lines: Lines) -> None:
    async def scenario() -> None:
        supervisor = Supervisor()
        supervisor.start("deaf", STUBBORN)
        await lines.next()
        pid = supervisor.children["deaf"]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await supervisor.stop(grace_s=600)
        assert is_gone(pid)

    run(scenario())


def test_a_child_has_a_session_of_its_own(run: Run, lines: Lines) -> None:
    async def scenario() -> None:
        supervisor = Supervisor()
        supervisor.start("a", STAY)
        await lines.next()
        pid = supervisor.children["a"]
        assert os.getsid(pid) == pid
        await supervisor.stop()

    run(scenario())


def test_a_name_is_given_once(run: Run, lines: Lines) -> None:
    async def scenario() -> None:
        supervisor = Supervisor()
        supervisor.start("a", STAY)
        with pytest.raises(ValueError, match="'a'"):
            supervisor.start("a", STAY)
        await lines.next()
        await supervisor.stop()

    run(scenario())
