"""Finding out which engines are there, what they serve, and whether they can be given work.

Addresses come from the configuration, a watched file or DNS (`sources.py`), with the model they must serve;
or from the configuration alone, and then every model that an engine names becomes a pool of those that name
it. Who is not known to be well is asked each second (`probe.py`), one that keeps falling less often. Who is
well is only looked at now and then, for adapters that came and went; and asked for a token when it owes
answers and says nothing.

Work is taken from a ready endpoint at once when it refuses connections. Everything else may be a busy engine
or a fault of ours, so it needs to be seen twice or for long, and never costs a pool its last endpoint.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable

from maitred.config.flow import ModelLimits
from maitred.config.tree import Config, Model
from maitred.control.isolation import salters
from maitred.control.models import UNBOUNDED, Models, Route, TokenLimits, longest_context
from maitred.control.probe import NotReady, Patience, probe
from maitred.control.review import KINDS, review
from maitred.control.sources import Resolve, Sources, resolve
from maitred.core.chooser import PREFIXED
from maitred.core.endpoints import EndpointTable
from maitred.core.outcome import FailureKind
from maitred.core.words import Change, Endpoint, Endpoints, EndpointState, Facts, Probed
from maitred.engines.dialect import ModelCard
from maitred.net.pool import Pool
from maitred.observe.findings import Findings

PERIOD_S = 1.0
REFRESH_S = 10.0
"""How often one that is well is looked at."""
BACKOFF_S_MAX = 30.0
SILENT_S = 120.0
"""An endpoint that owes answers and has said nothing for so long is asked for a token.

Less may be one long plain answer of an engine that makes one at a time.
"""
UNREACHED_MAX = 2
"""One that nobody can reach is believed to be away at this probe in a row."""

READY = EndpointState.READY
UNSURE = (EndpointState.PROBING, EndpointState.EJECTED)
OURS = (FailureKind.UNRESOLVED, FailureKind.LOCAL_LIMIT)
"""What keeps us from asking, and says nothing of the engine."""


class Discovery:
    """Keeps the model names and the core's endpoints in step with what engines answer.

    `resolve` and `sleep` are for addresses from DNS and for pacing.
    """

    def __init__(
        self,
        config: Config,
        models: Models,
        table: EndpointTable,
        pool: Pool,
        update: Callable[[Change], None],
        findings: Findings,
        resolve: Resolve = resolve,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._models = models
        self._table = table
        self._pool = pool
        self._update = update
        self._findings = findings
        self._sleep = sleep
        self._clock = asyncio.get_running_loop().time
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._asked_at: dict[str, float] = {}
        self._doubted: dict[str, None] = {}  # to be asked at the next look
        self._unreached: dict[str, int] = {}  # how many probes in a row
        self._complaints: dict[tuple[str, str], None] = {}  # so at the last try
        self._told: list[tuple[str, bool, int | None, tuple[str, ...]]] = []
        self._applying = False
        self._secret = secrets.token_bytes()
        self._served: dict[str, Model] = {}
        self._addresses: dict[str, tuple[str, ...]] = {}
        self._learned: dict[str, tuple[str, ...]] = {}
        self.sources = Sources(self._moved, findings, resolve, sleep)
        self.apply(config)

    # -- what should be there ---------------------------------------------------------------------

    def apply(self, config: Config) -> None:
        """From now on go by this configuration; what it does not change goes on undisturbed.

        Raises ConfigError where a secret has gone, and then nothing is changed.
        """
        self._salters = salters(config.models, self._secret)
        before = self._served
        self._config = config
        self._served = {model.name: model for model in config.models}
        self._learned = {url: self._learned.get(url, ()) for url in config.endpoints}
        for name in [name for name in self._addresses if name not in self._served]:
            self.sources.forget(name)
            del self._addresses[name]
        self._applying = True
        try:
            for name, model in self._served.items():
                self._addresses.setdefault(name, ())
                self.sources.follow(name, model.endpoints)
        finally:
            self._applying = False
        self._publish()
        for name, model in self._served.items():
            if name in before and model.served_as != before[name].served_as:
                for url in self._addresses[name]:
                    self.doubt(url)

    def _moved(self, name: str, urls: tuple[str, ...]) -> None:
        """A source says where this model's engines are."""
        self._addresses[name] = urls
        if not self._applying:
            self._publish()

    def _publish(self) -> None:
        pools = dict(self._addresses)
        learned: dict[str, list[str]] = {}
        for url, names in self._learned.items():
            for name in names:
                learned.setdefault(name, []).append(url)
        pools.update({name: tuple(urls) for name, urls in learned.items()})
        self._update(Endpoints(pools))
        self._serve()

    def _serve(self) -> None:
        """Serve the names of the configuration, those learned, and the adapters that engines have loaded."""
        limits = {pool: self._limits(pool) for pool in (*self._served, *self._table.by_pool)}
        blind = {name for name, model in self._served.items() if model.policy not in PREFIXED}
        native = {name for name, model in self._served.items() if model.responses == "native"}
        routes = [
            Route(
                name,
                model.name,
                model.served_as if model.served_as != name else None,
                limits=limits[model.name],
                keyed=model.name not in blind,
                salter=self._salters.get(model.name),
                native=model.name in native,
            )
            for model in self._served.values()
            for name in (model.name, *model.aliases)
        ]
        routes += [
            Route(name, name, limits=limits.get(name, UNBOUNDED))
            for names in self._learned.values()
            for name in names
        ]
        routes += [
            Route(
                adapter,
                endpoint.pool,
                adapter=adapter,
                limits=limits[endpoint.pool],
                keyed=endpoint.pool not in blind,
                salter=self._salters.get(endpoint.pool),
                native=endpoint.pool in native,
            )
            for endpoint in self._table.by_name.values()
            for adapter in endpoint.facts.adapters
        ]
        self._models.serve(routes)

    def _limits(self, pool: str) -> TokenLimits:
        """How long requests to a pool may be: as the engines say and the configuration allows."""
        told = longest_context(self._table.by_pool.get(pool, ()))
        limits = self._served[pool].limits if pool in self._served else ModelLimits()
        contexts = [tokens for tokens in (told, limits.context) if tokens]
        return TokenLimits(min(contexts, default=0), limits.output or 0, limits.output_default or 0)

    def _follow_facts(self) -> None:
        """Serve anew when engines have loaded or dropped adapters, take other lengths, or come and go."""
        told = [
            (endpoint.pool, endpoint.state is READY, endpoint.facts.context_tokens, endpoint.facts.adapters)
            for endpoint in self._table.by_name.values()
        ]
        if told != self._told:
            self._told = told
            self._serve()

    # -- asking -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Ask whom there is reason to ask; until cancelled."""
        sources = asyncio.create_task(self.sources.run())
        try:
            while True:
                for url, generate in self._due():
                    self._ask_soon(url, generate=generate)
                self._forget_gone()
                self._follow_facts()
                self._findings.review(KINDS, review(self._table, self._served))
                await self._sleep(PERIOD_S)
        finally:
            for task in (sources, *self._asking.values()):
                task.cancel()

    def doubt(self, url: str) -> None:
        """Something broke there: ask at once, unless it was just asked; and its source for addresses."""
        if url in self._asking or self._clock() - self._asked_at.get(url, -PERIOD_S) < PERIOD_S:
            self._doubted[url] = None
        else:
            self._ask_soon(url, generate=self._config.health.generate)
        for endpoint in self._at(url):
            self.sources.renew(endpoint.pool)

    def _ask_soon(self, url: str, *, generate: bool) -> None:
        if url not in self._asking:
            self._asked_at[url] = self._clock()
            self._asking[url] = asyncio.create_task(self._ask(url, generate=generate))

    def _due(self) -> Iterable[tuple[str, bool]]:
        """Whom to ask now, and whether for a token, each address once."""
        now = self._clock()
        due = {url: True for url in self._doubted if url not in self._asking}
        for url in due:
            del self._doubted[url]
        for url, names in self._learned.items():
            if not names:
                due[url] = True
        for endpoint in self._table.by_name.values():
            url, past_s = endpoint.url, now - self._asked_at.get(endpoint.url, -REFRESH_S)
            if endpoint.state in UNSURE:
                wait_s = min(BACKOFF_S_MAX, PERIOD_S * 2 ** max(0, endpoint.ejections - 1))
                if past_s >= wait_s - PERIOD_S / 2:
                    due[url] = True
            elif endpoint.state is READY and past_s >= REFRESH_S - PERIOD_S / 2:
                due[url] = due.get(url, False) or self._owes(url)
        return [(url, generate and self._config.health.generate) for url, generate in due.items()]

    def _owes(self, url: str) -> bool:
        """Whether it has work and has been silent about all of it for too long."""
        return self._pool.silent_s(url, self._clock()) >= SILENT_S

    async def _ask(self, url: str, *, generate: bool) -> None:
        wanted = {self._wanted(endpoint) for endpoint in self._at(url)}
        try:
            patience = Patience(token_s=self._config.health.probe_timeout_s)
            answers = await probe(self._pool, url, wanted, generate, patience)
        except NotReady as not_ready:
            self._miss(url, not_ready)
        else:
            self._learn(url, answers, generate=generate)
        finally:
            del self._asking[url]

    def _miss(self, url: str, not_ready: NotReady) -> None:
        """Whoever is there cannot be given work now."""
        why = str(not_ready)
        self._complain("unreachable", url, why, "see what it says, or take it out")
        if not_ready.kind is FailureKind.UNREACHABLE:
            unreached = self._unreached[url] = self._unreached.get(url, 0) + 1
            if unreached < UNREACHED_MAX:
                self._doubted[url] = None
        else:
            self._unreached.pop(url, None)
        for endpoint in self._at(url):
            if self._believes(endpoint, not_ready):
                self._tell(endpoint, why, refused=not_ready.refused)

    def _believes(self, endpoint: Endpoint, not_ready: NotReady) -> bool:
        """Whether this is reason to take work away."""
        if endpoint.state is not READY or not_ready.refused:
            return True
        if not_ready.kind in OURS:
            return False
        if not_ready.kind is FailureKind.UNREACHABLE:
            sure = self._unreached[endpoint.url] >= UNREACHED_MAX
        else:
            sure = self._owes(endpoint.url)
        others = self._table.by_pool.get(endpoint.pool, ())
        return sure and any(other.state is READY and other is not endpoint for other in others)

    def _learn(self, url: str, answers: list[tuple[ModelCard, Facts]], *, generate: bool) -> None:
        """Somebody answers there; only one who has made a token is ready, if tokens are to be made."""
        self._forgive("unreachable", url)
        self._unreached.pop(url, None)
        by_id = {card.id: (card, facts) for card, facts in answers}
        if url in self._learned and tuple(by_id) != self._learned[url]:
            self._learned[url] = tuple(by_id)
            self._publish()
        for endpoint in self._at(url):
            wanted = self._wanted(endpoint)
            if wanted not in by_id:
                other = next(iter(by_id))
                why, do = f"serves {other!r}, not {wanted!r}", f"add served_as: {other}"
                self._complain("wrong_model", endpoint.name, why, do)
                self._tell(endpoint, f"{why}; {do}")
                continue
            card, facts = by_id[wanted]
            self._models.learn(endpoint.pool, card.raw)
            self._forgive("wrong_model", endpoint.name)
            if endpoint.state in UNSURE and self._config.health.generate and not generate:
                self._doubted[url] = None  # it was ready when it was asked
                continue
            self._update(Probed(endpoint.name, ok=True, facts=facts))
        self._follow_facts()

    def _wanted(self, endpoint: Endpoint) -> str:
        """The model that an engine must serve to be this endpoint."""
        model = self._served.get(endpoint.pool)
        return model.served_as if model is not None else endpoint.pool

    def _at(self, url: str) -> list[Endpoint]:
        return [endpoint for endpoint in self._table.by_name.values() if endpoint.url == url]

    # -- saying what is wrong ---------------------------------------------------------------------

    def _tell(self, endpoint: Endpoint, why: str, *, refused: bool = False) -> None:
        if endpoint.why != why or endpoint.state is READY:
            self._update(Probed(endpoint.name, ok=False, why=why, refused=refused))

    def _complain(self, kind: str, where: str, what: str, do: str) -> None:
        """Make it a finding from the second try in a row on, whatever it was at the first.

        Engines that start together with the gateway are not worth a warning.
        """
        if (kind, where) in self._complaints:
            self._findings.tell(kind, where, what, do)
        self._complaints[kind, where] = None

    def _forgive(self, kind: str, where: str) -> None:
        self._complaints.pop((kind, where), None)
        self._findings.settle(kind, where)

    def _forget_gone(self) -> None:
        """Complain no longer of addresses and endpoints that have left."""
        urls = {*self._learned, *(endpoint.url for endpoint in self._table.by_name.values())}
        for kind, where in list(self._complaints):
            if where not in (urls if kind == "unreachable" else self._table.by_name):
                self._forgive(kind, where)
        for known in (self._asked_at, self._unreached, self._doubted):
            for url in [url for url in known if url not in urls]:
                del known[url]
