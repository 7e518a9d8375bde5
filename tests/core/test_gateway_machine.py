"""The core under random verbs in any order a shell may say them; the promises hold after every one.

Two pools, three addresses each. Legs and tickets long over are spoken of again, addresses come and go, caps
sink under what is seated. At the end everything is given back, and the journal replays to the same answers.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from maitred.core.events import Ended, Event
from maitred.core.journal import RecordingGateway, replay
from maitred.core.outcome import FailureKind, Outcome, Refusal
from maitred.core.words import (
    Abilities,
    Api,
    Drop,
    Effect,
    Endpoint,
    Endpoints,
    EndpointState,
    Facts,
    Failure,
    Go,
    HealthSettings,
    Held,
    Identity,
    Leg,
    LegPhase,
    Load,
    Observed,
    Phase,
    PoolSettings,
    Probed,
    Request,
    Reset,
    Settings,
    Stop,
    Ticket,
    Usage,
)

READY = EndpointState.READY
HOSTS = {"p": "abc", "q": "def"}
NAMES = [f"{pool}/{host}:1" for pool, hosts in HOSTS.items() for host in hosts]

POOLS = st.sampled_from(sorted(HOSTS))
PICKS = st.integers(0, 11)
PUMPS = st.sampled_from([True, True, True, False])
SUBSETS = st.fixed_dictionaries(
    {pool: st.lists(st.sampled_from(hosts), unique=True).map("".join) for pool, hosts in HOSTS.items()}
)
LIMITS = st.builds(
    PoolSettings,
    cap=st.integers(1, 3),
    queue_requests_max=st.sampled_from([0, 1, 2, 12]),
    queue_bytes_max=st.sampled_from([0, 10, 1000]),
    queue_wait_s=st.sampled_from([0.0, 1.0, 5.0, 30.0]),
)
SETTINGS = st.builds(
    Settings,
    pools=st.fixed_dictionaries({}, optional={"p": LIMITS}),
    default=LIMITS,
    attempts_max=st.integers(1, 4),
    accepting=st.sampled_from([True, True, True, False]),
    health=st.builds(
        HealthSettings, failures_max=st.integers(1, 3), slow_start_s=st.sampled_from([0.0, 1.0, 10.0])
    ),
)


class Shell(RuleBasedStateMachine):
    """A shell that may say anything, with a plain model of who should be where."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.events: list[Event] = []
        self.lines: list[bytes] = []
        self.tickets: list[Ticket] = []
        self.legs: list[Leg] = []
        self.order: dict[str, list[Ticket]] = {pool: [] for pool in HOSTS}
        self.listed = dict(HOSTS)
        self.core = self.gateway(Settings(), retry=True)

    def gateway(self, chosen: Settings, *, retry: bool) -> RecordingGateway:
        self.lines.clear()
        abilities = Abilities(retry=retry)
        return RecordingGateway(chosen, abilities, 7, self.events.append, self.lines.append)

    @initialize(chosen=SETTINGS, retry=st.sampled_from([True, True, False]), ready=st.booleans())
    def opens(self, chosen: Settings, retry: bool, ready: bool) -> None:
        self.core = self.gateway(chosen, retry=retry)
        self.core.update(endpoints(HOSTS), self.now)
        for name in NAMES if ready else []:
            self.core.update(Probed(name, ok=True), self.now)

    # -- the verbs --------------------------------------------------------------------------------

    @rule(
        pool=POOLS,
        body_bytes=st.sampled_from([0, 4, 11]),
        adapter=st.sampled_from(["", "", "", "a"]),
        mark=st.integers(0, 3),
        pump=PUMPS,
    )
    def accept(self, pool: str, body_bytes: int, adapter: str, mark: int, pump: bool) -> None:
        number = f"r{len(self.tickets)}"
        request = Request(number, Api.CHAT, pool, pool, True, body_bytes, adapter=adapter, fingerprint=mark)
        expected = self.refusal_of(request)
        if expected is None:
            ticket = self.core.accept(request, Identity(), self.now)
            self.tickets.append(ticket)
            self.order[pool].append(ticket)
        else:
            with pytest.raises(Refusal) as caught:
                self.core.accept(request, Identity(), self.now)
            assert caught.value.outcome is expected
            assert expected is Outcome.QUARANTINED or (caught.value.retry_after_s or 0.0) >= 1.0
        self.spoken(pump)

    @precondition(lambda self: self.legs)
    @rule(pick=PICKS, where=st.sampled_from([None, None, *NAMES, "p/nobody:1"]), pump=PUMPS)
    def sent(self, pick: int, where: str | None, pump: bool) -> None:
        self.core.sent(self.leg(pick), self.now, where)
        self.spoken(pump)

    @precondition(lambda self: self.legs)
    @rule(pick=PICKS, pump=PUMPS)
    def answered(self, pick: int, pump: bool) -> None:
        self.core.answered(self.leg(pick), self.now)
        self.spoken(pump)

    @precondition(lambda self: self.legs)
    @rule(pick=PICKS, pump=PUMPS)
    def progress(self, pick: int, pump: bool) -> None:
        self.core.progress(self.leg(pick), 16, self.now)
        self.spoken(pump)

    @precondition(lambda self: self.legs)
    @rule(pick=PICKS, usage=st.sampled_from([None, Usage(1, 0, 2)]), pump=PUMPS)
    def leave(self, pick: int, usage: Usage | None, pump: bool) -> None:
        self.core.leave(self.leg(pick), usage, self.now)
        self.spoken(pump)

    @precondition(lambda self: self.legs)
    @rule(pick=PICKS, kind=st.sampled_from([FailureKind.RESET, *FailureKind]), pump=PUMPS)
    def fail(self, pick: int, kind: FailureKind, pump: bool) -> None:
        leg = self.leg(pick)
        may = leg.phase in (LegPhase.SEATED, LegPhase.SENT) and kind.repeatable and self.core.abilities.retry
        if self.core.fail(leg, Failure(kind, 500, 3.0), self.now):
            assert may
            assert leg.ticket.attempts < self.core.settings.attempts_max
            assert leg.endpoint.name in leg.ticket.excluded
            insort(self.order[leg.ticket.request.pool], leg.ticket, key=lambda t: t.arrival)
        self.spoken(pump)

    @precondition(lambda self: self.tickets)
    @rule(pick=PICKS, outcome=st.sampled_from([Outcome.COMPLETED, *Outcome]), pump=PUMPS)
    def finish(self, pick: int, outcome: Outcome, pump: bool) -> None:
        ticket = self.tickets[-1 - pick % len(self.tickets)]
        first = ticket.outcome or outcome
        assert self.core.finish(ticket, outcome, None, self.now) is first is ticket.outcome
        if ticket in (order := self.order[ticket.request.pool]):
            order.remove(ticket)
        self.spoken(pump)

    @rule(
        name=st.sampled_from([*NAMES, "p/nobody:1"]),
        ok=st.booleans(),
        model=st.sampled_from("mn"),
        adapters=st.sampled_from([(), ("a",)]),
        started_at=st.sampled_from([None, 1.0, 9.0]),
    )
    def probe(
        self, name: str, ok: bool, model: str, adapters: tuple[str, ...], started_at: float | None
    ) -> None:
        facts = Facts("vllm", model, adapters=adapters, started_at=started_at)
        self.core.update(Probed(name, ok, facts, "" if ok else "silent", refused=not ok), self.now)
        self.spoken(True)

    @rule(name=st.sampled_from([*NAMES, "p/nobody:1"]), held=st.booleans(), pump=PUMPS)
    def hold(self, name: str, held: bool, pump: bool) -> None:
        self.core.update(Held(name, held), self.now)
        self.spoken(pump)

    @rule(name=st.sampled_from([*NAMES, "p/nobody:1"]))
    def observe(self, name: str) -> None:
        self.core.update(Observed(name, Load(1, 2, 0.5)), self.now)

    @rule(hosts=SUBSETS, pump=PUMPS)
    def addresses(self, hosts: dict[str, str], pump: bool) -> None:
        self.core.update(endpoints(hosts), self.now)
        self.listed = hosts
        self.spoken(pump)

    @rule(chosen=SETTINGS, pump=PUMPS)
    def reload(self, chosen: Settings, pump: bool) -> None:
        self.core.update(Reset(chosen), self.now)
        self.spoken(pump)

    @rule(dt=st.sampled_from([0.0, 0.5, 1.0, 2.0, 7.0]))
    def time_passes(self, dt: float) -> None:
        """Let the shell's one timer ring whenever it is due."""
        until = self.now + dt
        self.spoken(True)
        while (due := self.core.next_wakeup()) is not None and due <= until:
            waiting, shares, resting = self.waiting(), self.shares(), self.resting()
            self.now = due
            self.spoken(True)  # a timer that rings for nothing would ring for ever
            assert self.waiting() < waiting or self.shares() > shares or self.resting() < resting
        self.now = until

    # -- the pump ---------------------------------------------------------------------------------

    def spoken(self, pump: bool) -> None:
        """A verb was said; a shell that is not in a hurry asks what to do now."""
        if pump:
            for effect in self.core.release(self.now):
                self.act(effect)
            self.look_at_the_heads()
            assert all(t.queue_deadline > self.now for order in self.order.values() for t in order)

    def act(self, effect: Effect) -> None:
        match effect:
            case Go(ticket=ticket, legs=legs):
                pool = ticket.request.pool
                [leg] = legs
                endpoint = leg.endpoint
                place = self.order[pool].index(ticket)
                for passed in self.order[pool][:place]:
                    assert endpoint.name in passed.excluded or passed.arrival == ticket.arrival
                del self.order[pool][place]
                assert endpoint.state is READY
                assert endpoint.pool == pool
                assert endpoint.name not in ticket.excluded
                assert endpoint.running <= self.cap(pool)
                assert (leg.phase, leg.ticket, leg.incarnation) == (
                    LegPhase.SEATED, ticket, endpoint.incarnation
                )  # fmt: skip
                self.legs.append(leg)
            case Stop(ticket=ticket, outcome=outcome, retry_after_s=retry_after_s):
                pool = ticket.request.pool
                self.order[pool].remove(ticket)
                late = ticket.queue_deadline <= self.now
                assert late or self.hopeless(ticket) or not self.listed[pool]
                in_time = Outcome.QUEUE_DEADLINE if late and self.ready(pool) else Outcome.NO_ENDPOINT
                assert outcome is in_time
                assert outcome is ticket.outcome
                assert (retry_after_s or 0.0) >= 1.0
            case Drop(leg=leg):
                assert leg.phase is LegPhase.OVER

    def look_at_the_heads(self) -> None:
        """Nobody waits who could be seated, and no retry that has nothing to hope for."""
        for ticket in (ticket for order in self.order.values() for ticket in order):
            assert not self.fits(ticket)
            assert not self.hopeless(ticket)

    def hopeless(self, ticket: Ticket) -> bool:
        """A retry with no ready endpoint left that it may have."""
        pool = ticket.request.pool
        hopes = [e for e in self.core.table.by_name.values() if e.pool == pool]
        if ticket.excluded:
            hopes = self.ready(pool)
        picky = bool(ticket.excluded or ticket.request.adapter)
        return picky and not any(self.may_have(ticket, e) for e in hopes)

    # -- promises ---------------------------------------------------------------------------------

    @invariant()
    def every_ticket_ends_at_most_once(self) -> None:
        told = Counter(event.ticket.request.id for event in self.events if isinstance(event, Ended))
        assert told == {ticket.request.id: 1 for ticket in self.tickets if ticket.phase is Phase.ENDED}
        assert all((t.outcome is not None) == (t.phase is Phase.ENDED) for t in self.tickets)

    @invariant()
    def the_ledger_counts_the_living(self) -> None:
        live = Counter(id(leg.endpoint) for leg in self.legs if leg.phase is not LegPhase.OVER)
        table = self.core.table.by_name.values()
        for endpoint in {id(e): e for e in (*table, *(leg.endpoint for leg in self.legs))}.values():
            assert endpoint.running == live[id(endpoint)]
            assert (endpoint.state is EndpointState.GONE) == (
                self.core.table.by_name.get(endpoint.name) is not endpoint
            )

    @invariant()
    def who_drains_still_serves_somebody(self) -> None:
        assert all(
            endpoint.running > 0
            for endpoint in self.core.table.by_name.values()
            if endpoint.state is EndpointState.DRAINING and not endpoint.held
        )

    @invariant()
    def who_waits_is_known(self) -> None:
        waiting = {pool: len(order) for pool, order in self.order.items()}
        assert Counter(self.core.waiting_by_pool()) == Counter(waiting)
        assert self.core.waiting == self.waiting()
        assert all(t.phase is Phase.QUEUED for order in self.order.values() for t in order)

    @invariant()
    def the_next_wakeup_is_the_first_deadline(self) -> None:
        deadlines = [t.queue_deadline for order in self.order.values() for t in order]
        wakeup = self.core.next_wakeup()
        if self.resting() and wakeup is not None:
            assert wakeup <= min(deadlines)
        elif any(endpoint.share < 1 for endpoint in self.core.table.by_name.values()) and deadlines:
            assert wakeup is not None
            assert wakeup <= min(deadlines)
        elif wakeup is not None and deadlines:
            assert wakeup <= min(deadlines)  # the last look at a slow start that is over
        else:
            assert wakeup == min(deadlines, default=None)

    def teardown(self) -> None:
        for ticket in self.tickets:
            self.core.finish(ticket, Outcome.CLIENT_GONE, None, self.now)
        self.order = {pool: [] for pool in HOSTS}
        self.core.release(self.now)
        assert all(endpoint.running == 0 for endpoint in self.core.table.by_name.values())
        assert all(leg.phase is LegPhase.OVER for leg in self.legs)
        assert self.core.release(self.now) == []
        self.every_ticket_ends_at_most_once()
        self.who_waits_is_known()
        self.the_next_wakeup_is_the_first_deadline()
        self.core.update(endpoints({}), self.now)
        assert (self.core.table.by_name, self.core.table.by_pool) == ({}, {})
        assert self.core.waiting_by_pool() == {}
        assert replay(self.lines) == len(self.lines) - 1

    # -- the model --------------------------------------------------------------------------------

    def leg(self, pick: int) -> Leg:
        return self.legs[-1 - pick % len(self.legs)]

    def waiting(self) -> int:
        return sum(map(len, self.order.values()))

    def limits(self, pool: str) -> PoolSettings:
        return self.core.settings.pools.get(pool, self.core.settings.default)

    def cap(self, pool: str) -> int:
        return self.limits(pool).cap

    def ready(self, pool: str) -> list[Endpoint]:
        return [e for e in self.core.table.by_name.values() if e.pool == pool and e.state is READY]

    def shares(self) -> float:
        return sum(endpoint.share for endpoint in self.core.table.by_name.values())

    def resting(self) -> int:
        return sum(endpoint.rests_until > self.now for endpoint in self.core.table.by_name.values())

    def may_have(self, ticket: Ticket, endpoint: Endpoint) -> bool:
        adapter = ticket.request.adapter
        return endpoint.name not in ticket.excluded and (not adapter or adapter in endpoint.facts.adapters)

    def has_room(self, endpoint: Endpoint) -> bool:
        cap = self.cap(endpoint.pool)
        return endpoint.rests_until <= self.now and endpoint.running < (
            cap if endpoint.share >= 1 else min(cap, max(1, int(cap * endpoint.share)))
        )

    def fits(self, ticket: Ticket) -> bool:
        ready = self.ready(ticket.request.pool)
        return any(self.has_room(e) and self.may_have(ticket, e) for e in ready)

    def refusal_of(self, request: Request) -> Outcome | None:
        """How the door should answer, as the design words it."""
        order, limits = self.order[request.pool], self.limits(request.pool)
        if not self.core.settings.accepting:
            return Outcome.DRAINING
        if request.fingerprint and self.core.quarantine.holds(request.fingerprint, self.now):
            return Outcome.QUARANTINED
        asked = [
            e for e in self.ready(request.pool) if not request.adapter or request.adapter in e.facts.adapters
        ]
        here = [e for e in self.core.table.by_name.values() if e.pool == request.pool]
        served = (pool := self.core._pools.get(request.pool)) is not None and pool.service_s is not None
        if not asked and not (served and any(e.state is EndpointState.PROBING and not e.why for e in here)):
            return Outcome.NO_ENDPOINT
        body_bytes = sum(t.request.body_bytes for t in order) + request.body_bytes
        full = len(order) >= limits.queue_requests_max or body_bytes > limits.queue_bytes_max
        has_room = any(self.has_room(e) for e in asked)
        lane = (f"+{request.adapter}",) if request.adapter else ()
        behind = any(ticket.lane == lane for ticket in order)
        return Outcome.QUEUE_FULL if full and (behind or not has_room) else None


def endpoints(hosts: dict[str, str]) -> Endpoints:
    return Endpoints({pool: tuple(f"http://{host}:1" for host in names) for pool, names in hosts.items()})


Shell.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestShell = Shell.TestCase
