"""What all requests of the stateful APIs share: the store, the settings, and what is being made here."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from maitred.config.responses import Kept
from maitred.config.tree import Config
from maitred.observe.turns import Turns
from maitred.proxy.journey import Service
from maitred.responses.mcp.servers import Servers
from maitred.responses.news import News
from maitred.responses.queue import Queue
from maitred.store.rows import StoreError

if TYPE_CHECKING:
    from maitred.store.state import StateStore


class Memory(Protocol):
    """Gives the store. `opened` is None until somebody has asked for it."""

    opened: StateStore | None

    async def __call__(self) -> StateStore:
        """The store. Raises StoreError."""

    def failed(self, error: StoreError) -> None:
        """It could not be used, so the operator is told."""

    def worked(self) -> None:
        """It could."""


class Site:
    """`service` and `config` may be replaced at any time; `servers` have turns' tools.

    `wall` is UTC in seconds. `running` holds the responses that are being made here and that the store knows
    of, each with what stops it. `jobs` is set when there may be one to take, or room for one; `limited`
    counts by tenant those that wait here for its limits, `queue` those that wait in the store. `places` are
    for the jobs that are with the core.
    """

    def __init__(
        self,
        service: Service,
        config: Config,
        memory: Memory,
        servers: Servers,
        figures: Turns,
        wall: Callable[[], float],
    ) -> None:
        self.service = service
        self.servers = servers
        self.wall = wall
        self.running: dict[str, Callable[[], object]] = {}
        self.figures = figures
        self.news = News()
        self.jobs = asyncio.Event()
        self.queue = Queue()
        self.limited: Counter[str] = Counter()
        self.settings = config.responses
        self.places = asyncio.Semaphore(self.settings.background.running_max)
        self.memory = memory
        self.apply(config)

    def apply(self, config: Config) -> None:
        """Go by this configuration from now on."""
        most = config.responses.background.running_max
        if most != self.settings.background.running_max:
            self.places = asyncio.Semaphore(most)  # who has a place keeps it
        self.config = config
        self.settings = config.responses
        self.lease_ms = int(config.responses.lease_s * 1000)
        self.bands = {tier: band.name for band in config.bands for tier in band.service_tiers}

    def kept(self, tenant: str) -> Kept:
        """How this tenant's turns are kept."""
        return self.config.tenants.get(tenant, self.config.default_tenant).responses

    def now_ms(self) -> int:
        """The time, UTC, in ms since 1970."""
        return int(self.wall() * 1000)

    # -- what runs --------------------------------------------------------------------------------

    def stop(self, response_id: str) -> None:
        """A response is not to be made any more: end it, if it is made here."""
        if (stop := self.running.pop(response_id, None)) is not None:
            stop()

    async def keep_leases(self) -> None:
        """Say again and again what is being made here, and hear what is not wanted any more."""
        while True:
            await asyncio.sleep(self.settings.lease_s / 3)
            if not self.running:
                continue
            asked = list(self.running)
            try:
                store = await self.memory()
                wanted = await store.renew(asked, self.now_ms() + self.lease_ms)
            except StoreError as error:
                self.memory.failed(error)
                continue  # the next time may be early enough
            for response_id in asked:
                if response_id not in wanted:
                    self.stop(response_id)
