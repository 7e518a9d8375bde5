"""Everything around the requests: probes, scrapes, and what is planned to go wrong.

Probes and scrapes come as the gateway's own loops make them (`control/discovery.py`, `control/scrape.py`),
but who is well answers at once: what they cost an engine, and the jitter between them, is left out.
"""

from __future__ import annotations

from maitred.config.simulate import Fault
from maitred.config.tree import Health
from maitred.control.discovery import BACKOFF_S_MAX, REFRESH_S, SILENT_S, UNREACHED_MAX, UNSURE
from maitred.control.discovery import PERIOD_S as LOOK_S
from maitred.core.endpoints import READY
from maitred.core.events import LegFailed
from maitred.core.words import Endpoints, EndpointState, Observed, Probed
from maitred.sim.agenda import CHANGES
from maitred.sim.fleet import CONNECT_TURNS, WAKE_TURNS, Fleet
from maitred.sim.node import INFINITY, Node

PROBE_TURNS = 12
"""Turns of the gateway's loop that a probe takes: it asks for the models, and then several things at once."""
SCRAPED = (READY, EndpointState.EJECTED)
NEVER = -INFINITY


class World:
    """What changes around a fleet: call `begin` before its first step."""

    def __init__(
        self, fleet: Fleet, scrape_s: float, faults: tuple[Fault, ...] = (), health: Health | None = None
    ) -> None:
        self._fleet = fleet
        self._scrape_s = scrape_s
        self._health = health or Health()
        self._faults = faults
        self._listed = {node.name: node for node in fleet.nodes.values()}
        for fault in faults:
            if fault.fault == "add":  # it is not there yet
                for node in self._at(fault.endpoint):
                    node.up = False
                    del self._listed[node.name]
        self._asked_at: dict[str, float] = {}
        self._doubted: dict[str, None] = {}
        self._asking: dict[str, None] = {}
        self._unreached: dict[str, int] = {}  # how many probes in a row
        fleet.hub.subscribe({LegFailed: self._doubt})

    def begin(self) -> None:
        """List the endpoints, have them ready, and plan the rest."""
        self._publish()
        for node in self._listed.values():
            self._ask(node, generate=True)
        agenda = self._fleet.agenda
        for fault in self._faults:
            agenda.at(fault.at_s, CHANGES, self._strike, fault)
        agenda.at(LOOK_S, CHANGES, self._look)
        for node in self._listed.values():
            agenda.at(self._scrape_s, CHANGES, self._scrape, node)

    # -- probes and scrapes -----------------------------------------------------------------------

    def _publish(self) -> None:
        pools: dict[str, tuple[str, ...]] = {}
        for node in self._listed.values():
            pools[node.pool] = (*pools.get(node.pool, ()), node.url)
        self._fleet.change(Endpoints(pools))

    def _look(self, _: object) -> None:
        """Each second: ask again those that are not known to be well, and now and then the others."""
        now, table = self._fleet.now, self._fleet.gateway.table
        for node in self._listed.values():
            self._fleet.renew(node)
        due = {name: True for name in self._doubted if name not in self._asking}
        for name in due:
            del self._doubted[name]
        for name, endpoint in table.by_name.items():
            past_s = now - self._asked_at.get(name, NEVER)
            if endpoint.state in UNSURE:
                wait_s = min(BACKOFF_S_MAX, LOOK_S * 2 ** max(0, endpoint.ejections - 1))
                if past_s >= wait_s - LOOK_S / 2:
                    due[name] = True
            elif endpoint.state is READY and past_s >= REFRESH_S - LOOK_S / 2:
                due[name] = due.get(name, False) or self._owes(self._fleet.nodes[name])
        for name, generate in due.items():
            self._ask(self._fleet.nodes[name], generate=generate)
        if self._fleet.expected:
            self._fleet.agenda.at(now + LOOK_S, CHANGES, self._look)

    def _doubt(self, event: LegFailed) -> None:
        """A leg failed there: asked at once, unless it was just asked."""
        name, now = event.leg.endpoint.name, self._fleet.now
        if not event.failure.kind.blames:
            return
        if name in self._asking or now - self._asked_at.get(name, NEVER) < LOOK_S:
            self._doubted[name] = None
        else:
            self._ask(self._fleet.nodes[name], generate=True)

    def _ask(self, node: Node, *, generate: bool) -> None:
        """Probe one, for a token too where one is wanted; what comes of it is told a little later."""
        if node.name in self._asking:
            return
        agenda, now = self._fleet.agenda, self._fleet.now
        self._asking[node.name] = None
        self._asked_at[node.name] = now
        if not node.up:
            agenda.soon(WAKE_TURNS + CONNECT_TURNS, self._refuses, node)
        elif node.cut:
            agenda.at(now + self._fleet.waits.connect_s, CHANGES, self._out_of_reach, node)
        elif node.hung and generate and self._health.generate:
            agenda.at(now + self._health.probe_timeout_s, CHANGES, self._makes_no_token, node)
        else:
            agenda.soon(PROBE_TURNS, self._answers, node)

    def _answers(self, node: Node) -> None:
        del self._asking[node.name]
        self._unreached.pop(node.name, None)
        if node.name in self._fleet.gateway.table.by_name:
            self._fleet.change(Probed(node.name, ok=True, facts=node.facts()))
            self._fleet.listen(node)

    def _refuses(self, node: Node) -> None:
        self._unreached.pop(node.name, None)
        self._miss(node.name, "does not answer (connection refused)", refused=True)

    def _out_of_reach(self, node: Node) -> None:
        """There was no connection; one lost packet is no proof, so it is asked again."""
        unreached = self._unreached[node.name] = self._unreached.get(node.name, 0) + 1
        if unreached < UNREACHED_MAX:
            self._doubted[node.name] = None
        self._miss(node.name, "does not answer (no connection)", sure=unreached >= UNREACHED_MAX)

    def _makes_no_token(self, node: Node) -> None:
        self._unreached.pop(node.name, None)
        self._miss(node.name, "does not answer (no token)", sure=self._owes(node))

    def _owes(self, node: Node) -> bool:
        """Whether it has been silent about its work for too long."""
        sent_at = [job.leg.sent_at for job in node.jobs.values() if job.leg is not None]
        return node.hung and self._fleet.now - max(node.hung_at, min(sent_at, default=INFINITY)) >= SILENT_S

    def _miss(self, name: str, why: str, *, sure: bool = True, refused: bool = False) -> None:
        """It cannot be given work. Unless nobody is there, that has to be sure, and not of the last one."""
        del self._asking[name]
        table = self._fleet.gateway.table
        endpoint = table.by_name.get(name)
        if endpoint is None:
            return
        if endpoint.state is READY and not refused:
            others = (other for other in table.by_pool[endpoint.pool] if other is not endpoint)
            if not (sure and any(other.state is READY for other in others)):
                return
        if endpoint.state is READY or endpoint.why != why:
            self._fleet.change(Probed(name, ok=False, why=why, refused=refused))

    def _scrape(self, node: Node) -> None:
        endpoint = self._fleet.gateway.table.by_name.get(node.name)
        known = endpoint is not None and endpoint.state in SCRAPED
        if known and node.telling and not node.mute:
            self._fleet.change(Observed(node.name, node.load()))
        if self._fleet.expected:
            self._fleet.agenda.at(self._fleet.now + self._scrape_s, CHANGES, self._scrape, node)

    # -- what goes wrong --------------------------------------------------------------------------

    def _at(self, url: str) -> list[Node]:
        return [node for node in self._fleet.nodes.values() if node.url == url]

    def _strike(self, fault: Fault) -> None:
        """A planned fault begins; unless it heals by itself, `_heal` ends it."""
        for node in self._at(fault.endpoint):
            match fault.fault:
                case "crash":
                    self._fleet.crash(node)
                case "hang":
                    self._fleet.silence(node)
                    node.hung_at = self._fleet.now
                case "cut":
                    self._fleet.silence(node)
                    node.cut = True
                case "mute":
                    node.mute = True
                case "slow":
                    self._fleet.slow(node, float(fault.factor))
                case "add":
                    self._listed[node.name] = node
                    node.started_at = self._fleet.now
                    self._fleet.agenda.at(self._fleet.now + self._scrape_s, CHANGES, self._scrape, node)
                case _:
                    self._listed.pop(node.name, None)
            if fault.fault in {"add", "remove"}:
                self._publish()
            heals_s = node.profile.start_s if fault.fault in {"crash", "add"} else fault.for_s
            if heals_s is not None:
                self._fleet.agenda.at(self._fleet.now + heals_s, CHANGES, self._heal, (node, fault))

    def _heal(self, what: tuple[Node, Fault]) -> None:
        node, fault = what
        match fault.fault:
            case "crash" | "add":
                # unless it has died once more since
                node.up = self._fleet.now >= node.started_at + node.profile.start_s
            case "hang":  # nothing brings a hung engine back but a restart
                self._fleet.crash(node)
                start_s = node.profile.start_s
                crash = Fault(at_s=0.0, endpoint=node.url, fault="crash")
                self._fleet.agenda.at(self._fleet.now + start_s, CHANGES, self._heal, (node, crash))
            case "cut":
                node.cut = False
                self._fleet.follow(node)
            case "mute":
                node.mute = False
            case "slow":
                self._fleet.slow(node, 1.0)
            case _:
                self._listed[node.name] = node
                self._publish()
