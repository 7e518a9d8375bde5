"""Timeouts of connections: attributes looked at four times a second, never a timer each.

A connection that waits for something has `deadline` set to the instant at which its patience ends; the
sweep calls `expired` once that has passed. Setting an attribute costs nothing on the path of a chunk, and
a quarter of a second is nothing beside any of these limits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

PERIOD_S = 0.25
NEVER = float("inf")


class Waiting(Protocol):
    """Anything with a deadline in the clock's seconds (NEVER: none) that can be told it has passed."""

    deadline: float

    def expired(self, now: float) -> None:
        """The deadline has passed; called once a sweep until it is moved or the connection closes."""


class Sweep:
    """All waiting connections of one loop. `start` it once the loop runs, `stop` it at the end.

    `now` is the instant of the last look: exact enough to set deadlines by, and free to read.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.now = clock()
        self._clock = clock
        self._waiting: dict[int, Waiting] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, waiting: Waiting) -> None:
        """Watch a connection until `discard`."""
        self._waiting[id(waiting)] = waiting

    def discard(self, waiting: Waiting) -> None:
        """Watch it no longer."""
        self._waiting.pop(id(waiting), None)

    def start(self) -> None:
        """Begin to look, on the running loop."""
        self.now = self._clock()
        self._timer = asyncio.get_running_loop().call_later(PERIOD_S, self._look)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self.start()
        now = self.now
        for waiting in [w for w in self._waiting.values() if w.deadline <= now]:
            waiting.expired(now)
