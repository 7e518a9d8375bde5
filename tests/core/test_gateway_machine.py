"""The core under random verbs in any order a shell may say them; the promises hold after every one.

Two pools, three addresses each, two tenants, up to three bands. Legs and tickets long over are spoken of
again, addresses come and go, caps sink under what is seated, bands leave while somebody waits in them. At the
end everything is given back, and the journal replays to the same answers.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from maitred.core.events import Ended, Event
from maitred.core.fairness import FAIRNESS
from maitred.core.journal import RecordingGateway, replay
from maitred.core.outcome import FailureKind, Outcome, Refusal
from maitred.core.saturation import CAP_START, SATURATION, STALE_S, too_late
from maitred.core.words import (
    Abilities,
    Api,
    BandSettings,
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
    TenantSettings,
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
    cap=st.sampled_from([0, 1, 1, 2, 2, 3]),
    saturation=st.sampled_from(["auto", "auto", *sorted(SATURATION)]),
    ttft_s=st.sampled_from([None, None, 0.7]),
    queue_requests_max=st.sampled_from([0, 1, 2, 12]),
    queue_bytes_max=st.sampled_from([0, 10, 1000]),
    queue_wait_s=st.sampled_from([0.0, 1.0, 5.0, 30.0]),
)
BANDS = st.tuples(
    *(
        st.builds(
            BandSettings,
            name=st.just(name),
            deadline_s=st.sampled_from([None, 2.0]),
            share_min=st.sampled_from([0.0, 0.0, 0.3]),
            preempt=st.sampled_from([True, True, False]),
        )
        for name in ("high", "mid", "low")
    )
).flatmap(lambda three: st.sampled_from([three[:1], three[:1], three[:2], three, three[::-1]]))
SETTINGS = st.builds(
    Settings,
    pools=st.fixed_dictionaries({}, optional={"p": LIMITS}),
    default=LIMITS,
    bands=BANDS,
    tenants=st.just({"u": TenantSettings(weight=3.0)}),
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
        self.fairness = "token"
        self.core = self.gateway(Settings(), retry=True)

    def gateway(self, chosen: Settings, *, retry: bool) -> RecordingGateway:
        self.lines.clear()
        abilities = Abilities(retry=retry)
        return RecordingGateway(chosen, abilities, 7, self.events.append, self.lines.append)

    @initialize(
        chosen=SETTINGS,
        fairness=st.sampled_from(sorted(FAIRNESS)),
        retry=st.sampled_from([True, True, False]),
        ready=st.booleans(),
    )
    def opens(self, chosen: Settings, fairness: str, retry: bool, ready: bool) -> None:
        self.fairness = fairness
        self.core = self.gateway(self.fair(chosen), retry=retry)
        self.core.update(endpoints(HOSTS), self.now)
        for name in NAMES if ready else []:
            self.core.update(Probed(name, ok=True), self.now)

    # -- the verbs --------------------------------------------------------------------------------

    @rule(
        pool=POOLS,
        body_bytes=st.sampled_from([0, 4, 11]),
        adapter=st.sampled_from(["", "", "", "a"]),
        mark=st.integers(0, 3),
        tenant=st.sampled_from("ttu"),
        band=st.sampled_from(["", "low", "mid", "high"]),
        prompt_tokens=st.sampled_from([0, 0, 300, 5000]),
        stream=st.booleans(),
        pump=PUMPS,
    )
    def accept(self, pool: str, adapter: str, mark: int, tenant: str, pump: bool, **more: Any) -> None:
        number = f"r{len(self.tickets)}"
        request = Request(number, Api.CHAT, pool, pool, adapter=adapter, fingerprint=mark, **more)
        expected = self.answers_to(request, tenant)
        try:
            ticket = self.core.accept(request, Identity(tenant), self.now)
        except Refusal as caught:
            refusal: Refusal | None = caught
        else:
            refusal = None
        assert (refusal and refusal.outcome) in expected
        if refusal is not None:
            assert refusal.outcome is Outcome.QUARANTINED or (refusal.retry_after_s or 0.0) >= 1.0
        else:
            for evicted in [t for t in self.order[pool] if t.outcome is Outcome.EVICTED]:
                self.order[pool].remove(evicted)
                assert self.place(evicted) > self.place(ticket) or evicted.identity != ticket.identity
            self.tickets.append(ticket)
            self.order[pool].append(ticket)
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
    @rule(pick=PICKS, tokens=st.sampled_from([16, 3008]), pump=PUMPS)
    def progress(self, pick: int, tokens: int, pump: bool) -> None:
        self.core.progress(self.leg(pick), tokens, self.now)
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
            assert self.now < leg.ticket.give_up_at == leg.ticket.queue_deadline
            insort(self.order[leg.ticket.request.pool], leg.ticket, key=lambda t: t.arrival)
        self.spoken(pump)

    @precondition(lambda self: self.tickets)
    @rule(
        pick=PICKS,
        outcome=st.sampled_from([Outcome.COMPLETED, *Outcome]),
        usage=st.sampled_from([None, Usage(400, 100, 50)]),
        pump=PUMPS,
    )
    def finish(self, pick: int, outcome: Outcome, usage: Usage | None, pump: bool) -> None:
        ticket = self.tickets[-1 - pick % len(self.tickets)]
        first = ticket.outcome or outcome
        assert self.core.finish(ticket, outcome, usage, self.now) is first is ticket.outcome
        if ticket in (order := self.order[ticket.request.pool]):
            order.remove(ticket)
        self.spoken(pump)

    @rule(
        name=st.sampled_from([*NAMES, "p/nobody:1"]),
        ok=st.booleans(),
        model=st.sampled_from("mn"),
        adapters=st.sampled_from([(), ("a",)]),
        started_at=st.sampled_from([None, 1.0, 9.0]),
        kv_tokens=st.sampled_from([None, 6000]),
        slots=st.sampled_from([None, 2]),
    )
    def probe(self, name: str, ok: bool, **said: Any) -> None:
        facts = Facts("vllm", **said)
        self.core.update(Probed(name, ok, facts, "" if ok else "silent", refused=not ok), self.now)
        self.spoken(True)

    @rule(name=st.sampled_from([*NAMES, "p/nobody:1"]), held=st.booleans(), pump=PUMPS)
    def hold(self, name: str, held: bool, pump: bool) -> None:
        self.core.update(Held(name, held), self.now)
        self.spoken(pump)

    @rule(name=st.sampled_from([*NAMES, "p/nobody:1"]), waiting=st.sampled_from([0, 2, 9]))
    def observe(self, name: str, waiting: int) -> None:
        self.core.update(Observed(name, Load(1, waiting, 0.5)), self.now)

    @rule(hosts=SUBSETS, pump=PUMPS)
    def addresses(self, hosts: dict[str, str], pump: bool) -> None:
        self.core.update(endpoints(hosts), self.now)
        self.listed = hosts
        self.spoken(pump)

    @rule(chosen=SETTINGS, pump=PUMPS)
    def reload(self, chosen: Settings, pump: bool) -> None:
        self.core.update(Reset(self.fair(chosen)), self.now)
        self.spoken(pump)

    @rule(dt=st.sampled_from([0.0, 0.5, 1.0, 2.0, 7.0, 16.0]))
    def time_passes(self, dt: float) -> None:
        """Let the shell's one timer ring whenever it is due."""
        until = self.now + dt
        self.spoken(True)
        while (due := self.core.next_wakeup()) is not None and due <= until:
            waiting, shares, closed = self.waiting(), self.shares(), self.closed()
            self.now = due
            self.spoken(True)  # a timer that rings for nothing would ring for ever
            assert self.waiting() < waiting or self.shares() > shares or self.closed() < closed
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
                    assert not self.same_line(passed, ticket) or passed.arrival == ticket.arrival
                for other in self.order[pool] if self.alike(pool) and not self.owed(ticket) else ():
                    assert other.lane or self.place(other) >= self.place(ticket) or other.rank > ticket.rank
                del self.order[pool][place]
                assert endpoint.state is READY
                assert endpoint.pool == pool
                assert endpoint.name not in ticket.excluded
                assert endpoint.running <= self.cap(endpoint)
                assert (leg.phase, leg.ticket, leg.incarnation) == (
                    LegPhase.SEATED, ticket, endpoint.incarnation
                )  # fmt: skip
                self.legs.append(leg)
            case Stop(ticket=ticket, outcome=outcome, retry_after_s=retry_after_s):
                assert outcome is ticket.outcome
                if outcome is not Outcome.EVICTED:
                    pool = ticket.request.pool
                    self.order[pool].remove(ticket)
                    late = ticket.queue_deadline <= self.now or self.past_goal(ticket)
                    assert late or self.hopeless(ticket) or not self.listed[pool]
                    in_time = Outcome.QUEUE_DEADLINE if late and self.ready(pool) else Outcome.NO_ENDPOINT
                    assert outcome is in_time
                assert (retry_after_s or 0.0) >= 1.0
            case Drop(leg=leg):
                assert leg.phase is LegPhase.OVER

    def look_at_the_heads(self) -> None:
        """Nobody waits who could be seated, and no retry that has nothing to hope for."""
        for ticket in (ticket for order in self.order.values() for ticket in order):
            assert not self.hopeless(ticket)
        for pool in self.order:
            if self.order[pool] and not self.core._pools[pool].queue.held_at:
                assert not any(self.fits(ticket) for ticket in self.core._pools[pool].queue.heads())

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
        live, reserved, unread = Counter[int](), Counter[int](), Counter[int]()
        for leg in self.legs:
            if leg.phase is not LegPhase.OVER:
                live[id(leg.endpoint)] += 1
            assert leg.reserved >= 0 <= leg.unread
            reserved[id(leg.endpoint)] += leg.reserved
            unread[id(leg.endpoint)] += leg.unread
        table = self.core.table.by_name.values()
        for endpoint in {id(e): e for e in (*table, *(leg.endpoint for leg in self.legs))}.values():
            assert endpoint.running == live[id(endpoint)]
            assert (endpoint.reserved, endpoint.unread) == (reserved[id(endpoint)], unread[id(endpoint)])
            assert endpoint.running or endpoint.reserved == endpoint.unread == 0
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
        for name, pool in self.core._pools.items():
            queue, order = pool.queue, [t for t in self.order[name] if t is not pool.newcomer]
            assert pool.newcomer is None or not order
            assert queue.body_bytes == sum(ticket.request.body_bytes for ticket in order)
            assert queue.waiting == sum(band.waiting for band in queue._bands.values()) == len(order)
            assert all(id(ticket) in queue.odd or not ticket.lane for ticket in order)
            for band in queue._bands.values():
                assert band.waiting == sum(flow.waiting for flow in band._flows.values())
                assert band.weight == sum(flow.weight for flow in band._flows.values() if flow.waiting)

    @invariant()
    def the_next_wakeup_is_the_first_deadline(self) -> None:
        deadlines = [t.queue_deadline for order in self.order.values() for t in order]
        wakeup = self.core.next_wakeup()
        if self.closed() and wakeup is not None:
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
        for pool in self.core._pools.values():
            queue = pool.queue
            assert (queue.waiting, queue.body_bytes, queue.odd, queue.held_at) == (0, 0, {}, {})
            assert not any(band._flows or band._places or band._turns for band in queue._bands.values())
            assert not any(band.waiting or band.weight for band in queue._bands.values())
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

    def cap(self, endpoint: Endpoint) -> int:
        return self.limits(endpoint.pool).cap or endpoint.cap or CAP_START

    def fair(self, chosen: Settings) -> Settings:
        """These settings, with the fairness of this machine: who waits where depends on it."""
        pools = {name: replace(limits, fairness=self.fairness) for name, limits in chosen.pools.items()}
        return replace(chosen, pools=pools, default=replace(chosen.default, fairness=self.fairness))

    def place(self, ticket: Ticket) -> int:
        """The number of its band in the order in which they are served; one that has left comes last."""
        names = [*self.core._pools[ticket.request.pool].queue._bands, ticket.band]
        return names.index(ticket.band)

    def same_line(self, one: Ticket, other: Ticket) -> bool:
        """Whether one must go before the other, as it came first."""
        alike = self.fairness == "strict" or one.identity == other.identity
        return alike and (one.band, one.lane, one.rank) == (other.band, other.lane, other.rank)

    def alike(self, pool: str) -> bool:
        """Whether its endpoints have room for all tickets alike, but for what is left to higher bands."""
        kv = any(e.facts.kv_tokens for e in self.core.table.by_name.values())
        return not kv and self.limits(pool).ttft_s is None

    def owed(self, ticket: Ticket) -> bool:
        """Whether its band may be served before those above it."""
        band = self.core._pools[ticket.request.pool].queue._bands.get(ticket.band)
        return band is not None and band.settings.share_min > 0

    def past_goal(self, ticket: Ticket) -> bool:
        """Whether its first token would come too late from one that could have it."""
        return ticket.ttft_s > 0 and any(
            too_late(ticket, e, self.now) for e in self.ready(ticket.request.pool) if self.may_have(ticket, e)
        )

    def ready(self, pool: str) -> list[Endpoint]:
        return [e for e in self.core.table.by_name.values() if e.pool == pool and e.state is READY]

    def shares(self) -> float:
        return sum(endpoint.share for endpoint in self.core.table.by_name.values())

    def closed(self) -> int:
        """How many ways are shut that time alone may open: rests and old metrics."""
        return sum(
            at > self.now
            for endpoint in self.core.table.by_name.values()
            for at in (endpoint.rests_until, endpoint.observed_at + STALE_S)
        )

    def may_have(self, ticket: Ticket, endpoint: Endpoint) -> bool:
        adapter = ticket.request.adapter
        return endpoint.name not in ticket.excluded and (not adapter or adapter in endpoint.facts.adapters)

    def has_room(self, endpoint: Endpoint) -> bool:
        """For any ticket of the first band, where all are alike."""
        cap = self.cap(endpoint)
        return endpoint.rests_until <= self.now and endpoint.running < (
            cap if endpoint.share >= 1 else min(cap, max(1, int(cap * endpoint.share)))
        )

    def fits(self, ticket: Ticket) -> bool:
        limits = self.limits(ticket.request.pool)
        full = SATURATION[limits.saturation]
        return any(
            self.may_have(ticket, e) and not full(e, ticket, limits, self.now)
            for e in self.ready(ticket.request.pool)
        )

    def answers_to(self, request: Request, tenant: str) -> set[Outcome | None]:
        """What the door may answer, as the design words it; None lets the request in."""
        order, limits = self.order[request.pool], self.limits(request.pool)
        if not self.core.settings.accepting:
            return {Outcome.DRAINING}
        if request.fingerprint and self.core.quarantine.holds(request.fingerprint, self.now):
            return {Outcome.QUARANTINED}
        asked = [
            e for e in self.ready(request.pool) if not request.adapter or request.adapter in e.facts.adapters
        ]
        here = [e for e in self.core.table.by_name.values() if e.pool == request.pool]
        served = (pool := self.core._pools.get(request.pool)) is not None and pool.service_s is not None
        if not asked and not (served and any(e.state is EndpointState.PROBING and not e.why for e in here)):
            return {Outcome.NO_ENDPOINT}
        body_bytes = sum(t.request.body_bytes for t in order) + request.body_bytes
        full = len(order) >= limits.queue_requests_max or body_bytes > limits.queue_bytes_max
        lane = (f"+{request.adapter}",) if request.adapter else ()
        behind = any(ticket.lane == lane for ticket in order)
        single = len(self.core.settings.bands) == 1 and {t.identity.tenant for t in order} <= {tenant}
        if single and self.alike(request.pool) and limits.saturation == "concurrency":
            if not behind and any(self.has_room(e) for e in asked):
                return {None}
            if full:
                return {Outcome.QUEUE_FULL, Outcome.DEADLINE_UNMEETABLE}
        if not order:
            refused = {
                Outcome.QUEUE_FULL,
                Outcome.DEADLINE_UNMEETABLE,
            }  # all may rest for longer than it can wait
            return {None, *refused} if full else {None}
        return {None, Outcome.QUEUE_FULL, Outcome.DEADLINE_UNMEETABLE}


def endpoints(hosts: dict[str, str]) -> Endpoints:
    return Endpoints({pool: tuple(f"http://{host}:1" for host in names) for pool, names in hosts.items()})


Shell.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestShell = Shell.TestCase
