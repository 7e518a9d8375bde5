"""The core itself: every verb a shell can say, and all state of what waits and what is seated.

A shell tells what happened (`accept`, `sent`, `answered`, `fail`, `finish`, `update`, ...) and then asks
`release` what to do. No verb waits, reads a clock or draws randomness it was not given, so a recorded
sequence of calls can be replayed to the same effects. The shape of a ticket's life:

    accept -> QUEUED -- release --> DISPATCHED -- finish --> ENDED
                 ^                      |
                 +-------- fail --------+        (finish is legal everywhere; the first one wins)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from maitred.core.chooser import ROUTING, awaited, has_room, least_loaded, may_hope, ready
from maitred.core.endpoints import EndpointTable, Sign
from maitred.core.events import Answered, Emit, Ended, EndpointMoved, Event, LegFailed
from maitred.core.health import Health, Quarantine
from maitred.core.outcome import Outcome, Refusal
from maitred.core.queue import PoolQueue
from maitred.core.words import (
    Abilities,
    Change,
    Drop,
    Effect,
    Endpoint,
    Endpoints,
    EndpointState,
    Failure,
    Go,
    Held,
    Identity,
    Leg,
    LegPhase,
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

# Looked up here once: members of an enum cost five times what a name of the module does.
READY, DRAINING = EndpointState.READY, EndpointState.DRAINING
QUEUED, DISPATCHED, ENDED = Phase
SEATED, SENT, ANSWERED, OVER = LegPhase
COMPLETED = Outcome.COMPLETED
SERVED = (COMPLETED, Outcome.ENGINE_REFUSED)
MANY = 8
"""Where more wait than this, it is seen whether there is room at all before each lane is asked about."""
RECENT = 0.1
"""Weight of the newest service time in its moving mean: about the last twenty answers count."""


def _unheard(_event: Event) -> None:
    """Events of a gateway nobody observes."""


class Gateway:
    """All decisions of one house. Not thread-safe; every verb takes `now` in monotonic seconds.

    `waiting` counts the tickets in queues, `outbox` holds effects not yet released: while there are neither,
    `release` has nothing to do.
    """

    def __init__(self, settings: Settings, abilities: Abilities, rng: Random, emit: Emit = _unheard) -> None:
        self.settings = settings
        self.abilities = abilities
        self.table = EndpointTable()
        self._health = Health(self.table)
        self._closed: dict[str, None] = {}  # pools that left while somebody waited
        self._holds: dict[str, None] = {}  # endpoints held by the operator, also while they are not listed
        self._stirred = False  # since the last release somebody's last hope may have gone
        self._rng = rng
        self._emit = emit
        self._queues: dict[str, PoolQueue] = {}
        self._service_s: dict[str, float] = {}
        self.outbox: list[Effect] = []
        self.waiting = 0
        self._turn = 0

    # -- the journey of a ticket ------------------------------------------------------------------

    def accept(self, request: Request, identity: Identity, now: float) -> Ticket:
        """Let a request in; it waits until `release` seats it. Raises Refusal when it may not even wait."""
        if not self.settings.accepting:
            raise Refusal(Outcome.DRAINING, "the gateway is shutting down", retry_after_s=1.0)
        pool, limits = request.pool, self._limits(request.pool)
        if request.fingerprint and self._health.quarantine.holds(request.fingerprint, now):
            raise Refusal(Outcome.QUARANTINED, "engines died of this request; it is refused for a while")
        ticket = Ticket(request, identity, now, now + limits.queue_wait_s)
        if request.adapter:
            ticket.lane = (f"+{request.adapter}",)
        endpoints = self._endpoints(pool)
        if not ready(endpoints, request.adapter) and not (pool in self._service_s and awaited(endpoints)):
            raise Refusal(Outcome.NO_ENDPOINT, "no endpoint of this model is ready", retry_after_s=1.0)
        queue = self._queue(pool)
        if queue.full(request.body_bytes, limits) and (
            queue.behind(ticket) or least_loaded(endpoints, ticket, limits.cap) is None
        ):
            message = "too many requests are waiting"
            raise Refusal(Outcome.QUEUE_FULL, message, retry_after_s=self._drain_s(pool))
        queue.push(ticket)
        self.waiting += 1
        return ticket

    def release(self, now: float) -> list[Effect]:
        """What to do now: seat what fits, stop what waited too long. The only place that chooses."""
        if not self.waiting and not self.outbox:
            return []
        effects, self.outbox = self.outbox, []
        if self._health.slow.next_at is not None:
            self._health.slow.grow(now, self.settings.health)
        if self._closed:
            self._close(now, effects)
        for pool, queue in self._queues.items():
            if queue.waiting:
                if queue.earliest <= now:
                    self._expire(pool, queue, now, effects)
                self._seat(pool, queue, now, effects)
        self._stirred = False
        return effects

    def sent(self, leg: Leg, now: float, endpoint: str | None = None) -> None:
        """The request's bytes left for the leg's endpoint; `endpoint` corrects where they really went."""
        if leg.phase is not SEATED:
            return
        leg.phase, leg.sent_at = SENT, now
        if endpoint is not None and (real := self.table.by_name.get(endpoint)) is not None:
            real.running += 1
            self._vacate(leg.endpoint, now)
            leg.endpoint, leg.incarnation = real, real.incarnation

    def answered(self, leg: Leg, now: float) -> None:
        """First content of this leg: from here on no other endpoint may answer, so its rivals are dropped."""
        if leg.phase in (OVER, ANSWERED):
            return
        leg.phase, leg.answered_at = ANSWERED, now
        if leg.ticket.request.stream:
            self._emit(Answered(now, leg))
        for rival in leg.ticket.legs if len(leg.ticket.legs) > 1 else ():
            if rival is not leg and rival.phase is not OVER:
                self._free(rival, now)
                self.outbox.append(Drop(rival))

    def progress(self, leg: Leg, output_tokens_total: int, now: float) -> None:  # noqa: ARG002
        """The leg's output so far, told at multiples of 16 tokens, whatever the reads were."""
        leg.output_tokens = output_tokens_total

    def leave(self, leg: Leg, usage: Usage | None, now: float) -> None:
        """The leg is over and its place free; the ticket goes on with its other legs."""
        if usage is not None:
            leg.output_tokens = usage.output_tokens
        self._free(leg, now)

    def fail(self, leg: Leg, failure: Failure, now: float) -> bool:
        """The leg failed. True: the ticket waits again, first in line; False: the shell must finish it."""
        if leg.phase is OVER:
            return False
        delivered = leg.phase is ANSWERED or failure.final
        ticket = leg.ticket
        self._free(leg, now)
        if failure.kind.blames and leg.incarnation == leg.endpoint.incarnation:
            verdict = self._health.blame(leg, failure, now, self.settings.health)
            if verdict is not None:
                self._move(leg.endpoint, *verdict, now)
        self._stirred = True
        again = not delivered and self._may_repeat(ticket, leg, failure)
        self._emit(LegFailed(now, leg, failure, again))
        if again:
            for partner in ticket.legs:
                if partner.phase is not OVER:
                    self._free(partner, now)
                    self.outbox.append(Drop(partner))
            ticket.excluded += (leg.endpoint.name,)
            ticket.lane += (leg.endpoint.name,)
            ticket.phase = QUEUED
            self._queue(ticket.request.pool).push(ticket)
            self.waiting += 1
        return again

    def finish(self, ticket: Ticket, outcome: Outcome, usage: Usage | None, now: float) -> Outcome:
        """End a ticket in whatever phase it is. The first caller decides; later ones learn what it said."""
        if ticket.outcome is None:
            self._end(ticket, outcome, usage, now)
        return ticket.outcome or outcome

    def next_wakeup(self) -> float | None:
        """The next instant at which `release` would do something by itself; None while nothing waits."""
        if not self.waiting:
            return None
        instants = [queue.next_deadline() for queue in self._queues.values()]
        instants.append(self._health.slow.next_at)
        return min((at for at in instants if at is not None), default=None)

    @property
    def quarantine(self) -> Quarantine:
        """Requests that are kept out."""
        return self._health.quarantine

    def waiting_by_pool(self) -> dict[str, int]:
        """How many tickets wait in each pool, for whoever watches."""
        return {pool: queue.waiting for pool, queue in list(self._queues.items())}

    def update(self, change: Change, now: float) -> None:
        """Let the world and the operator in: addresses, what engines say, settings."""
        self._stirred = True
        if self._health.slow.next_at is not None:
            self._health.slow.grow(now, self.settings.health)
        match change:
            case Endpoints(pools=pools):
                self._list(pools, now)
            case Probed(endpoint=name):
                if (probed := self.table.by_name.get(name)) is not None:
                    self._learn(probed, change, now)
            case Observed(endpoint=name, load=load):
                if (observed := self.table.by_name.get(name)) is not None:
                    observed.load, observed.observed_at = load, now
            case Held(endpoint=name, held=held):
                if (meant := self.table.by_name.get(name)) is not None:
                    self._hold(meant, held=held, now=now)
            case Reset(settings=settings):
                self.settings = settings

    # -- parts of verbs ---------------------------------------------------------------------------

    def _list(self, pools: dict[str, tuple[str, ...]], now: float) -> None:
        for endpoint, sign in self.table.replace(pools):
            if sign is None:
                self._emit(EndpointMoved(now, endpoint, endpoint.state, endpoint.state, "listed"))
                if endpoint.name in self._holds:
                    self._hold(endpoint, held=True, now=now)
                continue
            self._move(endpoint, sign, "", now)
            if not endpoint.running:
                self._move(endpoint, Sign.EMPTY, "", now)
        self._forget_pools(pools)

    def _learn(self, endpoint: Endpoint, probed: Probed, now: float) -> None:
        died = probed.refused
        if probed.ok:
            died = self.table.learn(endpoint, probed.facts)
        if died:
            self.quarantine.died(endpoint, now, self.settings.health.quarantine_s)
        endpoint.why = probed.why
        self._move(endpoint, Sign.ANSWERED if probed.ok else Sign.SILENT, probed.why, now)

    def _hold(self, endpoint: Endpoint, *, held: bool, now: float) -> None:
        """As the operator says, until he says otherwise: also when the address comes back some day."""
        if held:
            self._holds[endpoint.name] = None
        else:
            self._holds.pop(endpoint.name, None)
        if endpoint.listed and endpoint.held is not held:
            endpoint.held = held
            self._move(endpoint, Sign.HELD if held else Sign.LET_IN, "by the operator", now)

    def _limits(self, pool: str) -> PoolSettings:
        return self.settings.pools.get(pool, self.settings.default)

    def _queue(self, pool: str) -> PoolQueue:
        queue = self._queues.get(pool)
        if queue is None:
            queue = self._queues[pool] = PoolQueue()
        return queue

    def _seat(self, pool: str, queue: PoolQueue, now: float, effects: list[Effect]) -> None:
        limits, endpoints = self._limits(pool), self._endpoints(pool)
        cap, choose = limits.cap, ROUTING[limits.routing]
        seated = True
        while seated and queue.waiting:
            seated = False
            if queue.waiting > MANY and not self._stirred and not has_room(endpoints, cap):
                break  # there may be as many lanes as adapters, and nothing for any of them
            for ticket in queue.heads():
                endpoint = choose(endpoints, ticket, cap)
                if endpoint is not None:
                    queue.remove(ticket)
                    effects.append(self._go(ticket, endpoint, now))
                elif (ticket.excluded or ticket.request.adapter) and not may_hope(endpoints, ticket):
                    self._end(ticket, Outcome.NO_ENDPOINT, None, now)
                    effects.append(Stop(ticket, Outcome.NO_ENDPOINT, 1.0))
                else:
                    continue
                seated = True
                break
        queue.settle()

    def _go(self, ticket: Ticket, endpoint: Endpoint, now: float) -> Go:
        self.waiting -= 1
        self._turn += 1
        endpoint.running += 1
        endpoint.seated += 1
        endpoint.turn = self._turn
        ticket.attempts += 1
        leg = Leg(self._turn, ticket, endpoint, endpoint.incarnation, ticket.attempts, now)
        ticket.phase = DISPATCHED
        ticket.legs = [leg]
        return Go(ticket, ticket.legs)

    def _expire(self, pool: str, queue: PoolQueue, now: float, effects: list[Effect]) -> None:
        while (ticket := queue.overdue(now)) is not None:
            outcome = Outcome.QUEUE_DEADLINE if ready(self._endpoints(pool)) else Outcome.NO_ENDPOINT
            self._end(ticket, outcome, None, now)
            effects.append(Stop(ticket, outcome, self._drain_s(pool)))

    def _close(self, now: float, effects: list[Effect]) -> None:
        """Stop everybody who waits for a pool that is no more."""
        for ticket in [ticket for pool in self._closed for ticket in self._queues[pool].all()]:
            self._end(ticket, Outcome.NO_ENDPOINT, None, now)
            effects.append(Stop(ticket, Outcome.NO_ENDPOINT, 1.0))
        self._closed.clear()

    def _end(self, ticket: Ticket, outcome: Outcome, usage: Usage | None, now: float) -> None:
        pool = ticket.request.pool
        if ticket.phase is QUEUED:
            self._queues[pool].remove(ticket)
            self.waiting -= 1
        if usage is None and any(leg.output_tokens for leg in ticket.legs):
            # Cut or left on the way: what was generated counts all the same.
            usage = Usage(output_tokens=sum(leg.output_tokens for leg in ticket.legs), exact=False)
        for leg in ticket.legs:
            if leg.phase is not OVER:
                self._free(leg, now)
                if outcome in SERVED:
                    self._health.served(leg.endpoint, ticket.request)
                if outcome is COMPLETED:
                    mean_s = self._service_s.get(pool, now - leg.seated_at)
                    self._service_s[pool] = mean_s + RECENT * (now - leg.seated_at - mean_s)
        ticket.phase, ticket.outcome = ENDED, outcome
        self._emit(Ended(now, ticket, outcome, usage))
        ticket.legs = []  # ticket and legs name each other: let go, so that no collector is needed

    def _may_repeat(self, ticket: Ticket, leg: Leg, failure: Failure) -> bool:
        """Whether another seat is allowed and there is one to hope for."""
        if not (self.abilities.retry and failure.kind.repeatable) or ticket.outcome is not None:
            return False
        if ticket.attempts >= self.settings.attempts_max:
            return False
        return may_hope(self._endpoints(ticket.request.pool), ticket, leg.endpoint.name)

    def _free(self, leg: Leg, now: float) -> None:
        if leg.phase is OVER:
            return
        leg.phase = OVER
        self._vacate(leg.endpoint, now)

    def _vacate(self, endpoint: Endpoint, now: float) -> None:
        endpoint.running -= 1
        if endpoint.state is DRAINING and not endpoint.running and not endpoint.held:
            self._move(endpoint, Sign.EMPTY, "", now)

    def _move(self, endpoint: Endpoint, sign: Sign, why: str, now: float) -> None:
        before = self.table.move(endpoint, sign, why)
        if before is None:
            return
        self._stirred = True
        self._health.moved(endpoint, before, now)
        self._emit(EndpointMoved(now, endpoint, before, endpoint.state, why))

    def _drain_s(self, pool: str) -> float:
        """Predicted wait of a newcomer: the tickets before it, served at the recent pace; at least 1 s.

        Up to a quarter is added at random, so that those refused together do not return together.
        """
        shares = sum(e.share for e in self._endpoints(pool) if e.state is READY)
        queue, places = self._queues.get(pool), shares * self._limits(pool).cap
        before = queue.waiting if queue is not None else 0
        wait_s = (before + 1) * self._service_s.get(pool, 1.0) / places if places else 1.0
        return max(1.0, wait_s) * (1 + self._rng.random() / 4)

    def _endpoints(self, pool: str) -> Sequence[Endpoint]:
        return self.table.by_pool.get(pool, ())

    def _forget_pools(self, listed: Mapping[str, object]) -> None:
        """Drop the queues of pools that are no more, and have `release` stop those who wait there."""
        self._closed.clear()
        for pool, queue in list(self._queues.items()):
            if pool in listed:
                continue
            if queue.waiting:
                self._closed[pool] = None
            elif pool not in self.table.by_pool:
                del self._queues[pool]
                self._service_s.pop(pool, None)
