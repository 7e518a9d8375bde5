"""The gateway, assembled: from a configuration and a network to something that serves, drains and stops.

The same assembly runs on real sockets and, given a virtual network and clock, in the tests.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from random import Random

import msgspec

import maitred
from maitred.app.journal import JournalFile
from maitred.config.tree import Config
from maitred.control.beat import beat
from maitred.control.discovery import Discovery
from maitred.control.models import Models
from maitred.core.events import Hub
from maitred.core.gateway import Gateway
from maitred.core.journal import RecordingGateway
from maitred.core.outcome import Outcome
from maitred.core.words import Abilities, Reset
from maitred.door.house import House
from maitred.net.client import Patience
from maitred.net.pool import Pool
from maitred.net.seams import Listener, Network
from maitred.net.server import HttpLimits, factory
from maitred.net.sweep import Sweep
from maitred.observe.access import AccessLog
from maitred.observe.logs import MoveLog
from maitred.observe.metrics import Metrics, Slo
from maitred.proxy.dispatch import Single
from maitred.proxy.front import Front
from maitred.proxy.journey import Service
from maitred.proxy.relay import Hold

log = logging.getLogger("maitred")

SHUTTING_DOWN = "the gateway is shutting down"
LOOK_S = 0.05


class GatewayApp:
    """One gateway. `start`, then `drain` and `stop`, on one loop.

    `clock` is the loop's monotonic seconds; `access` writes the access log, None for none.
    """

    def __init__(
        self,
        config: Config,
        network: Network,
        clock: Callable[[], float],
        access: AccessLog | None = None,
        flush: Callable[[], None] = lambda: None,
        seed: int | None = None,
    ) -> None:
        self.config = config
        self.access = access
        self.models = Models()
        self.journeys: set[asyncio.Task[None]] = set()
        self.sweep = Sweep(clock)
        self.pool = Pool(network, self.sweep, _patience(config), config.upstream.connect_s)
        self.metrics = Metrics(
            maitred.__version__, _slos(config), self._queued, self._in_flight, self._readings()
        )
        self.hub = Hub()
        for subscriber in (self.metrics, MoveLog(), access):
            if subscriber is not None:
                self.hub.subscribe(subscriber.hears)
        self.journal = JournalFile(config.journal.file, config.journal.bytes_max) if config.journal else None
        core = self._core(config, secrets.randbits(63) if seed is None else seed)
        self.house = House(core, clock, self.hub)
        hold = Hold(config.upstream.hold_bytes, config.upstream.hold_s)
        service = Service(self.house, self.models, Single(self.pool, hold), self.journeys)
        self.front = Front(service, access.note if access is not None else lambda _id, _exchange: None)
        self._network = network
        self._clock = clock
        self._flush = flush
        self._listener: Listener | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> tuple[str, int]:
        """Listen, and begin to look for the engines; the address listened at. Raises OSError."""
        data, limits = self.config.listen.data, _limits(self.config)
        serve = factory(self.front, self.sweep, limits)
        self._listener = await self._network.listen(serve, data.host, data.port)
        self.sweep.start()
        table = self.house.gateway.table
        discovery = Discovery(self.config, self.models, table, self.pool, self.house.update)
        self._tasks = [
            asyncio.create_task(discovery.run()),
            asyncio.create_task(beat(self._clock, self._work, self.metrics.loop_lag)),
        ]
        return self._listener.address

    async def drain(self) -> int:
        """Let what runs come to its end, take in nothing new; the number of answers that had to be cut.

        `/readyz` says no at once. For `drain.notice` requests are still served, then refused; answers that
        run have `drain.limit` to end.
        """
        drain = self.config.drain
        self.front.draining = True
        for connection in list(self.front.connections.values()):
            if connection.idle:
                connection.close()
        await asyncio.sleep(drain.notice_s)
        until = self._clock() + drain.limit_s
        settings = msgspec.structs.replace(self.house.gateway.settings, accepting=False)
        self.house.update(Reset(settings))
        if self.journeys:
            log.info("draining: %d requests are still running", len(self.journeys))
            await asyncio.wait(self.journeys, timeout=drain.limit_s)
        cut = self.house.cut_all(Outcome.DRAINING, SHUTTING_DOWN)
        if cut:
            log.warning("drain limit of %g s reached: %d answers were cut", drain.limit_s, cut)
            await asyncio.wait(self.journeys, timeout=1.0)
        await self._sent(until)
        return cut

    async def _sent(self, until: float) -> None:
        """Wait until what was answered has left for the clients, or until that instant."""
        # A transport tells nobody when it is empty, so it is looked at.
        while self._clock() < until and any(c.unsent for c in self.front.connections.values()):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)

    async def stop(self) -> None:
        """Close everything at once; what still runs is cut."""
        if self._listener is not None:
            self._listener.close()
        if self.house.cut_all(Outcome.DRAINING, SHUTTING_DOWN):
            await asyncio.wait(self.journeys, timeout=1.0)
        for task in (*self._tasks, *self.journeys):
            task.cancel()
        await asyncio.gather(*self._tasks, *self.journeys, return_exceptions=True)
        for connection in list(self.front.connections.values()):
            connection.transport.close()
        self.pool.close()
        self.sweep.stop()
        self._work()
        if self.journal is not None:
            self.journal.close()

    # -- parts ------------------------------------------------------------------------------------

    def _core(self, config: Config, seed: int) -> Gateway:
        settings, abilities = config.core_settings(), Abilities()
        if self.journal is None:
            return Gateway(settings, abilities, Random(seed), self.hub)
        return RecordingGateway(settings, abilities, seed, self.hub, self.journal.write)

    def _work(self) -> None:
        if self.access is not None:
            self.access.flush()
        self._flush()
        if self.journal is not None:
            self.journal.flush()

    def _queued(self) -> dict[str, int]:
        return self.house.gateway.waiting_by_pool()

    def _in_flight(self) -> dict[str, int]:
        table = list(self.house.gateway.table.by_pool.items())
        return {pool: sum(endpoint.running for endpoint in endpoints) for pool, endpoints in table}

    def _readings(self) -> dict[str, Callable[[], float]]:
        readings: dict[str, Callable[[], float]] = {
            "client_connections": lambda: len(self.front.connections),
            "upstream_connections": lambda: self.pool.open,
        }
        if (access := self.access) is not None:
            readings["access_log_dropped_total"] = lambda: access.dropped
        return readings


def _patience(config: Config) -> Patience:
    upstream = config.upstream
    return Patience(upstream.first_byte_s, upstream.idle_s, upstream.keep_alive_s)


def _limits(config: Config) -> HttpLimits:
    http = config.http
    return HttpLimits(
        head_bytes_max=http.head_bytes_max,
        headers_max=http.headers_max,
        body_bytes_max=http.body_bytes_max,
        head_timeout_s=http.head_timeout_s,
        body_timeout_s=http.body_timeout_s,
        keep_alive_s=http.keep_alive_s,
        write_timeout_s=http.write_timeout_s,
    )


def _slos(config: Config) -> dict[str, Slo]:
    return {
        name: Slo(model.slo.ttft_s, model.slo.tpot_s)
        for model in config.models
        for name in (model.name, *model.aliases)
        if model.slo.ttft_s is not None or model.slo.tpot_s is not None
    }
