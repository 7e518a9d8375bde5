"""One answer on its way from an engine to a client, in callbacks: no task is woken for a chunk.

    HOLDING     nothing has left for the client; a failure can still be repeated elsewhere
    STREAMING   content has left; a failure ends the stream with an error event
    OVER        the journey has been told

A stream's start is held until its first content (or an error, or a bound), so that an engine failing right
after its first event costs the client nothing. From then on each read passes in one write: the engine's own
chunks where they begin and end whole and nothing in them must change, else its body in a chunk of ours.
"""

from __future__ import annotations

import asyncio
from enum import IntEnum

from msgspec import Struct

from maitred.core.outcome import FailureKind, Outcome, Refusal
from maitred.core.words import Failure, Leg, Usage
from maitred.door.house import House
from maitred.door.read import Order
from maitred.net.client import AnswerHead, ClientConnection, Read
from maitred.proxy.answer import Answered, UpstreamFailed, answer_headers, failure_of_status, is_event_stream
from maitred.proxy.exchange import Exchange
from maitred.wire import errors
from maitred.wire.judge import Judge, StreamJudge, WholeJudge
from maitred.wire.undo import Undo

PROGRESS_TOKENS = 16
"""The core is told at multiples of this: by count, so that replays do not depend on how reads were cut."""


class Hold(Struct, frozen=True):
    """How much of an answer is held back before its first content, in bytes and in seconds."""

    bytes_max: int = 64 * 1024
    time_s: float = 1.0


class _Stage(IntEnum):
    HOLDING = 0
    STREAMING = 1
    OVER = 2


class Relay:
    """Reader of one upstream answer, flow of one exchange, call of one leg.

    `over` resolves to Answered, or raises UpstreamFailed or Refusal.
    """

    __slots__ = (
        "_connection", "_exchange", "_head", "_held", "_held_bytes", "_hold", "_hold_timer", "_house",
        "_judge", "_leg", "_order", "_stage", "_thinking", "_told", "_undo", "over",
    )  # fmt: skip

    def __init__(
        self,
        house: House,
        order: Order,
        leg: Leg,
        exchange: Exchange,
        connection: ClientConnection,
        hold: Hold,
    ) -> None:
        self._house = house
        self._order = order
        self._leg = leg
        self._exchange = exchange
        self._connection: ClientConnection | None = connection
        self._hold = hold
        self._hold_timer: asyncio.TimerHandle | None = None
        self._stage = _Stage.HOLDING
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._told = 0
        self._thinking = False
        self._head: AnswerHead
        self._judge: Judge
        self._undo: Undo | None = None
        self.over: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()

    # -- Reader: what the engine does -------------------------------------------------------------

    def head(self, head: AnswerHead) -> None:
        """See Reader."""
        self._head = head
        failure = failure_of_status(head)
        if failure is not None:
            self._fail(failure)
            return
        request, route = self._order.request, self._order.route
        streamed = request.stream and head.status == 200 and is_event_stream(head)
        self._judge = StreamJudge(request.sequences) if streamed else WholeJudge(refused=head.status != 200)
        hides_usage = streamed and self._order.hides_usage
        if hides_usage or route.renamed:
            served_as = route.served_as if route.renamed else None
            self._undo = Undo(hides_usage=hides_usage, served_as=served_as, name=route.name)

    def read(self, read: Read) -> None:
        """See Reader."""
        if read.complete:
            self._connection = None
        if self._stage is _Stage.STREAMING:
            self._pass(read)
        elif self._stage is _Stage.HOLDING:
            self._look(read)

    def failed(self, kind: FailureKind, detail: str) -> None:
        """See Reader."""
        self._connection = None
        self._fail(Failure(kind, detail=detail))

    # -- Flow: what the client does ---------------------------------------------------------------

    def pause(self) -> None:
        """See Flow."""
        if self._connection is not None:
            self._connection.pause()

    def resume(self) -> None:
        """See Flow."""
        if self._connection is not None:
            self._connection.resume()

    # -- Call: what the house does ----------------------------------------------------------------

    def drop(self) -> None:
        """Abort the engine's answer; the engine sees its client leave, and ours hears nothing."""
        if not self.over.done():
            self.over.cancel()
        self._close()

    def cut(self, refusal: Refusal) -> None:
        """End the answer now and say why."""
        if self._stage is _Stage.OVER:
            return
        if self._stage is _Stage.STREAMING:
            self._break_off(refusal.outcome, refusal.message)
        self.over.set_exception(refusal)
        self._close()

    # -- holding ----------------------------------------------------------------------------------

    def _look(self, read: Read) -> None:
        """One read of an answer of which nothing has left yet: pass it, hold it, or fail."""
        judge = self._judge
        if read.body:
            self._held.append(read.body)
            self._held_bytes += len(read.body)
        fresh = read.body if judge.streamed or not read.complete else b"".join(self._held)
        failure = judge.look(fresh, complete=read.complete)
        if failure is not None:
            self._fail(failure)
        elif judge.begun or self._held_bytes > self._hold.bytes_max:
            self._commit(complete=read.complete)
        elif judge.streamed and self._hold_timer is None:
            loop = asyncio.get_running_loop()
            self._hold_timer = loop.call_later(self._hold.time_s, self._commit)

    def _commit(self, *, complete: bool = False) -> None:
        """Send the head and what was held; from here on nothing can be repeated."""
        if self._stage is not _Stage.HOLDING:
            return
        self._stage = _Stage.STREAMING
        held, judge, head = b"".join(self._held), self._judge, self._head
        self._held.clear()
        self._order.parts.clear()
        self._thinking = judge.reasoning
        self._house.answered(self._leg)
        judge.begin(held)
        headers = answer_headers(head, self._order.request.id, streamed=judge.streamed)
        if complete and not judge.streamed:
            self._exchange.respond(head.status, headers, self._undone(held, complete=True))
            self._finish(*judge.end())
            return
        self._exchange.start(head.status, headers, head.length if self._undo is None else None)
        self._exchange.write(self._undone(held, complete=complete))
        if complete:
            self._end()

    # -- streaming --------------------------------------------------------------------------------

    def _pass(self, read: Read) -> None:
        """One read of a committed answer, on to the client."""
        body = read.body
        if body:
            self._count(self._judge.note(body))
        undo = self._undo
        if (
            read.whole_chunks
            and not read.complete
            and self._exchange.chunked
            and (undo is None or undo.passes(body))
        ):
            self._exchange.write_chunks(read.raw, len(body))
            return
        self._exchange.write(body if undo is None else self._undone(body, complete=read.complete))
        if read.complete:
            self._end()

    def _count(self, tokens: int) -> None:
        while tokens - self._told >= PROGRESS_TOKENS:
            self._told += PROGRESS_TOKENS
            self._house.progress(self._leg, self._told)
        if self._thinking and not self._judge.reasoning:
            self._thinking = False
            self._house.answer_began(self._leg)

    def _undone(self, body: bytes, *, complete: bool) -> bytes:
        if self._undo is None:
            return body
        body = self._undo.feed(body)
        return body + self._undo.flush() if complete else body

    # -- the end ----------------------------------------------------------------------------------

    def _end(self) -> None:
        """The engine's last byte has come: say so to the client, unless something was missing."""
        failure, usage = self._judge.end()
        if failure is not None and failure.kind is FailureKind.TRUNCATED:
            self._break_off(failure.kind.outcome, failure.detail)
        else:
            self._exchange.end()
        self._finish(failure, usage)

    def _finish(self, failure: Failure | None, usage: Usage | None) -> None:
        if failure is not None:
            self.over.set_exception(UpstreamFailed(self._leg, failure, usage))
        else:
            refused = self._head.status != 200
            self.over.set_result(Answered(Outcome.ENGINE_REFUSED if refused else Outcome.COMPLETED, usage))
        self._close()

    def _fail(self, failure: Failure) -> None:
        """The engine's answer will not come, or no further."""
        if self._stage is _Stage.OVER:
            return
        usage = None
        if self._stage is _Stage.STREAMING:
            _, usage = self._judge.end()
            self._break_off(failure.kind.outcome, failure.detail)
        self._finish(failure, usage)

    def _break_off(self, outcome: Outcome, message: str) -> None:
        """Tell the client that what it has is not the whole: in the stream's own words, or by breaking it."""
        if self._judge.streamed:
            self._exchange.write(errors.event(outcome, message))
            self._exchange.end()
        else:
            self._exchange.abort()

    def _close(self) -> None:
        self._stage = _Stage.OVER
        self._exchange.flow = None
        if self._hold_timer is not None:
            self._hold_timer.cancel()
        if self._connection is not None:
            self._connection.abort()
            self._connection = None
