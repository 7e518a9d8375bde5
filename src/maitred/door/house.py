"""The house: owner of the core, and the only one who turns its effects into action.

Every verb that may free or fill a place is followed by one pump: ask the core what to do, wake whom it seated
or stopped, re-arm the one timer. Nobody else calls `release`; a forgotten pump would be a lost wake-up.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable, Sequence
from typing import Protocol

from maitred.core.events import AnswerBegan, AtDoor, Emit
from maitred.core.gateway import Gateway
from maitred.core.outcome import Outcome, Refusal
from maitred.core.words import (
    Change,
    Failure,
    Go,
    Identity,
    Leg,
    Phase,
    Request,
    Stop,
    Ticket,
    Usage,
)

QUEUED = Phase.QUEUED  # once: members of an enum cost five times what a name of the module does
STOPPED = {
    Outcome.QUEUE_DEADLINE: "the request waited too long for a free endpoint",
    Outcome.EVICTED: "requests of a higher band took its place in the queue",
    Outcome.NO_ENDPOINT: "no endpoint of this model is ready",
}


class Call(Protocol):
    """What runs for a leg: an answer on its way."""

    def drop(self) -> None:
        """Abort it without a word; the ticket goes on elsewhere."""

    def cut(self, refusal: Refusal) -> None:
        """End it now and tell the client why."""


class House:
    """One Gateway on the running loop, in real or virtual time.

    `running` holds what runs for each leg, by leg number.
    """

    def __init__(self, gateway: Gateway, clock: Callable[[], float], emit: Emit) -> None:
        self.gateway = gateway
        self.clock = clock
        self.loop = asyncio.get_running_loop()  # asking for it costs a system call each time
        self.running: dict[int, Call] = {}
        self._emit = emit
        self._waiters: dict[str, asyncio.Future[None]] = {}
        self._stopped: dict[str, Refusal] = {}  # before they came to wait, by the pump of their own verb
        self._timer: asyncio.TimerHandle | None = None
        self._due: float | None = None
        self._ids = itertools.count(1)
        self._id_prefix = f"req-{secrets.token_hex(5)}-"

    def mint_id(self) -> str:
        """A request id of our own, never the client's."""
        return f"{self._id_prefix}{next(self._ids)}"

    # -- the verbs; the pump follows each that may free or fill a place ----------------------------

    def accept(self, request: Request, identity: Identity) -> Ticket:
        """Let a request in. Raises Refusal."""
        now = self.clock()
        ticket = self.gateway.accept(request, identity, now)
        self._pump(now)
        return ticket

    async def seated(self, ticket: Ticket) -> Sequence[Leg]:
        """The ticket's legs once it has a seat, at once when it has one. Raises Refusal when stopped."""
        if ticket.phase is QUEUED:
            waiter = self.loop.create_future()
            self._waiters[ticket.request.id] = waiter
            try:
                await waiter
            finally:
                del self._waiters[ticket.request.id]
                del waiter  # it names the refusal, and that, by its traceback, this frame
        if ticket.outcome is not None:
            raise self._stopped.pop(ticket.request.id)
        return ticket.legs

    def sent(self, leg: Leg) -> None:
        """The request's bytes left for the leg's endpoint."""
        self.gateway.sent(leg, self.clock())

    def answered(self, leg: Leg) -> None:
        """First content of the leg goes to the client."""
        now = self.clock()
        self.gateway.answered(leg, now)
        self._pump(now)

    def progress(self, leg: Leg, output_tokens_total: int) -> None:
        """The leg's output so far, told at multiples of 16 tokens."""
        self.gateway.progress(leg, output_tokens_total, self.clock())

    def leave(self, leg: Leg, usage: Usage | None) -> None:
        """The leg is over before its ticket."""
        now = self.clock()
        self.gateway.leave(leg, usage, now)
        self._pump(now)

    def fail(self, leg: Leg, failure: Failure) -> bool:
        """The leg failed. True: wait for another seat; False: finish the ticket."""
        now = self.clock()
        again = self.gateway.fail(leg, failure, now)
        self._pump(now)
        return again

    def finish(self, ticket: Ticket, outcome: Outcome, usage: Usage | None) -> Outcome:
        """The ticket is over; the outcome that counts is returned."""
        now = self.clock()
        gateway = self.gateway
        said = gateway.finish(ticket, outcome, usage, now)
        if gateway.waiting or gateway.outbox or self._due is not None:  # as the pump looks, for nearly all
            self._pump(now)
        return said

    def update(self, change: Change) -> None:
        """The world or the settings changed."""
        now = self.clock()
        self.gateway.update(change, now)
        self._pump(now)

    def at_door(self, event: AtDoor) -> None:
        """A request was answered without a ticket: the observers are told."""
        self._emit(event)

    def answer_began(self, leg: Leg) -> None:
        """A stream came from the model's thinking to its answer: the observers are told."""
        self._emit(AnswerBegan(self.clock(), leg))

    def cut_all(self, outcome: Outcome, message: str) -> int:
        """End everything that waits or runs, with this word to its clients; how many there were."""
        calls, waiters = list(self.running.values()), list(self._waiters.values())
        for waiter in waiters:  # first, or a place that a call leaves would be given to one of them
            if not waiter.done():
                waiter.set_exception(Refusal(outcome, message))
        for call in calls:
            call.cut(Refusal(outcome, message))
        return len(calls) + len(waiters)

    # -- the pump ---------------------------------------------------------------------------------

    def _pump(self, now: float) -> None:
        gateway = self.gateway
        if not gateway.waiting and not gateway.outbox and self._due is None:
            return
        for effect in gateway.release(now):
            if isinstance(effect, Go):
                if self._waiters:
                    self._wake(effect.ticket)
            elif isinstance(effect, Stop):
                outcome, retry_after_s = effect.outcome, effect.retry_after_s
                self._stop(effect.ticket, Refusal(outcome, STOPPED[outcome], retry_after_s=retry_after_s))
            elif (call := self.running.get(effect.leg.number)) is not None:
                call.drop()
        due = gateway.next_wakeup() if gateway.waiting else None
        if due != self._due:
            self._arm(due, now)

    def _wake(self, ticket: Ticket) -> None:
        waiter = self._waiters.get(ticket.request.id)
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _stop(self, ticket: Ticket, refusal: Refusal) -> None:
        waiter = self._waiters.get(ticket.request.id)
        if waiter is None:
            self._stopped[ticket.request.id] = refusal
        elif not waiter.done():
            waiter.set_exception(refusal)

    def _arm(self, due: float | None, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due, self._timer = due, None
        if due is not None:
            self._timer = self.loop.call_later(max(0.0, due - now), self._ring, due)

    def _ring(self, due: float) -> None:
        self._due = self._timer = None
        # A loop's timer may fire a little early; the core must still see the deadline as passed.
        self._pump(max(self.clock(), due))
