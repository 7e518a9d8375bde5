"""The gateway, assembled: from a configuration and a network to something that serves, drains and stops.

The same assembly runs on real sockets and, given a virtual network and clock, in the tests.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator
from inspect import CORO_CREATED, getcoroutinestate, iscoroutine
from random import Random

from msgspec import structs

import maitred
from maitred.app.identity import Identities
from maitred.app.journal import JournalFile
from maitred.app.kept import kept
from maitred.app.memory import Memory
from maitred.config.changes import restart_needed
from maitred.config.prices import bounds_money, unpriced
from maitred.config.tree import Config
from maitred.control.accounts import Accountant
from maitred.control.beat import beat
from maitred.control.discovery import Discovery
from maitred.control.kv_events import Listener as KvListener
from maitred.control.models import Models
from maitred.control.scrape import Scraper
from maitred.control.watch import Watch
from maitred.core.events import Hub, LegFailed
from maitred.core.gateway import Gateway
from maitred.core.journal import RecordingGateway
from maitred.core.outcome import Outcome
from maitred.core.words import Abilities, Reset, Settings
from maitred.door.house import House
from maitred.door.inflate import Inflater
from maitred.door.tokens import Tokens
from maitred.net.burst import Burst
from maitred.net.client import Patience
from maitred.net.pool import Pool
from maitred.net.seams import Listener, Network
from maitred.net.server import HttpLimits, ServerConnection
from maitred.net.sweep import Sweep
from maitred.observe.access import AccessLog
from maitred.observe.budgets import budgets
from maitred.observe.decisions import Decisions
from maitred.observe.ends import Ends
from maitred.observe.findings import Findings
from maitred.observe.kv_events import KvFigures
from maitred.observe.logs import MoveLog
from maitred.observe.metrics import Metrics, Slo
from maitred.proxy.dispatch import Single
from maitred.proxy.front import Front
from maitred.proxy.journey import Service
from maitred.proxy.relay import Hold
from maitred.responses.background import Background
from maitred.responses.mcp.servers import Servers
from maitred.responses.paths import Paths
from maitred.responses.site import Site
from maitred.wire.requests import Rules

log = logging.getLogger("maitred")

SHUTTING_DOWN = "the gateway is shutting down"
LOOK_S = 0.05
LAST_WORDS_S = 1.0
"""How long those who were cut may take to be told so."""
OURS = ("query_of_death",)
"""Kinds of finding that are made and settled here."""


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
        self.config = self._at_start = config
        self.access = access
        self.models = Models()
        self.journeys: dict[str, asyncio.Task[None]] = {}
        self.sweep, self.burst = Sweep(clock), Burst()
        self.pool = Pool(network, self.sweep, _patience(config), config.upstream.connect_s, self.burst)
        self.findings = Findings()
        self.identities = Identities(config, self.pool, self.findings, clock)
        self._metrics = self._numbers(config, clock)
        self.ends = Ends(*([self._metrics.over] if access is None else [self._metrics.over, access.over]))
        self.hub = Hub()
        self.decisions = Decisions(config.decisions.keep)
        for subscriber in (self.ends, self._metrics, MoveLog(), self.decisions):
            self.hub.subscribe(subscriber.hears)
        self.hub.subscribe({LegFailed: self._leg_failed})
        self.journal = JournalFile(config.journal.file, config.journal.bytes_max) if config.journal else None
        core = self._core(config, secrets.randbits(63) if seed is None else seed)
        self._adopt(config, core.settings)
        self.house = House(core, clock, self.hub.tell)
        self.tokens = Tokens(self.pool, core.table, self.hub.tell, self.findings, clock)
        self.tokens.apply(config.models)
        self.kv_events = KvListener(config, core.table, self.house.update, self.findings, clock, time.time)
        self.inflate = Inflater(_inflated_max(config))
        note = access.note if access is not None else lambda _id, _exchange: None
        service = self._service(config)
        self.memory = Memory(config, lambda: self.identities.store, self.findings, self.metrics.turns.stored)
        self.servers = Servers(config, network, self.sweep, clock, os.environ, self.metrics.mcp_called)
        self.site = Site(service, config, self.memory, self.servers, self.metrics.turns, time.time)
        self.front = Front(service, note)
        self._open_to(config)
        self.discovery = Discovery(
            config, self.models, core.table, self.pool, self.house.update, self.findings
        )
        self._scraper = Scraper(
            self.pool,
            core.table,
            self.house.update,
            self.discovery.doubt,
            self.findings,
            Random(seed),
            config.scrape.period_s,
            config.scrape.timeout_s,
        )
        self._accountant = Accountant(
            self.identities.store,
            core.limiter.charged,
            self.house.update,
            self.findings,
            clock,
            period_s=config.accounts.period_s,
        )
        self.watch = Watch(core, self.findings, clock)
        self.hub.subscribe(self.watch.hears)
        self._quarantined = 0
        self._network = network
        self._clock = clock
        self._flush = flush
        self._listener: Listener | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def metrics(self) -> Metrics:
        """The numbers, up to now; on the loop, and from any thread once they are had."""
        self.ends.tell()
        return self._metrics

    def _numbers(self, config: Config, clock: Callable[[], float]) -> Metrics:
        return Metrics(
            maitred.__version__,
            _slos(config),
            self._queued,
            self._in_flight,
            self._readings(),
            self.findings.counts,
            clock,
            lambda: budgets(self.house.gateway),
            self._kv_events,
        )

    async def start(self) -> tuple[str, int]:
        """Listen, and begin to look for the engines; the address listened at. Raises OSError, SchemaError."""
        await self.identities.start()
        await self._accountant.start()
        if self.config.responses.enabled:
            await self.memory.start()
        data = self.config.listen.data
        self._listener = await self._network.listen(self._connection, data.host, data.port)
        self.sweep.start()
        loops = {
            "discovery": self.discovery.run,
            "scraping": self._scraper.run,
            "KV events": self.kv_events.run,
            "the accounts": self._accountant.run,
            "watching": self.watch.run,
            "comparing token ids": self.tokens.run,
            "the leases": self.site.keep_leases,
            "the background": Background(self.site).run,
            "the beat": lambda: beat(self._clock, self._work, self._late),
        }
        self._tasks = [asyncio.create_task(kept(name, loop)) for name, loop in loops.items()]
        return self._listener.address

    def apply(self, config: Config) -> list[str]:
        """Have this configuration in force from now on, without dropping anybody. Raises ConfigError.

        What takes effect only after a restart is returned, by its paths; clients' limits hold for connections
        that come from now on.
        """
        in_use = self.identities.store is not None or self.memory.opened is not None
        self.identities.apply(config)  # may find that it cannot be used, and then nothing is changed
        self.servers.apply(config)
        if not in_use:
            store = structs.replace(self._at_start.store, url=config.store.url)
            self._at_start = structs.replace(self._at_start, store=store)
        needs_restart = restart_needed(self._at_start, config)
        self.discovery.apply(config)  # first, or a model that goes would be served by default limits
        before = self.house.gateway.settings
        settings = config.core_settings()
        settings = structs.replace(settings, version=before.version + 1, accepting=before.accepting)
        self.house.update(Reset(settings))
        self.pool.patience, self.pool.connect_s = _patience(config), config.upstream.connect_s
        self.inflate.bytes_max = _inflated_max(config)
        self.tokens.apply(config.models)
        self._scraper.period_s, self._scraper.timeout_s = config.scrape.period_s, config.scrape.timeout_s
        self.kv_events.apply(config)
        self._accountant.period_s, self._accountant.book = config.accounts.period_s, self.identities.store
        self.metrics.slos = _slos(config)
        self.decisions.keep = config.decisions.keep
        self._adopt(config, settings)
        self.front.service = self.site.service = self._service(config)
        self.site.apply(config)
        self._open_to(config)
        self.config = config
        return needs_restart

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
        settings = structs.replace(self.house.gateway.settings, accepting=False)
        self.house.update(Reset(settings))
        if self.journeys:
            running = set(self.journeys.values())
            log.info("draining: %d requests are still running", len(running))
            await asyncio.wait(running, timeout=drain.limit_s)
        cut = self.house.cut_all(Outcome.DRAINING, SHUTTING_DOWN)
        if cut:
            log.warning("drain limit of %g s reached: %d answers were cut", drain.limit_s, cut)
            await asyncio.wait(self.journeys.values(), timeout=LAST_WORDS_S)
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
            await asyncio.wait(self.journeys.values(), timeout=LAST_WORDS_S)
        # One that has not begun is left to begin: cancelled, it would end without a word.
        begun = set(filter(_has_begun, self.journeys.values()))
        for task in (*self._tasks, *begun):
            task.cancel()
        await asyncio.gather(*self._tasks, *begun, return_exceptions=True)
        for connection in list(self.front.connections.values()):
            connection.transport.close()
        await self._accountant.work()
        await self.memory.close()
        await self.identities.stop()
        self.pool.close()
        await self.servers.close()
        self.inflate.close()
        self.tokens.close()
        self.sweep.stop()
        self._work()
        if self.journal is not None:
            self.journal.close()

    # -- parts ------------------------------------------------------------------------------------

    def _service(self, config: Config) -> Service:
        dispatch = Single(self.pool, Hold(config.upstream.hold_bytes, config.upstream.hold_s)).answer
        rules = Rules(config.trust.fields, config.media.domains)
        identify = self.identities.identify
        return Service(
            self.house,
            self.models,
            dispatch,
            self.inflate,
            rules,
            identify,
            self.journeys,
            frozenset(config.tenants),
            self.tokens.sources,
            self.kv_events.block_tokens,
            config.decisions.sample,
        )

    def _open_to(self, config: Config) -> None:
        """Which pages may ask, whether there is anything that is remembered, and how large it may all be."""
        self.front.cors = frozenset(config.http.cors)
        self.front.stateful = Paths(self.site) if config.responses.enabled else None
        self._limits = _limits(config)
        self.front.heads = {}  # whoever comes now knows none that other limits had let in

    def _connection(self) -> ServerConnection:
        return ServerConnection(self.front, self.sweep, self.burst, self._limits)

    def _leg_failed(self, event: LegFailed) -> None:
        """Where the fault may be the engine's, it is asked how it is."""
        if event.failure.kind.blames:
            self.discovery.doubt(event.leg.endpoint.url)

    def _core(self, config: Config, seed: int) -> Gateway:
        settings, abilities = config.core_settings(), Abilities()
        if self.journal is None:
            return Gateway(settings, abilities, Random(seed), self.hub.tell)
        return RecordingGateway(settings, abilities, seed, self.hub.tell, self.journal.write)

    def _adopt(self, config: Config, settings: Settings) -> None:
        self.metrics.label(settings.tenants, (band.name for band in settings.bands))
        tenants = (settings.tenant, *settings.tenants.values())
        left_out = unpriced(config.models)
        if left_out and any(bounds_money(tenant.limits) for tenant in tenants):
            log.warning("a tenant's budget in money %s", left_out)

    def _late(self, late_s: float) -> None:
        self.metrics.loop_lag(late_s)
        self.watch.late(late_s)

    def _wrong(self) -> Iterator[tuple[str, str, str, str]]:
        """What is wrong with what the gateway is asked."""
        held = list(self.house.gateway.quarantine.held(self._clock()))
        self._quarantined = len(held)
        for mark, suspect in held:
            what = f"engines died with this request in flight, at {' and '.join(suspect.endpoints)}"
            yield "query_of_death", f"{suspect.pool} request {mark:016x}", what, "see what the engines logged"

    def _work(self) -> None:
        self.findings.review(OURS, self._wrong())
        self.ends.tell()
        if self.access is not None:
            self.access.flush()
        self._flush()
        if self.journal is not None:
            self.journal.flush()

    def _kv_events(self) -> list[KvFigures]:
        return self.kv_events.figures()

    def _queued(self) -> dict[str, int]:
        return self.house.gateway.waiting_by_pool()

    def _in_flight(self) -> dict[str, int]:
        table = list(self.house.gateway.table.by_pool.items())
        return {pool: sum(endpoint.running for endpoint in endpoints) for pool, endpoints in table}

    def _readings(self) -> dict[str, Callable[[], float]]:
        readings: dict[str, Callable[[], float]] = {
            "key_table_age_seconds": lambda: self.identities.keys.age_s,
            "background_waiting": lambda: self._metrics.turns.waiting,
            "background_making": lambda: self._metrics.turns.making,
            "quarantined": lambda: self._quarantined,
            "config_version": lambda: self.house.gateway.settings.version,
            "client_connections": lambda: len(self.front.connections),
            "upstream_connections": lambda: self.pool.open,
            "kv_events_foreign_total": lambda: self.kv_events.foreign,
        }
        if (access := self.access) is not None:
            readings["access_log_dropped_total"] = lambda: access.dropped
        return readings


def _has_begun(task: asyncio.Task[None]) -> bool:
    going = task.get_coro()
    return not iscoroutine(going) or getcoroutinestate(going) != CORO_CREATED


def _inflated_max(config: Config) -> int:
    return min(config.http.inflated_bytes_max, config.http.body_bytes_max)


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
