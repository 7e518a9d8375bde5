"""The loop that has the store end what time ends: what is old, and the turns of gateways that died.

It is done in small parts with a pause after each, for turns wait for the same threads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from maitred.observe.findings import Findings
from maitred.store.rows import StoreError

PAUSE_S = 0.1
KIND, PLACE = "unswept", "store"


class Swept(Protocol):
    """What is swept; raises StoreError when it cannot be."""

    async def sweep(self, now_ms: int, events_ttl_ms: int) -> bool:
        """Do a part of what is due; whether there may be more."""


class Sweeper:
    """Sweeps one store each `period_s`. Streams are kept for `resume_s`. `wall` is the world's clock in s."""

    def __init__(
        self,
        store: Swept,
        findings: Findings,
        period_s: float,
        resume_s: float,
        wall: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._findings = findings
        self._period_s = period_s
        self._resume_ms = int(resume_s * 1000)
        self._wall = wall
        self._sleep = sleep

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            await self.work()
            await self._sleep(self._period_s)

    async def work(self) -> StoreError | None:
        """Sweep until nothing is due; what went wrong with it."""
        try:
            while await self._store.sweep(int(self._wall() * 1000), self._resume_ms):
                await self._sleep(PAUSE_S)
        except StoreError as error:
            self._findings.tell(KIND, PLACE, f"{error}; what is old is not deleted", "see to the database")
            return error
        self._findings.settle(KIND, PLACE)
        return None
