"""How many jobs wait in the store, and whether another may.

They are counted now and then, and what this gateway adds and takes in between is known to it. To count them
for each that comes would take the longer the more there are.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from maitred.store.state_rows import QueueFull

if TYPE_CHECKING:
    from maitred.store.state import StateStore

COUNT_S = 1.0


class Queue:
    """`waiting` jobs, of all tenants and gateways."""

    def __init__(self) -> None:
        self.waiting = 0
        self._tenants = Counter[str]()
        self._count_at = 0.0
        self._counting = asyncio.Lock()

    async def count(self, store: StateStore, now: float) -> None:
        """Count those that wait, unless that was done a moment ago. Raises StoreError."""
        async with self._counting:
            if now >= self._count_at:
                self._tenants = await store.waiting()
                self.waiting = self._tenants.total()
                self._count_at = now + COUNT_S

    @contextmanager
    def place(self, tenant: str, waiting_max: int, own_max: int) -> Iterator[None]:
        """A place for one more, given back where nothing comes of it. Raises QueueFull."""
        if self.waiting >= waiting_max or self._tenants[tenant] >= own_max:
            raise QueueFull(self.waiting, self._tenants[tenant])
        self._add(tenant, 1)
        with ExitStack() as back:
            back.callback(self._add, tenant, -1)
            yield
            back.pop_all()

    def left(self, tenants: Iterable[str]) -> None:
        """A job of each of these was taken here."""
        for tenant in tenants:
            self._add(tenant, -1)

    def _add(self, tenant: str, jobs: int) -> None:
        self.waiting += jobs
        self._tenants[tenant] += jobs
