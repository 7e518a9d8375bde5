"""A house in virtual time: the production core, a workload before it and engine models behind it.

`Fleet` is a shell like the gateway: it tells the core what happens, verb by verb, and does what `release`
says. Nothing here decides. One request's way: `_arrive`, `_pump`, `_send`, `hear`, `_ended`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from random import Random

from msgspec import Struct

from maitred.core.chooser import PREFIXED
from maitred.core.events import Ended, Hub, LegFailed
from maitred.core.gateway import Gateway
from maitred.core.journal import RecordingGateway
from maitred.core.outcome import FailureKind, Outcome, Refusal
from maitred.core.words import (
    Abilities,
    Api,
    Change,
    Drop,
    Failure,
    Go,
    Identity,
    KvEvents,
    Leg,
    LegPhase,
    Request,
    Settings,
    Stop,
    Ticket,
    Usage,
)
from maitred.net.sweep import PERIOD_S as SWEEP_S
from maitred.sim.agenda import ARRIVALS, ENDS, TIMERS, Agenda
from maitred.sim.arrival import Arrival, Record, Workload
from maitred.sim.invariants import Violation, Watch
from maitred.sim.job import DONE, FIRST, Job, Told
from maitred.sim.keys import Keys
from maitred.sim.node import INFINITY, Node

BYTES_PER_TOKEN = 4
"""Of a request's body: about what English text has."""

WAKE_TURNS, CONNECT_TURNS, ANSWER_TURNS = 1, 1, 3
"""Turns of the gateway's loop until a journey is woken, has a connection, hears what was answered at once."""
EVENTS_TURNS = 2
"""And until it hears the events of a cache."""

Write = Callable[[bytes], None]


class Waits(Struct, frozen=True):
    """How long the gateway waits for an engine, in seconds; `network_s` is a client's way there and back."""

    connect_s: float = 2.0
    first_byte_s: float = 600.0
    idle_s: float = 300.0
    network_s: float = 0.0


class Fleet:
    """One run. `journal` is given every verb with its answer, one line each.

    `records` holds what became of each arrival, in the order of their ends.
    """

    def __init__(
        self,
        settings: Settings,
        nodes: Iterable[Node],
        workload: Workload,
        seed: int,
        waits: Waits,
        journal: Write | None = None,
    ) -> None:
        self.seed = seed
        self.agenda = Agenda()
        self.hub = Hub()
        self.nodes = {node.name: node for node in nodes}
        self._block_tokens = {
            node.name.rpartition("/")[0]: node.profile.block_tokens for node in self.nodes.values()
        }
        self.gateway = (
            Gateway(settings, Abilities(), Random(seed), self.hub.tell)
            if journal is None
            else RecordingGateway(settings, Abilities(), seed, self.hub.tell, journal)
        )
        self.watch = Watch(self.gateway)
        self.hub.subscribe({Ended: self._ended, LegFailed: self.watch.hears})
        self.records: list[Record] = []
        self.expected = 0
        """Arrivals that have not come, and tickets that have not ended."""
        self.waits = waits
        self._workload = workload
        self._keys = Keys()
        self._arrivals: dict[str, Arrival] = {}
        self._preempted: dict[str, int] = {}  # at engines that tickets have left
        self._due: float | None = None
        self._awaited: dict[float, dict[int, tuple[Node, LegPhase]]] = {}  # who has to be further by when

    @property
    def now(self) -> float:
        """The instant, in seconds since the start of the run."""
        return self.agenda.now

    def begin(self) -> None:
        """Put what comes first on the agenda."""
        self._expect(iter(self._workload.begin(self.now)))

    def step(self) -> bool:
        """Let the next thing happen; False at the end. Raises Violation."""
        if not self.agenda.step():
            return False
        wrong = self.watch.check()
        if wrong is not None:
            raise Violation(self.seed, self.agenda.done, wrong)
        return True

    def change(self, change: Change) -> None:
        """The world or the settings changed."""
        self.gateway.update(change, self.now)
        self._pump()

    # -- the journey of a request -----------------------------------------------------------------

    def _expect(self, arrivals: Iterator[Arrival]) -> None:
        """Put the next of these on the agenda; the one after it is made when that has come."""
        arrival = next(arrivals, None)
        if arrival is not None:
            self.expected += 1
            self.agenda.at(arrival.at, ARRIVALS, self._arrive, (arrival, arrivals))

    def _arrive(self, what: tuple[Arrival, Iterator[Arrival]]) -> None:
        arrival, following = what
        self._expect(following)
        request = self._request(arrival)
        try:
            ticket = self.gateway.accept(request, Identity(arrival.tenant), self.now)
        except Refusal as refusal:
            self._over(Record(arrival, refusal.outcome, self.now + self.waits.network_s))
            return
        self.watch.accepted(ticket)
        self._arrivals[request.id] = arrival
        if arrival.patience_s is not None:
            self.agenda.at(arrival.at + arrival.patience_s, ARRIVALS, self._leave, ticket)
        self._pump(ticket)

    def _request(self, arrival: Arrival) -> Request:
        """What the door would read of it."""
        blocks, block_tokens = self._blocks(arrival)
        return Request(
            f"sim-{arrival.number}",
            Api.CHAT,
            arrival.model,
            arrival.model,
            arrival.stream,
            arrival.prompt_tokens * BYTES_PER_TOKEN,
            adapter=arrival.adapter,
            fingerprint=arrival.number + 1,
            prompt_tokens=arrival.prompt_tokens,
            prompt_exact=True,
            band=arrival.band,
            blocks=blocks,
            block_tokens=block_tokens,
        )

    def _blocks(self, arrival: Arrival) -> tuple[tuple[int, ...], int]:
        """The keys of the prompt's blocks, where the policy asks for them, and the size of one."""
        settings = self.gateway.settings
        if settings.pools.get(arrival.model, settings.default).routing not in PREFIXED:
            return (), 0
        block_tokens = self._block_tokens[arrival.model]
        return tuple(
            self._keys.of(arrival, block_tokens)[: arrival.prompt_tokens // block_tokens]
        ), block_tokens

    def _pump(self, awake: Ticket | None = None) -> None:
        """What follows each verb that may free or fill a place.

        The journey of the ticket that is `awake` goes on when all others have been woken.
        """
        gateway, agenda = self.gateway, self.agenda
        if not gateway.waiting and not gateway.outbox and self._due is None:
            return
        for effect in gateway.release(self.now):
            match effect:
                case Go(ticket=ticket, legs=legs):
                    for leg in legs:
                        self.watch.seated(leg)
                        if ticket is not awake:
                            agenda.soon(WAKE_TURNS + CONNECT_TURNS, self._send, leg)
                case Stop(ticket=ticket) if ticket is not awake:
                    agenda.soon(WAKE_TURNS, self._stopped, effect)
                case Drop(leg=leg):
                    self._abort(leg)
                    self.watch.left(leg)
        for leg in awake.legs if awake is not None else ():
            if leg.phase is LegPhase.SEATED:
                agenda.soon(CONNECT_TURNS, self._send, leg)
        due = gateway.next_wakeup()
        if due != self._due:
            self._due = due
            if due is not None:
                agenda.at(due, TIMERS, self._ring, due)

    def _ring(self, due: float) -> None:
        if due == self._due:
            self._due = None
            self._pump()

    def _stopped(self, stop: Stop) -> None:
        self.gateway.finish(stop.ticket, stop.outcome, None, self.now)
        self._pump()

    def _send(self, leg: Leg) -> None:
        """A seated leg's request goes to its engine."""
        node = self.nodes[leg.endpoint.name]
        if leg.phase is LegPhase.OVER:
            return
        if node.cut:
            unreachable = Failure(FailureKind.UNREACHABLE, detail="no answer")
            self.agenda.at(self.now + self.waits.connect_s, ENDS, self._fails, (leg, unreachable))
        elif not node.up:
            self._fails((leg, Failure(FailureKind.CONNECT, detail="connection refused")))
        else:
            self.gateway.sent(leg, self.now)
            self._submit(node, leg)

    def _submit(self, node: Node, leg: Leg) -> None:
        arrival = self._arrivals[leg.ticket.request.id]
        job = Job(
            leg.number,
            arrival.prompt_tokens,
            arrival.output_tokens,
            self._keys.of(arrival, node.profile.block_tokens),
            adapter=arrival.adapter,
            leg=leg,
        )
        if not node.engine.fits(job):
            self.agenda.soon(ANSWER_TURNS, self._refused, leg)
            return
        node.jobs[leg.number] = job
        node.requests += 1
        if not node.hung:
            node.engine.submit(job, self.now)
            self.follow(node)
        self._expect_sign(node, leg, self.waits.idle_s if self._heard(node, leg) else self.waits.first_byte_s)

    def _refused(self, leg: Leg) -> None:
        """The engine will not have the request: it is longer than the engine can hold."""
        self.gateway.finish(leg.ticket, Outcome.ENGINE_REFUSED, None, self.now)
        self._pump()

    def follow(self, node: Node) -> None:
        """See to it that the engine's next milestone is heard, and what has changed in its cache."""
        if node.heard is not None and node.heard.news:
            self.agenda.soon(EVENTS_TURNS, self.listen, node)
        due = node.engine.next_at if node.telling else None
        if due is not None and due != node.due:
            node.due = due
            self.agenda.at(due, ENDS, self._advance, (node, due))

    def listen(self, node: Node) -> None:
        """The gateway hears what has changed in a cache; all of it where it has another engine in mind."""
        heard = node.heard
        if heard is None or not (heard.news or heard.cached) or not node.telling:
            return
        self.renew(node)
        if heard.news and node.name in self.gateway.table.by_name:
            self.change(heard.take(node.name))

    def renew(self, node: Node) -> None:
        """Nothing that was heard holds any more where the gateway has another engine in mind."""
        endpoint, heard = self.gateway.table.by_name.get(node.name), node.heard
        if endpoint is None or heard is None or heard.incarnation == endpoint.incarnation:
            return
        heard.incarnation = endpoint.incarnation
        if heard.told:
            heard.told = False
            self.change(KvEvents(node.name, cleared=True, lost=True))
        heard.tell_all()

    def _advance(self, what: tuple[Node, float]) -> None:
        node, due = what
        if due == node.due:
            node.due = INFINITY
            self.hear(node)

    def hear(self, node: Node) -> None:
        """Let the engine come to this instant, and hear what it tells.

        It sends first what is over; the gateway takes another turn to see that it is.
        """
        if not node.telling:
            return
        told = node.engine.advance(self.now)
        told.sort(key=_goes_on)
        for news in told:
            if news.milestone is not DONE:
                self._tell(node, news)
        for news in told:
            if news.milestone is DONE:
                self._tell(node, news)
        self.follow(node)

    def _tell(self, node: Node, told: Told) -> None:
        job = told.job
        leg = job.leg
        if leg is None or job.number not in node.jobs:
            return
        streams = leg.ticket.request.stream
        if told.milestone is DONE:
            usage = Usage(job.prompt_tokens, job.cached_tokens, told.tokens)
            self.gateway.finish(leg.ticket, Outcome.COMPLETED, usage, self.now)
            del node.jobs[job.number]
            self._pump()
        elif told.milestone is FIRST and streams:
            self.gateway.answered(leg, self.now)
            self._pump()
        elif streams:
            self.gateway.progress(leg, told.tokens, self.now)

    def _ended(self, event: Ended) -> None:
        """The core ended a ticket, whatever the reason: this becomes its record."""
        self.watch.hears(event)
        ticket, leg = event.ticket, event.leg
        arrival = self._arrivals.pop(ticket.request.id)
        network_s = self.waits.network_s
        record = Record(arrival, event.outcome, event.at + network_s, attempts=ticket.attempts)
        record.preemptions = self._preempted.pop(ticket.request.id, 0)
        record.queue_s = (event.at if leg is None else leg.seated_at) - ticket.arrival
        if leg is not None:
            record.endpoint = leg.endpoint.name
            job = self.nodes[leg.endpoint.name].jobs.get(leg.number)
            record.preemptions += job.preemptions if job is not None else 0
            if leg.answered_at:
                record.ttft_s = leg.answered_at - ticket.arrival + network_s
        if event.usage is not None:
            record.tokens, record.cached_tokens = event.usage.output_tokens, event.usage.cached_tokens
        self._over(record)

    def _over(self, record: Record) -> None:
        self.records.append(record)
        self.expected -= 1
        self._expect(iter(self._workload.over(record.arrival, record.over_at)))

    # -- what goes wrong --------------------------------------------------------------------------

    def _leave(self, ticket: Ticket) -> None:
        """The client's patience is over: whoever has its answer by now does not mind."""
        if ticket.outcome is not None:
            return
        for leg in ticket.legs:
            made = self._abort(leg)
            if leg.phase is LegPhase.ANSWERED:
                self.watch.left(leg)
                self.gateway.leave(leg, Usage(output_tokens=made, exact=False), self.now)
                self._pump()
        self.gateway.finish(ticket, Outcome.CLIENT_GONE, None, self.now)
        self._pump()

    def _fails(self, what: tuple[Leg, Failure]) -> None:
        leg, failure = what
        if leg.phase is LegPhase.OVER:
            return
        made, ticket = self._abort(leg), leg.ticket
        again = self.gateway.fail(leg, failure, self.now)
        self._pump(ticket)
        outcome = ticket.outcome if again else failure.kind.outcome
        if outcome is not None:
            usage = Usage(output_tokens=made, exact=False) if failure.final else None
            self.gateway.finish(ticket, outcome, usage, self.now)
            self._pump()

    def _abort(self, leg: Leg) -> int:
        """Nobody waits for this leg any more; how many tokens of its answer had come."""
        node = self.nodes[leg.endpoint.name]
        job = node.jobs.get(leg.number)
        if job is None:
            return 0
        self.hear(node)
        made = node.engine.made(job)
        node.jobs.pop(leg.number, None)
        if job.preemptions:
            request_id = leg.ticket.request.id
            self._preempted[request_id] = self._preempted.get(request_id, 0) + job.preemptions
        if not node.hung:
            node.engine.abort(job, self.now)
            self.follow(node)
        return made

    def crash(self, node: Node) -> None:
        """The engine's process dies, and with it every answer there, as far as it had come."""
        self.hear(node)
        node.up = False
        for leg in [job.leg for job in node.jobs.values() if job.leg is not None]:
            kind = FailureKind.TRUNCATED if self._heard(node, leg) else FailureKind.RESET
            self._fails((leg, Failure(kind, final=leg.phase is LegPhase.ANSWERED)))
        node.restart(self.now)

    def silence(self, node: Node) -> None:
        """It tells nothing any more; of streams that run, the gateway's patience begins now."""
        self.hear(node)
        for job in node.jobs.values():
            if job.leg is not None and job.leg.phase is LegPhase.ANSWERED:
                self._expect_sign(node, job.leg, self.waits.idle_s)

    def slow(self, node: Node, factor: float) -> None:
        """Its steps take so many times as long from now on."""
        self.hear(node)
        node.engine.speed = factor
        self.follow(node)

    def _heard(self, node: Node, leg: Leg) -> bool:
        """Whether the head of its answer has come: a stream's comes at once, any other with its end."""
        return leg.ticket.request.stream and leg.sent_at < node.hung_at

    def _expect_sign(self, node: Node, leg: Leg, wait_s: float) -> None:
        """Give the leg up at the look by which the wait is over, unless it is further by then.

        Of a stream that has begun only an engine's silence counts, not that it was preempted for long.
        """
        looked_at = self.now // SWEEP_S * SWEEP_S
        at = math.ceil((looked_at + wait_s) / SWEEP_S) * SWEEP_S
        if at not in self._awaited:
            self._awaited[at] = {}
            self.agenda.at(at, TIMERS, self._sweep, at)
        self._awaited[at][leg.number] = (node, leg.phase)

    def _sweep(self, at: float) -> None:
        for number, (node, phase) in sorted(self._awaited.pop(at).items()):
            job = node.jobs.get(number)
            if job is not None and job.leg is not None and job.leg.phase is phase:
                self._give_up(node, job.leg)

    def _give_up(self, node: Node, leg: Leg) -> None:
        begun = leg.phase is LegPhase.ANSWERED
        if not (begun and node.telling):
            heard = self._heard(node, leg)
            kind = FailureKind.IDLE_TIMEOUT if heard else FailureKind.FIRST_BYTE_TIMEOUT
            self._fails((leg, Failure(kind, final=begun)))


def _goes_on(told: Told) -> bool:
    """Whether something of its answer is still to be made."""
    return math.isnan(told.job.over_at)
