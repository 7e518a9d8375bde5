"""A trace in the simulator."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from maitred.config.tree import Config
from maitred.control.models import Models, Route
from maitred.core.chooser import PREFIXED
from maitred.core.outcome import FailureKind
from maitred.core.words import Change, Endpoints, Failure, Held, KvEvents, Leg, Request, Reset
from maitred.door.read import read
from maitred.net.exchange import RequestHead
from maitred.sim.agenda import CHANGES
from maitred.sim.arrival import Arrival
from maitred.sim.fleet import ANSWER_TURNS, Fleet, Waits, Write
from maitred.sim.heard import Heard
from maitred.sim.job import Told
from maitred.sim.node import Node
from maitred.sim.world import World
from tests.equivalence import verbs
from tests.equivalence.heard import PromptKeys, told
from tests.equivalence.trace import CHAT, MODEL, Act, Flaw, Trace, body
from tests.equivalence.verbs import Verb


class Arrivals:
    """The workload that a trace is: nothing comes because of anything."""

    def __init__(self, arrivals: Iterable[Arrival]) -> None:
        self._arrivals = arrivals

    def begin(self, at: float) -> Iterable[Arrival]:
        return self._arrivals

    def over(self, arrival: Arrival, at: float) -> Iterable[Arrival]:
        return ()


class FlawedFleet(Fleet):
    """A fleet whose engines also have flaws: what a simulator's user cannot have, and a twin's can.

    Requests are those that the door reads, so that a prompt is known by the same keys in both shells.
    """

    def __init__(self, trace: Trace, nodes: list[Node], waits: Waits, journal: Write) -> None:
        settings, workload = trace.config.core_settings(), Arrivals(trace.arrivals)
        super().__init__(settings, nodes, workload, trace.seed, waits, journal)
        keyed = settings.pools[MODEL].routing in PREFIXED
        self._models = Models([Route(MODEL, MODEL, keyed=keyed)])
        self._precise = trace.precise
        self._sized = False
        if trace.precise:
            self._keys = PromptKeys()
        self._flaws = trace.flaws
        self._broken: list[Leg] = []

    def _request(self, arrival: Arrival) -> Request:
        written = body(arrival)
        head = RequestHead("POST", CHAT, {}, http11=True, length=len(written))
        request = read(head, written, f"sim-{arrival.number}", self._models).request
        return told(request, written, sized=self._sized) if self._precise else request

    def change(self, change: Change) -> None:
        """The size of blocks is known from the first on."""
        self._sized = self._sized or (isinstance(change, KvEvents) and bool(change.stored))
        super().change(change)

    def _submit(self, node: Node, leg: Leg) -> None:
        flaw = self._flaw(leg)
        if flaw is not None and flaw.status and not node.hung:
            failure = Failure(FailureKind.STATUS_5XX, flaw.status)
            self.agenda.soon(ANSWER_TURNS, self._fails, (leg, failure))
        else:
            super()._submit(node, leg)

    def hear(self, node: Node) -> None:
        super().hear(node)
        broken, self._broken = self._broken, []
        for leg in broken:
            # The client of an answer sees what was sent of it, and in a turn of its own the break.
            stream = leg.ticket.request.stream
            failure = Failure(FailureKind.TRUNCATED if stream else FailureKind.RESET, final=stream)
            self.agenda.soon(2 if stream else 1, self._fails, (leg, failure))

    def _tell(self, node: Node, told: Told) -> None:
        super()._tell(node, told)
        leg = told.job.leg
        flaw = self._flaw(leg) if leg is not None else None
        if leg is not None and flaw is not None and told.tokens == flaw.tokens:
            self._broken.append(leg)

    def _flaw(self, leg: Leg) -> Flaw | None:
        url, at = leg.endpoint.url, leg.sent_at
        return next((it for it in self._flaws if it.url == url and it.at <= at < it.until), None)


def simulate(trace: Trace) -> list[Verb]:
    """Its verbs."""
    config, journal = trace.config, list[bytes]()
    nodes = [_node(trace, url) for url in _urls(config)]
    upstream = config.upstream
    waits = Waits(upstream.connect_s, upstream.first_byte_s, upstream.idle_s)
    fleet = FlawedFleet(trace, nodes, waits, journal.append)
    World(fleet, config.scrape.period_s, config.simulate.faults, config.health).begin()
    for act in trace.acts:
        fleet.agenda.at(act.at, CHANGES, lambda act: _act(fleet, trace, act), act)
    fleet.begin()
    while fleet.step():
        pass
    return verbs.read(journal)


def _act(fleet: Fleet, trace: Trace, act: Act) -> None:
    if act.config is None:
        fleet.change(Held(f"{MODEL}/{act.url.partition('://')[2]}", act.held))
        return
    settings, version = act.config.core_settings(), fleet.gateway.settings.version
    for node in [_node(trace, url) for url in _urls(act.config)]:
        fleet.nodes.setdefault(node.name, node)
    fleet.change(Endpoints({MODEL: _urls(act.config)}))
    fleet.change(Reset(structs.replace(settings, version=version + 1)))


def _node(trace: Trace, url: str) -> Node:
    return Node(MODEL, url, trace.profile, Heard() if trace.precise else None)


def _urls(config: Config) -> tuple[str, ...]:
    urls = config.models[0].endpoints
    assert isinstance(urls, tuple)
    return urls
