"""The core itself: every verb a shell can say, and all state of what waits and what is seated.

A shell tells what happened (`accept`, `sent`, `answered`, `fail`, `finish`, `update`, ...) and then asks
`release` what to do. No verb waits, reads a clock or draws randomness it was not given, so a recorded
sequence of calls can be replayed to the same effects. The shape of a ticket's life:

    accept -> QUEUED -- release --> DISPATCHED -- finish --> ENDED
                 ^                      |
                 +-------- fail --------+        (finish is legal everywhere; the first one wins)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import trunc  # `int` takes several times as long
from random import Random

from maitred.core import saturation
from maitred.core.chooser import awaited, may_hope, ready
from maitred.core.endpoints import DRAINING, EndpointTable
from maitred.core.events import Answered, Decided, Emit, Ended, Event, LegFailed
from maitred.core.explore import EVERY
from maitred.core.health import Quarantine
from maitred.core.limiter import Limiter
from maitred.core.limits import Accounts, Periods
from maitred.core.outcome import Outcome, Refusal
from maitred.core.pool import Pool
from maitred.core.pools import Pools
from maitred.core.queue import NEVER
from maitred.core.rights import band_of
from maitred.core.saturation import has_room
from maitred.core.words import (
    Abilities,
    BandSettings,
    Change,
    Drop,
    Effect,
    Endpoint,
    Endpoints,
    Failure,
    Go,
    Held,
    Identity,
    KvEvents,
    Leg,
    LegPhase,
    Observed,
    Phase,
    Probed,
    Request,
    Reset,
    Settings,
    Stop,
    Ticket,
    Usage,
)
from maitred.core.world import ANSWERS, World

# Looked up here once: members of an enum cost five times what a name of the module does.
QUEUED, DISPATCHED, ENDED = Phase
SEATED, SENT, ANSWERED, OVER = LegPhase
COMPLETED, CLIENT_GONE = Outcome.COMPLETED, Outcome.CLIENT_GONE
SERVED = (COMPLETED, Outcome.ENGINE_REFUSED)
MANY = 8
"""Where more wait than this, it is seen whether there is room at all before anybody is asked about."""
NOTHING = Usage()
UNTOLD = Usage(exact=False)
"""Of who left before anything was told: an engine has read the prompt, as far as anybody knows."""


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
        self.limiter = Limiter()
        self.outbox: list[Effect] = []
        self.waiting = 0
        self._world = World(emit)
        self._health = self._world.health
        self._quarantine, self._slow = self._health.quarantine, self._health.slow
        self._pools = Pools(settings, self._world.table)
        self._rng = rng
        self._emit = emit
        self._turn = 0
        self._newly: dict[str, Pool] = {}  # those with a newcomer

    # -- the journey of a ticket ------------------------------------------------------------------

    def accept(self, request: Request, identity: Identity, now: float) -> Ticket:
        """Let a request in; it waits until `release` seats it. Raises Refusal when it may not even wait."""
        if not self.settings.accepting:
            raise Refusal(Outcome.DRAINING, "the gateway is shutting down", retry_after_s=1.0)
        if self._quarantine.suspects and self._quarantine.holds(request.fingerprint, now):
            raise Refusal(Outcome.QUARANTINED, "engines died of this request; it is refused for a while")
        pool = self._pools[request.pool]
        queue, limits, endpoints = pool.queue, pool.limits, pool.endpoints
        if not ready(endpoints, request.adapter) and not (pool.service_s is not None and awaited(endpoints)):
            raise Refusal(Outcome.NO_ENDPOINT, "no endpoint of this model is ready", retry_after_s=1.0)
        terms = None if request.band else pool.terms.get(identity)
        if terms is None:
            terms = pool.learn_terms(self.settings, request.band, identity)
        ticket = pool.ticket(request, identity, terms, now)
        if (party := terms.party) is not None:
            tokens, output_tokens = ticket.prompt_tokens, trunc(ticket.expected)
            ticket.hold = self.limiter.take(party, tokens, output_tokens, limits.price, now)
        if (
            queue.waiting
            or pool.newcomer is not None
            or request.body_bytes > limits.queue_bytes_max
            or not limits.queue_requests_max
        ):
            self._let_wait(ticket, pool, now)
        if queue.waiting:
            queue.push(ticket, limits)
            queue.opens_at = now
        else:
            pool.newcomer = ticket
            self._newly[pool.name] = pool
        pool.budget.request(now)
        self.waiting += 1
        return ticket

    def release(self, now: float) -> list[Effect]:
        """What to do now: seat what fits, stop what waited too long. The only place that chooses."""
        if not self.waiting and not self.outbox:
            return []
        effects, self.outbox = self.outbox, []
        world = self._world
        everywhere = world.stirred
        if self._slow.next_at is not None:
            world.grow(now, self.settings.health)
            everywhere = True
        if self._pools.closed:
            self._close(now, effects)
        for pool in self._newly.values():
            newcomer = pool.newcomer
            if newcomer is None:  # he was joined since, or has left
                continue
            choose, endpoints, chosen = pool.choose, pool.endpoints, None
            if newcomer.queue_deadline > now:
                chosen = choose(endpoints, newcomer, pool.limits, now)
            if chosen is None:
                pool.line_up()
            else:
                self._give(pool, newcomer, chosen, endpoints, now, effects)
        self._newly.clear()
        for pool in self._pools.values() if self.waiting else ():
            queue = pool.queue
            if not queue.waiting:
                continue
            late = queue.earliest <= now
            if late:
                self._expire(pool, now, effects)
            if late or everywhere or queue.opens_at <= now:
                self._seat(pool, now, effects)
        world.stirred = False
        return effects

    def sent(self, leg: Leg, now: float, endpoint: str | None = None) -> None:
        """The request's bytes left for the leg's endpoint; `endpoint` corrects where they really went."""
        if leg.phase is not SEATED:
            return
        leg.phase, leg.sent_at = SENT, now
        if endpoint is None or (real := self.table.by_name.get(endpoint)) is None:
            return
        if (meant := leg.endpoint) is not real:
            self._pools[meant.pool].freed(leg, now)
            self._pools[real.pool].went(leg, real, now)
            self._world.vacated(meant, now)

    def answered(self, leg: Leg, now: float) -> None:
        """First content of this leg: from here on no other endpoint may answer, so its rivals are dropped."""
        if leg.phase in (OVER, ANSWERED):
            return
        leg.phase, leg.answered_at = ANSWERED, now
        if leg.ticket.request.stream:
            saturation.first_token(leg, now)
            self._pools[leg.endpoint.pool].queue.opens_at = now
            self._emit(Answered(now, leg))
        for rival in leg.ticket.legs if len(leg.ticket.legs) > 1 else ():
            if rival is not leg and rival.phase is not OVER:
                self._free(rival, now)
                self.outbox.append(Drop(rival))

    def progress(self, leg: Leg, output_tokens_total: int, now: float) -> None:  # noqa: ARG002
        """The leg's output so far, told at multiples of 16 tokens, whatever the reads were."""
        leg.output_tokens = output_tokens_total
        if leg.phase is not OVER:
            saturation.grow(leg, output_tokens_total)

    def leave(self, leg: Leg, usage: Usage | None, now: float) -> None:
        """The leg is over and its place free; the ticket goes on with its other legs."""
        if usage is not None:
            leg.output_tokens = usage.output_tokens
        if leg.phase is not OVER:
            self._free(leg, now)

    def fail(self, leg: Leg, failure: Failure, now: float) -> bool:
        """The leg failed. True: the ticket waits again, first in line; False: the shell must finish it."""
        if leg.phase is OVER:
            return False
        delivered = leg.phase is ANSWERED or failure.final
        ticket = leg.ticket
        self._free(leg, now)
        self._world.failed(leg, failure, now, self.settings.health)
        again = not delivered and self._may_repeat(ticket, leg, failure, now)
        self._emit(LegFailed(now, leg, failure, again))
        if again:
            for partner in ticket.legs:
                if partner.phase is not OVER:
                    self._free(partner, now)
                    self.outbox.append(Drop(partner))
            self._pools[ticket.request.pool].put_back(ticket, leg.endpoint.name, now)
            self.waiting += 1
        return again

    def finish(self, ticket: Ticket, outcome: Outcome, usage: Usage | None, now: float) -> Outcome:
        """End a ticket in whatever phase it is. The first caller decides; later ones learn what it said."""
        if ticket.outcome is not None:
            return ticket.outcome
        request, legs = ticket.request, ticket.legs
        pools, name = self._pools, request.pool
        pool = pools.get(name) or pools.new(name)  # it may have left before its last ticket
        if ticket.phase is QUEUED:
            pool.remove(ticket)
            pool.queue.opens_at = now  # an endpoint may have been kept for it
            self.waiting -= 1
        if usage is None and any(leg.output_tokens for leg in legs):
            # Cut or left on the way: what was generated counts all the same.
            output_tokens = sum(leg.output_tokens for leg in legs)
            usage = Usage(ticket.prompt_tokens, 0, output_tokens, exact=False)
        leg: Leg | None = None
        for leg in legs:
            if leg.phase is not OVER:
                self._free(leg, now)
                if outcome in SERVED:
                    self._health.served(leg.endpoint, request)
                if outcome is COMPLETED:
                    pool.learn(leg, usage, now)
        used = usage or (UNTOLD if outcome is CLIENT_GONE else NOTHING)
        if ticket.attempts:
            pool.ended(ticket, used)
        if (hold := ticket.hold) is not None:
            self.limiter.settle(hold, used if ticket.attempts else None, now)
        ticket.phase, ticket.outcome = ENDED, outcome
        emit = self._emit
        emit(Ended(now, ticket, outcome, usage, leg))
        ticket.legs = ()  # ticket and legs name each other: let go, so that no collector is needed
        return outcome

    _end = finish  # where the house itself ends one, which is no verb

    def next_wakeup(self) -> float | None:
        """The next instant at which `release` would do something by itself; None while nothing waits."""
        if not self.waiting:
            return None
        at = min(self._pools.next_at(), NEVER if self._slow.next_at is None else self._slow.next_at)
        return at if at < NEVER else None

    def update(self, change: Change, now: float) -> None:
        """Let the world and the operator in: addresses, what engines say, settings."""
        world, health = self._world, self.settings.health
        if isinstance(change, KvEvents):  # the most frequent by far, and they make no room
            if (endpoint := self.table.by_name.get(change.endpoint)) is not None:
                self._pools[endpoint.pool].blocks.hear(endpoint, change)
            return
        world.stirred = True
        world.grow(now, health)
        match change:
            case Endpoints(pools=pools):
                world.list(pools, now)
                world.place(self.settings)
                self._pools.follow(pools)
            case Probed(endpoint=name):
                world.learn(change, now, health)
                if (endpoint := self.table.by_name.get(name)) is not None:
                    self._pools[endpoint.pool].renew(endpoint)
            case Observed(endpoint=name, load=load):
                world.observe(name, load, self.settings, now)
            case Held(endpoint=name, held=held):
                world.hold(name, held=held, now=now)
            case Periods():
                self.limiter.follow(change)
            case Accounts():
                self.limiter.add(change, now)
            case Reset(settings=settings):
                self.settings = settings
                world.place(settings)
                self._pools.apply(settings)

    # -- for whoever watches ----------------------------------------------------------------------

    @property
    def table(self) -> EndpointTable:
        """The endpoints."""
        return self._world.table

    @property
    def quarantine(self) -> Quarantine:
        """Requests that are kept out."""
        return self._quarantine

    def waiting_by_pool(self) -> dict[str, int]:
        """How many tickets wait in each pool."""
        return {name: pool.waiting for name, pool in list(self._pools.items())}

    def band_of(self, request: Request, identity: Identity) -> BandSettings:
        """The band in which a request would wait."""
        return band_of(self.settings, request.band, identity)

    # -- letting in -------------------------------------------------------------------------------

    def _let_wait(self, ticket: Ticket, pool: Pool, now: float) -> None:
        """Others wait already, or this one is too large to: see whether it may come in. Raises Refusal."""
        pool.line_up()
        try:
            victims = pool.admit(ticket, now, self._later)
        except Refusal as refusal:
            if ticket.hold is not None:
                self.limiter.settle(ticket.hold, None, now)
                refusal.levels = ticket.hold.levels(now)
            raise
        for victim in victims:
            self._stop(victim, Outcome.EVICTED, self._later(pool.drain_s(now)), now, self.outbox)

    # -- seating ----------------------------------------------------------------------------------

    def _seat(self, pool: Pool, now: float, effects: list[Effect]) -> None:
        """Seat those who wait, as far as there is room."""
        queue, endpoints = pool.queue, pool.endpoints
        pool.again_at = NEVER
        while waiting := queue.waiting:
            if waiting > MANY and not has_room(endpoints, pool.limits, now):
                break  # there may be as many lanes as adapters, and nothing for any of them
            found = pool.next(now)
            if found is None:
                break
            ticket, chosen, offered = found
            self._give(pool, ticket, chosen, offered, now, effects)
        else:
            return
        queue.settle_in()
        for ticket in list(queue.odd.values()) if self._world.stirred or waiting <= MANY else ():
            if not may_hope(endpoints, ticket):
                self._stop(ticket, Outcome.NO_ENDPOINT, 1.0, now, effects)
        queue.opens_at = min(saturation.opens_at(endpoints, pool.limits, now), pool.again_at)

    def _give(
        self,
        pool: Pool,
        ticket: Ticket,
        chosen: Endpoint,
        offered: Sequence[Endpoint],
        now: float,
        effects: list[Effect],
    ) -> None:
        """Give a ticket the seat that was chosen of those offered, unless its answer would come too late."""
        if ticket.ttft_s and saturation.too_late(ticket, chosen, now):
            self._stop(ticket, Outcome.QUEUE_DEADLINE, self._later(pool.drain_s(now)), now, effects)
            return
        endpoint, receipt = chosen, None
        pool.unexplored = unexplored = pool.unexplored + 1
        if unexplored >= EVERY and not ticket.home:
            endpoint = pool.explore(ticket, chosen, offered, now)
        if ticket.request.receipt:  # before it has its seat
            receipt = pool.receipt(ticket, endpoint, offered, now, explored=endpoint is not chosen)
        self.waiting -= 1
        self._turn = turn = self._turn + 1
        leg = pool.seat(ticket, endpoint, turn, now)
        if receipt is not None:
            leg.receipt = receipt
            self._emit(Decided(now, leg))
        effects.append(Go(ticket, ticket.legs))

    def _expire(self, pool: Pool, now: float, effects: list[Effect]) -> None:
        while (ticket := pool.queue.overdue(now)) is not None:
            outcome = Outcome.QUEUE_DEADLINE if ready(pool.endpoints) else Outcome.NO_ENDPOINT
            self._stop(ticket, outcome, self._later(pool.drain_s(now)), now, effects)

    def _close(self, now: float, effects: list[Effect]) -> None:
        """Stop everybody who waits for a pool that is no more."""
        for ticket in [ticket for name in self._pools.closed for ticket in self._pools[name].all()]:
            self._stop(ticket, Outcome.NO_ENDPOINT, 1.0, now, effects)
        self._pools.closed.clear()

    def _stop(
        self, ticket: Ticket, outcome: Outcome, retry_after_s: float, now: float, effects: list[Effect]
    ) -> None:
        self._end(ticket, outcome, None, now)
        effects.append(Stop(ticket, outcome, retry_after_s))

    # -- ending -----------------------------------------------------------------------------------

    def _free(self, leg: Leg, now: float) -> None:
        """The leg is over, which it was not; its place may be had again."""
        leg.phase, endpoint = OVER, leg.endpoint
        pool = self._pools.get(endpoint.pool)  # another than its ticket's where the leg went elsewhere
        if pool is None:
            saturation.give_back(leg, now)
        else:
            pool.freed(leg, now)
        if endpoint.state is DRAINING:
            self._world.vacated(endpoint, now)

    def _may_repeat(self, ticket: Ticket, leg: Leg, failure: Failure, now: float) -> bool:
        """Whether another seat is allowed and there is one to hope for."""
        if not (self.abilities.retry and failure.kind.repeatable) or ticket.outcome is not None:
            return False
        if ticket.attempts >= self.settings.attempts_max or now >= ticket.give_up_at:
            return False
        pool = self._pools[ticket.request.pool]
        if not may_hope(pool.endpoints, ticket, leg.endpoint.name):
            return False
        return failure.kind not in ANSWERS or pool.budget.take(now)

    def _later(self, wait_s: float) -> float:
        """The wait to tell who is refused: at least a second, and up to a quarter more at random.

        So those who are refused together do not return together.
        """
        return max(1.0, wait_s) * (1 + self._rng.random() / 4)
