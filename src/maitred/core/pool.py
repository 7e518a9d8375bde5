"""One model's state in the core: who waits for it, and what has been learned of serving it."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from math import trunc  # `int` takes several times as long

from maitred.core import explain, kept, rights, saturation, speed
from maitred.core.blocks import APPROXIMATE, PRECISE, Blocks
from maitred.core.chooser import PREFIXED, may_hope, policy
from maitred.core.explore import idle
from maitred.core.fairness import cost_of
from maitred.core.homes import NEW, worth_until
from maitred.core.outcome import Outcome, Refusal
from maitred.core.predict import RATIO_WEIGHT, Answers, RetryBudget
from maitred.core.prefix import MEMORY, Prefixes
from maitred.core.queue import NEVER, PoolQueue
from maitred.core.receipt import Receipt
from maitred.core.rights import Terms
from maitred.core.saturation import AHEAD, CAP_START, has_room, patience_s
from maitred.core.words import (
    NOTHING_CACHED,
    BandSettings,
    Endpoint,
    EndpointState,
    Identity,
    Leg,
    Phase,
    PoolSettings,
    Request,
    Settings,
    Ticket,
    Usage,
)

READY, QUEUED, DISPATCHED = EndpointState.READY, Phase.QUEUED, Phase.DISPATCHED
RECENT = 0.1
"""Weight of the newest service time in its moving mean: about the last twenty answers count."""
BYTES_PER_TOKEN = 4
CHANCE = 0.8
"""Part of the time a ticket has that its predicted wait may take: beyond it many would come too late."""
TERMS_MAX = 4096
"""Identities whose terms are remembered; beyond it all are found anew."""
HOLD_S = 2.0
"""So long may others pass one that is next and fits nowhere."""
REUSE_GUESS, REUSE_FIRST, REUSE_WEIGHT = 0.8, 1 / 150, 0.002
"""Part of prompts that caches have: a first guess, and how much the first request moves it, and later ones.

It is the mean of all, the guess counting for 149 of them; once there are so many, of about the last 500.
"""
RATIO_MIN, RATIO_MAX = 1 / 8, 8.0
"""A prompt that differs more from its estimate, either way, tells nothing of others."""


class Pool:
    """One pool and its `endpoints`. `service_s` is the mean time of an answer, None until there was one.

    Most tickets find nobody before them and are seated at once: such a one is the `newcomer` until somebody
    has looked, and joins the `queue` only if it has to stay or somebody else comes.
    """

    __slots__ = (
        "_answers", "_fresh", "_ratio", "again_at", "blocks", "budget", "choose", "endpoints", "limits",
        "name", "newcomer", "prefixes", "queue", "reuse", "reuse_weight", "service_s", "terms",
        "unexplored",
    )  # fmt: skip

    def __init__(self, name: str, limits: PoolSettings, bands: Sequence[BandSettings]) -> None:
        self.name = name
        self.limits = limits
        self.endpoints: Sequence[Endpoint] = ()
        self.choose = policy(limits)
        self.terms: dict[Identity, Terms] = {}  # of those who ask for no band
        self.newcomer: Ticket | None = None
        self.queue = PoolQueue(bands)
        self.budget = RetryBudget()
        self.service_s: float | None = None
        self.unexplored = 0  # seats since one was tried that is thought to be slow
        self.prefixes: Prefixes | None = None
        self.blocks = Blocks()
        self.again_at = NEVER  # when somebody is to be looked at who waits for his home
        self._see_prefixes()
        self._answers = Answers()  # by the name asked for: adapters answer in their own way
        self._ratio = 1.0  # of prompts to their estimates
        self.reuse = REUSE_GUESS  # part of prompts that caches are thought to have
        self.reuse_weight = REUSE_FIRST  # of the next prompt in that
        self._fresh = 1.0  # part of prompts that engines do not have in their caches already

    def apply(self, limits: PoolSettings, bands: Sequence[BandSettings]) -> None:
        """Live by these settings from now on."""
        self.line_up()
        self.terms.clear()
        before, self.limits = self.limits, limits
        self.choose = policy(limits)
        if (limits.fairness, limits.order) != (before.fairness, before.order):
            self.queue.line_up_anew(limits)
        self.queue.arrange(bands)
        self._see_prefixes()

    def _see_prefixes(self) -> None:
        """Keep what endpoints have in their caches, where the policy asks for it."""
        routing = self.limits.routing
        if routing not in PREFIXED:
            self.prefixes = None
            return
        if self.prefixes is None:
            self.prefixes = Prefixes()
        self.prefixes.memory = MEMORY.get(routing, 0)

    @property
    def waiting(self) -> int:
        """How many wait."""
        return self.queue.waiting + (self.newcomer is not None)

    def line_up(self) -> None:
        """Have the newcomer wait like everybody else."""
        newcomer, self.newcomer = self.newcomer, None
        if newcomer is not None:
            self.queue.push(newcomer, self.limits)
            self.queue.opens_at = newcomer.arrival

    def remove(self, ticket: Ticket) -> None:
        """Take a waiting ticket out, whatever the reason."""
        if ticket is self.newcomer:
            self.newcomer = None
        else:
            self.queue.remove(ticket)

    def all(self) -> list[Ticket]:
        """Everybody who waits."""
        self.line_up()
        return self.queue.all()

    def next_at(self) -> float:
        """The next instant at which something is due for those who wait."""
        if self.newcomer is not None:
            return self.newcomer.arrival
        return min(self.queue.next_deadline() or NEVER, self.queue.opens_at)

    def learn_terms(self, settings: Settings, band: str, identity: Identity) -> Terms:
        """The terms of who asks for this band; of who asks for none they are remembered."""
        found = rights.terms(settings, self.name, self.limits, band, identity)
        if not band:
            if len(self.terms) >= TERMS_MAX:
                self.terms.clear()
            self.terms[identity] = found
        return found

    def ticket(self, request: Request, identity: Identity, terms: Terms, now: float) -> Ticket:
        """A ticket with what can be said beforehand: its size and, until then, how long it may wait."""
        due_at = give_up_at = now + terms.wait_s
        if request.deadline_s is not None and request.deadline_s < terms.wait_s:
            give_up_at = now + request.deadline_s
        prompt_tokens = request.prompt_tokens or request.body_bytes // BYTES_PER_TOKEN
        if not request.prompt_exact:
            prompt_tokens = trunc(prompt_tokens * self._ratio)
        expected = 0.0
        if request.api.generates:
            expected, most = self._answers[request.model][identity.tenant], request.output_tokens_max
            if most and most < expected:
                expected = float(most)
            if request.sequences != 1:
                expected *= request.sequences
        home, prefixes = "", self.prefixes
        if prefixes is None:
            cached, reuse, fresh = NOTHING_CACHED, 0.0, trunc(prompt_tokens * self._fresh)
        else:
            cached, reuse, fresh = prefixes.match(request, prompt_tokens), self.reuse, prompt_tokens
            if self.blocks.told:
                cached = self._told(request, cached, now)
            for name, tokens in cached.items():  # the first has the most
                fresh -= tokens
                home = name if NEW * tokens >= prompt_tokens else ""
                break
        need = fresh + trunc(self.limits.kv_reserve * expected)
        lane = (f"+{request.adapter}",) if request.adapter else ()
        # By position, in the order of the fields: keywords cost as much again.
        ticket = Ticket(
            request,
            identity,
            now,
            give_up_at,
            due_at,
            give_up_at,
            terms.band,
            terms.weight,
            prompt_tokens,
            expected,
            need,
            lane,
            fresh,
            cached,
            home,
            reuse,
            terms.rank,
        )
        if terms.goals and (ttft_s := request.ttft_s or self.limits.ttft_s) is not None:
            self._hold_to(ticket, ttft_s)
        return ticket

    def _told(self, request: Request, thought: Mapping[str, int], now: float) -> Mapping[str, int]:
        """Who has how much of a prompt, as engines tell; and of those who do not, as is thought."""
        blocks = self.blocks
        return _known(blocks.match(request, now), thought, blocks) if request.blocks else thought

    def look_up(self, ticket: Ticket, now: float) -> None:
        """See once more who has how much of its prompt."""
        prefixes = self.prefixes
        assert prefixes is not None  # noqa: S101 - asked where there are some
        cached = prefixes.match(ticket.request, ticket.prompt_tokens)
        if self.blocks.told:
            cached = self._told(ticket.request, cached, now)
        ticket.cached, ticket.reuse = cached, self.reuse
        fresh = ticket.prompt_tokens - next(iter(cached.values()), 0)  # the first has the most
        ticket.need += fresh - ticket.fresh
        ticket.fresh = fresh

    def seat(self, ticket: Ticket, endpoint: Endpoint, number: int, now: float) -> Leg:
        """Seat a ticket: its leg, and what it takes there beside what should be there already."""
        prefixes, fresh = self.prefixes, ticket.fresh
        thought, exact = -1, False
        need = ticket.need - fresh
        if ticket is self.newcomer:  # nobody had to wait for it
            self.newcomer, self.queue.served_at = None, now
        else:
            self.queue.serve(ticket, now)
        endpoint.turn, endpoint.seated = number, endpoint.seated + 1
        if prefixes is not None:
            prompt, cold, told = ticket.prompt_tokens, not ticket.home, self.blocks.told
            if prompt:
                weight = self.reuse_weight
                self.reuse += weight * ((prompt - fresh) / prompt - self.reuse)
                if weight > REUSE_WEIGHT:
                    self.reuse_weight = weight / (1 + weight)
            if cold:
                endpoint.cold = number
            thought = ticket.cached.get(endpoint.name, 0)
            if told and endpoint.name in told and ticket.request.blocks:
                exact = True
            fresh = prompt - (thought if exact else trunc(thought * endpoint.kept))
        ticket.attempts = tries = ticket.attempts + 1
        # By position, as a ticket.
        leg = Leg(
            number, ticket, endpoint, endpoint.incarnation, tries, now, thought, exact, fresh, fresh + need
        )
        ticket.phase, ticket.legs = DISPATCHED, [leg]
        saturation.reserve(leg, now)
        if prefixes is not None:
            prefixes.sent(ticket.request, endpoint, cold)
            if told:
                self.blocks.sent(leg, now)
        return leg

    def freed(self, leg: Leg, now: float) -> None:
        """A leg has left its place here, which may be had again."""
        self.queue.opens_at = now
        if self.prefixes is not None:
            self.prefixes.left(leg.ticket.request, leg.endpoint, leg.incarnation)
        saturation.give_back(leg, now)

    def went(self, leg: Leg, endpoint: Endpoint, now: float) -> None:
        """The request of a leg went here instead of where was meant, which it has left."""
        leg.endpoint, leg.incarnation, leg.thought = endpoint, endpoint.incarnation, -1
        leg.fresh, leg.reserved = leg.ticket.fresh, leg.ticket.need
        saturation.reserve(leg, now)
        if self.prefixes is not None:
            self.prefixes.sent(leg.ticket.request, endpoint, not leg.ticket.home)
            if self.blocks.told:
                self.blocks.sent(leg, now)

    def put_back(self, ticket: Ticket, failed: str, now: float) -> None:
        """Have a ticket wait once more, in its old place, for another seat than where it failed."""
        ticket.excluded += (failed,)
        ticket.lane += (failed,)
        ticket.phase = QUEUED
        ticket.queue_deadline, ticket.ttft_s = ticket.give_up_at, 0.0  # too late for its goal, not for it
        if self.prefixes is not None:
            self.look_up(ticket, now)
            self.send_home(ticket)
        self.line_up()
        self.queue.push(ticket, self.limits)
        self.queue.opens_at = now

    def receipt(
        self, ticket: Ticket, chosen: Endpoint, offered: Sequence[Endpoint], now: float, *, explored: bool
    ) -> Receipt:
        """Why a ticket goes where it goes, asked before it has its seat; `explored`: not by the policy."""
        index = self.index(ticket, chosen)
        return explain.receipt(
            ticket, chosen, offered, self.endpoints, index, self.limits, now, explored=explored
        )

    def index(self, ticket: Ticket, endpoint: Endpoint) -> tuple[str, str]:
        """How it is known what an endpoint has of a prompt, and why not by its engine's word, or not well."""
        request, blocks = ticket.request, self.blocks
        if self.prefixes is None:
            return "none", ""
        if request.untold is not None:
            return APPROXIMATE, request.untold.label
        told = blocks.told.get(endpoint.name)
        if told is None:
            return APPROXIMATE, "no_events"
        if not request.blocks:
            return APPROXIMATE, "no_blocks"
        return PRECISE, "lost" if told.lost else ""

    def renew(self, endpoint: Endpoint) -> None:
        """See whether another engine is there now, which has nothing."""
        self.blocks.renew(endpoint)
        if self.prefixes is not None:
            self.prefixes.renew(endpoint)

    def keep(self, names: Container[str]) -> None:
        """Forget what was known of endpoints that are not among these any more."""
        self.blocks.keep(names)
        if self.prefixes is not None:
            self.prefixes.keep(names)

    def send_home(self, ticket: Ticket) -> None:
        """Say where the most of its prompt is: those of one home wait in one lane, and hold up no others."""
        ticket.home = ""
        for name, tokens in ticket.cached.items():
            if NEW * tokens >= ticket.prompt_tokens and name not in ticket.excluded:
                ticket.home = name
                return

    def _hold_to(self, ticket: Ticket, ttft_s: float) -> None:
        """Have the ticket wait no longer than leaves the goal for its first token within reach."""
        ticket.ttft_s = ttft_s
        rate = max((endpoint.speed for endpoint in self.endpoints if endpoint.state is READY), default=0.0)
        if rate:
            latest = ticket.arrival + patience_s(ticket, rate, AHEAD * ttft_s)
            ticket.queue_deadline = min(ticket.queue_deadline, latest)
            ticket.due_at = min(ticket.due_at, latest)

    def admit(self, ticket: Ticket, now: float, later: Callable[[float], float]) -> Sequence[Ticket]:
        """Let a ticket wait where others do already; who have to go for it. Raises Refusal.

        `later` makes of a predicted wait the one to tell. Whoever can be seated past those who wait may come.
        """
        queue, limits, endpoints = self.queue, self.limits, self.endpoints
        if not queue.behind(ticket) and self.choose(endpoints, ticket, limits, now) is not None:
            return ()
        wait_s = queue.wait_s(ticket, limits, now, self.service_s or 0.0)
        if rest_s := _rest_s(endpoints, now):
            wait_s = max(wait_s or 0.0, rest_s)
        if wait_s is not None and wait_s > CHANCE * (ticket.queue_deadline - now):
            message = f"it would have to wait about {wait_s:.1f} s, longer than it can"
            raise Refusal(Outcome.DEADLINE_UNMEETABLE, message, retry_after_s=later(wait_s))
        if not queue.crowded(ticket, limits):
            return ()
        victims = queue.victims(ticket, limits)
        if not victims:
            drain_s = self.drain_s(now) if wait_s is None else wait_s
            raise Refusal(Outcome.QUEUE_FULL, "too many requests are waiting", retry_after_s=later(drain_s))
        return victims

    def next(self, now: float) -> tuple[Ticket, Endpoint, Sequence[Endpoint]] | None:
        """The next ticket that fits somewhere, where, and which endpoints it could choose from.

        Others may pass one that is next and fits nowhere, for HOLD_S; then the emptiest endpoint
        is kept for it.
        """
        endpoints, limits, choose = self.endpoints, self.limits, self.choose
        failed: dict[tuple[int, str, tuple[str, ...]], int] = {}  # of a lane the least need without room
        for ticket in self.queue.heads():
            kind = ticket.rank, ticket.home, ticket.lane
            if ticket.need >= failed.get(kind, NEVER):
                continue
            if self.prefixes is not None:
                self.look_up(ticket, now)
            endpoint = choose(endpoints, ticket, limits, now)
            if endpoint is not None:
                return ticket, endpoint, endpoints
            if ticket.home:
                self._look_again(ticket, endpoints, now)
            if not failed and not ticket.home:
                endpoints = self._kept_for(ticket, endpoints, now)
            failed[kind] = ticket.need
        return None

    def explore(self, ticket: Ticket, chosen: Endpoint, offered: Sequence[Endpoint], now: float) -> Endpoint:
        """The chosen one, unless this ticket can be spared to try one that is thought to be slow.

        Only a stream shows how fast one is, and who has a home, of whom this is not asked, would lose more.
        """
        if not ticket.request.stream:
            return chosen
        self.unexplored = 0
        other = idle(offered, chosen, ticket, self.limits, now)
        if other is None:
            return chosen
        other.reads.doubt()
        return other

    def _look_again(self, ticket: Ticket, endpoints: Sequence[Endpoint], now: float) -> None:
        """Have the ticket looked at when its home is not worth the wait any more."""
        for endpoint in endpoints:
            if endpoint.name == ticket.home:
                until = worth_until(ticket, endpoint)
                if now < until < self.again_at:
                    self.again_at = until

    def _kept_for(self, ticket: Ticket, endpoints: Sequence[Endpoint], now: float) -> Sequence[Endpoint]:
        """Those that others may have while this ticket is next and fits nowhere; after HOLD_S one fewer."""
        mine = [each for each in endpoints if each.state is READY and may_hope((each,), ticket)]
        if not has_room(mine, self.limits, now):
            return endpoints
        if now - self.queue.held_at.setdefault(id(ticket), now) < HOLD_S:
            return endpoints
        kept = min(mine, key=lambda each: each.reserved)
        return [each for each in endpoints if each is not kept]

    def ended(self, ticket: Ticket, usage: Usage) -> None:
        """Learn from what a ticket came to, and have its tenant pay that instead of what was thought."""
        request, prompt_tokens = ticket.request, usage.prompt_tokens
        if usage.exact:
            if usage.output_tokens and ticket.expected:
                tokens = usage.output_tokens // request.sequences
                self._answers[request.model].seen(ticket.identity.tenant, tokens)
            if prompt_tokens:
                if self.prefixes is None:  # else it is seen of each prompt
                    self._fresh += RATIO_WEIGHT * (1 - usage.cached_tokens / prompt_tokens - self._fresh)
                estimate = request.prompt_tokens or request.body_bytes // BYTES_PER_TOKEN
                if not request.prompt_exact and estimate:
                    seen = prompt_tokens / estimate
                    if RATIO_MIN < seen < RATIO_MAX:
                        self._ratio += RATIO_WEIGHT * (seen - self._ratio)
        if ticket.flow is not None:
            fresh_tokens = (prompt_tokens or ticket.prompt_tokens) - usage.cached_tokens
            self.queue.settle(ticket, cost_of(fresh_tokens, usage.output_tokens))

    def learn(self, leg: Leg, usage: Usage | None, now: float) -> None:
        """Learn from a whole answer: how long it took, how fast its endpoint is, and what its cache had."""
        ticket, service_s, mean_s = leg.ticket, now - leg.seated_at, self.service_s
        if mean_s is None:
            mean_s = service_s
        self.service_s = mean_s + RECENT * (service_s - mean_s)
        if usage is not None and ticket.request.sequences == 1:
            if leg.thought > 0 and usage.exact:
                kept.learn(leg, usage)
            if ticket.request.stream and ticket.expected:
                speed.learn(leg, usage, self.endpoints, now)
        if not self.limits.cap:
            saturation.served(leg.endpoint, self.limits, now)

    def drain_s(self, now: float) -> float:
        """What those who wait will take, one after the other in all places, by the time answers take."""
        places = sum(
            endpoint.share * (self.limits.cap or endpoint.cap or CAP_START)
            for endpoint in self.endpoints
            if endpoint.state is READY
        )
        if not places:
            return 0.0
        return _rest_s(self.endpoints, now) + (self.waiting + 1) * (self.service_s or 1.0) / places


def _known(told: dict[str, int], thought: Mapping[str, int], blocks: Blocks) -> Mapping[str, int]:
    """What is told, and of those who do not tell what is thought; the most first."""
    others = [name for name in thought if name not in blocks.told]
    if not others:
        return told
    for name in others:
        told[name] = thought[name]
    return dict(sorted(told.items(), key=lambda item: -item[1]))


def _rest_s(endpoints: Sequence[Endpoint], now: float) -> float:
    """How long until the first of them is back, where all have asked to be left alone."""
    back = min((each.rests_until for each in endpoints if each.state is READY), default=0.0)
    return max(0.0, back - now)
