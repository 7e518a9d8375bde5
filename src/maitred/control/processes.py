"""Keeps child processes alive: starts them, starts them again when they die, and leaves none behind.

Each child leads a session of its own, so Ctrl-C in a terminal reaches only this process, which then stops
its children in order. Ending one task ends its child, so whatever cancels the tasks leaves nothing running.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Awaitable, Callable, Sequence

BACKOFF_MIN_S = 0.5
BACKOFF_MAX_S = 30.0
STEADY_S = 60.0
"""A child that lived this long was well: its next death starts the backoff anew."""

GRACE_S = 5.0
LINE_BYTES_MAX = 4096
"""A longer line of output is logged in pieces."""


class Supervisor:
    """The children of this process by name.

    `children`: process ids of those now running. `restarts`: how often each was started again.
    `sleep` and `clock` (seconds) pace the restarts.
    """

    __slots__ = ("_clock", "_grace_s", "_sleep", "_tasks", "children", "restarts")

    def __init__(
        self,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.children: dict[str, int] = {}
        self.restarts: dict[str, int] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._grace_s = GRACE_S
        self._sleep = sleep
        self._clock = clock

    def start(self, name: str, argv: Sequence[str]) -> None:
        """Keep a child running from now on; its output goes to the logger `maitred.engine.<name>`."""
        if name in self._tasks:
            raise ValueError(f"there is a child named {name!r} already")
        self.restarts[name] = 0
        self._tasks[name] = asyncio.create_task(self._keep(name, argv), name=f"child {name}")

    async def stop(self, grace_s: float = GRACE_S) -> None:
        """End all children: SIGTERM now, SIGKILL to those still there after `grace_s` seconds."""
        self._grace_s = grace_s
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _keep(self, name: str, argv: Sequence[str]) -> None:
        log = logging.getLogger(f"maitred.engine.{name}")
        wait_s = BACKOFF_MIN_S
        while True:
            born = self._clock()
            try:
                why = f"ended with {await self._live(name, argv, log)}"
            except OSError as error:
                why = f"failed: {error}"
            if self._clock() - born >= STEADY_S:
                wait_s = BACKOFF_MIN_S
            log.warning("the process %s; it starts again in %g s", why, wait_s)
            await self._sleep(wait_s)
            wait_s = min(2 * wait_s, BACKOFF_MAX_S)
            self.restarts[name] += 1

    async def _live(self, name: str, argv: Sequence[str], log: logging.Logger) -> int:
        """One life of a child, from start to exit code; nothing of it outlives this coroutine."""
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, start_new_session=True
        )
        self.children[name] = process.pid
        try:
            return await _follow(process, log)
        finally:
            await self._end(process, log)
            del self.children[name]

    async def _end(self, process: Process, log: logging.Logger) -> None:
        """End the child, and whatever it started and left behind, gently first."""
        _signal(process, signal.SIGTERM)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._grace_s):
                    await _follow(process, log)
        finally:
            _signal(process, signal.SIGKILL)
            await process.wait()


async def _follow(process: Process, log: logging.Logger) -> int:
    """Log what the process says until nobody is left to say anything; its exit code."""
    assert process.stdout is not None  # noqa: S101 - asked for above
    rest = b""
    while chunk := await process.stdout.read(LINE_BYTES_MAX):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            lines, rest = [*lines, rest], b""
        for line in lines:
            log.info("%s", line.decode(errors="replace"))
    if rest:
        log.info("%s", rest.decode(errors="replace"))
    return await process.wait()


def _signal(process: Process, number: signal.Signals) -> None:
    """Signal the child's whole session; an empty one is no error."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
