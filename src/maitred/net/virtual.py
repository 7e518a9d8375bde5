"""Virtual time: an asyncio loop whose clock moves only when there is nothing left to do.

A loop that would wait for its next timer is at that timer at once, so hours of gateway life run in
milliseconds and every run is the same. A loop that would wait for ever raises `Hang`: a hang is a failure,
not a test that never ends. It is for code whose network is `maitred.net.memory`: a real socket or thread
is served when it is ready, but nobody waits for it.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

START_S = 1000.0  # not 0, so that an instant mistaken for a duration shows


class Hang(RuntimeError):  # noqa: N818 - it names what happened
    """Nothing can ever wake the loop again, or virtual time ran out. Its notes list the waiting tasks."""


class _ClockSelector(selectors.DefaultSelector):
    """Polls, and lets the clock jump where another selector would sleep."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__()
        self.now = START_S
        self._end = START_S + timeout_s

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready now (the loop's self-pipe is); only if nothing is may time pass."""
        ready = super().select(0)
        if ready:
            return ready
        if timeout is None:
            raise Hang("nothing is scheduled and nobody is ready")
        if self.now + timeout > self._end:
            raise Hang(f"virtual time ran out at {self._end:g} s")
        self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time: `time()` starts at `START_S` and may run for `timeout_s` seconds."""

    def __init__(self, timeout_s: float = 3600.0) -> None:
        self._clock = _ClockSelector(timeout_s)
        super().__init__(self._clock)

    def time(self) -> float:
        """Virtual seconds."""
        return self._clock.now


def run(main: Coroutine[Any, Any, T], timeout_s: float = 3600.0) -> T:
    """Like `asyncio.run`, in virtual time: cancels what is left over and closes everything.

    Raises Hang when `main` cannot go on, or has not ended after `timeout_s` virtual seconds.
    """
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(timeout_s)) as runner:
        try:
            return runner.run(main)
        except Hang as hang:
            for task in sorted(asyncio.all_tasks(runner.get_loop()), key=asyncio.Task.get_name):
                hang.add_note(f"waiting: {task!r}")
            raise
