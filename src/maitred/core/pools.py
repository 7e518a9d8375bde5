"""The pools of a house: made when they are first asked for, let go when nobody lists them any more."""

from __future__ import annotations

from collections.abc import Container

from maitred.core.endpoints import EndpointTable
from maitred.core.pool import Pool
from maitred.core.queue import NEVER
from maitred.core.words import Settings


class Pools(dict[str, Pool]):
    """By name. `closed` are those that left while somebody waited there."""

    __slots__ = ("_settings", "_table", "closed")

    def __init__(self, settings: Settings, table: EndpointTable) -> None:
        super().__init__()
        self.closed: dict[str, None] = {}
        self._settings = settings
        self._table = table

    def __missing__(self, name: str) -> Pool:
        pool = self[name] = self.new(name)
        return pool

    def new(self, name: str) -> Pool:
        """One that nobody but the caller knows."""
        settings = self._settings
        pool = Pool(name, settings.pools.get(name, settings.default), settings.bands)
        pool.endpoints = self._table.by_pool.get(name, ())
        return pool

    def apply(self, settings: Settings) -> None:
        """Live by these settings from now on."""
        self._settings = settings
        for name, pool in self.items():
            pool.apply(settings.pools.get(name, settings.default), settings.bands)
            if pool.prefixes is None:
                for endpoint in pool.endpoints:
                    endpoint.begun = 0

    def follow(self, listed: Container[str]) -> None:
        """The table has changed: drop what is no more, but for those where somebody waits or is served."""
        self.closed.clear()
        for name, pool in list(self.items()):
            if name not in listed and pool.waiting:
                self.closed[name] = None
            elif name not in listed and name not in self._table.by_pool:
                del self[name]
        for name, pool in self.items():
            pool.endpoints = self._table.by_pool.get(name, ())
            pool.keep(self._table.by_name)

    def next_at(self) -> float:
        """The next instant at which something is due where somebody waits."""
        return min((pool.next_at() for pool in self.values() if pool.waiting), default=NEVER)
