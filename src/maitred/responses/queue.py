"""How many jobs wait in the store, and whether another may.

They are counted now and then, and what this gateway adds and takes in between is known to it. To count them
for each that comes would take the longer the more there are.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
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
        self._coming = Counter[str]()  # those of which a count may not know yet
        self._count_at = 0.0
        self._counting: asyncio.Task[None] | None = None

    async def count(self, store: StateStore, now: float) -> None:
        """Count those that wait, unless that was done a moment ago. Raises StoreError."""
        if self._counting is None and now >= self._count_at:
            self._counting = asyncio.create_task(self._count(store, now))
        if self._counting is not None:  # one attempt for all who wait
            await asyncio.shield(self._counting)

    @contextmanager
    def place(self, tenant: str, waiting_max: int, own_max: int) -> Iterator[None]:
        """A place for one more, given back where nothing comes of it. Raises QueueFull."""
        if self.waiting >= waiting_max or self._tenants[tenant] >= own_max:
            raise QueueFull(self.waiting, self._tenants[tenant])
        own = Counter((tenant,))
        self._coming += own
        self._add(tenant, 1)
        try:
            yield
        except BaseException:
            self._add(tenant, -1)
            raise
        finally:
            self._coming -= own

    def left(self, tenants: Iterable[str]) -> None:
        """A job of each of these was taken here."""
        for tenant in tenants:
            self._add(tenant, -1)

    async def _count(self, store: StateStore, now: float) -> None:
        try:
            self._tenants = await store.waiting() + self._coming
            self.waiting = self._tenants.total()
            self._count_at = now + COUNT_S
        finally:
            self._counting = None

    def _add(self, tenant: str, jobs: int) -> None:
        self.waiting += jobs
        self._tenants[tenant] += jobs
