"""Ctrl-C and SIGTERM while something is measured: the first asks for the report so far, the second ends all.

The first only sets a flag, which whoever waits looks at. An exception would come anywhere, and so cut a
worker's message in two, or lose a run that was just handed in.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from typing import Any

STOPS = (signal.SIGINT, signal.SIGTERM)
SAME_S = 0.5
"""Signals this close together are one: `timeout` signals its command, and then the command's whole group."""
SIGNALLED = 128
"""The exit code of what a signal ended is this and its number, as shells have it."""


class Interrupt:
    """Hears these signals from `with` on, in the main thread, to its end."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.code = 0
        """The exit code that tells of the first signal; 0 where none came."""
        self._clock = clock
        self._first_at = 0.0
        self._out = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupt:
        """Begin to hear them."""
        self._before = {number: signal.signal(number, self._hear) for number in STOPS}
        return self

    def __exit__(self, *_: object) -> None:
        """Let them do what they did before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def heard(self) -> bool:
        """Whether to come to an end."""
        return self.code != 0

    def _hear(self, number: int, _frame: object) -> None:
        now = self._clock()
        if not self.code:
            self.code, self._first_at = SIGNALLED + number, now
        elif not self._out and now - self._first_at >= SAME_S:
            self._out = True  # a third would break off the clearing up
            sys.exit(self.code)
