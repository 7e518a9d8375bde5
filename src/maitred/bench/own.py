"""How the load generator itself fares: a report that does not say it cannot be trusted.

A beat each 10 ms shows by its lateness how long the loop was busy with something else. Ten times a second it
looks at what waits in the write buffers, each second at the CPU.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from maitred.bench.shot import Own

BEAT_S = 0.01
LOOK_BEATS = 10
SECOND_S = 1.0


class Beat:
    """Fills an `Own` from `start` to `stop`. `clock` gives seconds, `buffered` the bytes that wait now."""

    def __init__(self, own: Own, clock: Callable[[], float], buffered: Callable[[], int]) -> None:
        self._own = own
        self._clock = clock
        self._buffered = buffered
        self._timer: asyncio.TimerHandle | None = None
        self._beats = 0
        self._due_at = 0.0
        self._began = self._second = (0.0, 0.0)  # the clock and the CPU time then

    def start(self) -> None:
        """Begin, on the running loop."""
        self._began = self._second = self._now()
        self._arm()

    def stop(self) -> None:
        """Look a last time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._own.cpu_share = self._share_since(self._began)
            self._own.cpu_share_max = max(self._own.cpu_share_max, self._own.cpu_share)

    def _arm(self) -> None:
        self._due_at = self._clock() + BEAT_S
        self._timer = asyncio.get_running_loop().call_later(BEAT_S, self._beat)

    def _beat(self) -> None:
        own, now = self._own, self._clock()
        own.stall_s = max(own.stall_s, now - self._due_at)
        self._beats += 1
        if self._beats % LOOK_BEATS == 0:
            own.buffered_bytes = max(own.buffered_bytes, self._buffered())
        if now - self._second[0] >= SECOND_S:
            own.cpu_share_max = max(own.cpu_share_max, self._share_since(self._second))
            self._second = self._now()
        self._arm()

    def _now(self) -> tuple[float, float]:
        return self._clock(), time.process_time()

    def _share_since(self, begin: tuple[float, float]) -> float:
        at, cpu_s = self._now()
        return (cpu_s - begin[1]) / (at - begin[0]) if at > begin[0] else 0.0
