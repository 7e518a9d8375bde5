"""One answer on its way from an engine to a client, in callbacks: no task is woken for a chunk.

    HOLDING     nothing has left for the client; a failure can still be repeated elsewhere
    STREAMING   content has left; a failure ends the stream with an error event
    OVER        the journey has been told

A stream's start is held until its first content (or an error, or a bound), so that an engine failing right
after its first event costs the client nothing. From then on each read passes in one write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from msgspec import Struct, structs

from maitred.core.mutable import mutable
from maitred.core.outcome import FailureKind, Outcome, Refusal
from maitred.core.words import PROGRESS_TOKENS, Failure, Leg, Usage
from maitred.door.house import House
from maitred.door.read import Order
from maitred.net.client import AnswerHead, ClientConnection
from maitred.proxy.answer import Answered, UpstreamFailed, answer_lines, failure_of_head, in_clients_shape
from maitred.proxy.exchange import Exchange
from maitred.wire import errors
from maitred.wire.judge import NO_ANSWER, Judge, StreamJudge, WholeJudge, grammar_of
from maitred.wire.undo import USAGE, Undo

STOCK_READS = 16
STOCK_BYTES = 1024
"""What has passed is counted every so many reads, at once after a large one that is kept till then."""
EVENT_BEGINS, LINE_END, EVENT_END = b"data: {", b"\n", b"\n\n"
"""How engines write an event of a stream in OpenAI's form."""


class Hold(Struct, frozen=True):
    """How much of an answer is held back before its first content, in bytes and in seconds."""

    bytes_max: int = 64 * 1024
    time_s: float = 1.0


class _Stage(IntEnum):
    HOLDING = 0
    STREAMING = 1
    OVER = 2


HOLDING, STREAMING, OVER = _Stage
LATER: Any = None
"""Of what is not known before the head has come."""
COMPLETED, ENGINE_REFUSED = Outcome.COMPLETED, Outcome.ENGINE_REFUSED


class _Passing:
    """What is noted of an answer that comes in pieces.

    All that a chunk needs is here: of hundreds of streams nothing stays in the processor's
    cache from one chunk to the next, and what has to be fetched takes longer than what is done with it. So
    of events that pass one by one the last three are kept, the most that an end is judged by.
    """

    __slots__ = (
        "begun", "calm", "events", "held", "held_bytes", "judge", "last", "plain", "recent", "second",
        "swift", "tell_at", "thinking", "third", "undo", "watching",
    )  # fmt: skip

    def __init__(
        self, judge: Judge, plain: Callable[[bytes], object], undo: Undo | None, *, calm: bool
    ) -> None:
        self.judge = judge
        self.plain = plain
        self.undo = undo  # of a stream, as long as it is calm, none is needed
        self.calm = calm  # only what is not plain has to be looked at for what may have to be undone
        self.held: list[bytes] = []
        self.held_bytes = 0
        self.recent: list[bytes] = []  # reads that are not counted yet
        self.swift = False  # streaming, calm, and nothing is watched for
        self.events = 0  # that passed one by one and are not counted yet, the last of them:
        self.last = self.second = self.third = b""
        self.tell_at = PROGRESS_TOKENS
        self.watching = False  # for content to begin, or for the answer after the thinking
        self.begun = False  # has content, as far as that is watched for
        self.thinking = False

    def undone(self, body: bytes, order: Order) -> bytes:
        """What may leave of the next bytes of a committed answer, and as what."""
        if self.calm and body.find(USAGE) < 0 and self.plain(body) is not None:
            return body
        undo = self.undo
        if undo is None:
            if not self.judge.streamed:
                return body
            undo = self.undo = _what_to_undo(order, streamed=True)
        body = undo.feed(body)
        self.calm = undo.calm
        return body

    def remainder(self) -> bytes:
        """What is held back of it, at the end of an answer that is whole."""
        return b"" if self.undo is None else self.undo.flush()

    def stock(self) -> int:
        """Count what has passed; the output tokens so far."""
        recent, events = self.recent, self.events
        tokens = 0
        if recent or not events:
            tokens = self.judge.note(recent[0] if len(recent) == 1 else b"".join(recent))
            recent.clear()
        if events:  # they came after those reads
            kept = (self.third, self.second, self.last)[-events:]
            tokens = self.judge.note(b"".join(kept), events - len(kept))
            self.events = 0
            self.third = self.second = self.last = b""
        return tokens


@mutable
class Relay(Struct, eq=False):  # a Struct, because one is made for each request
    """Reader of one upstream answer, flow of one exchange, call of one leg.

    `over` resolves to Answered, or raises UpstreamFailed or Refusal.
    """

    _house: House
    _order: Order
    _leg: Leg
    _connection: ClientConnection | None
    _hold: Hold
    over: asyncio.Future[Answered]
    _exchange: Exchange
    _passing: _Passing = LATER
    _stage: _Stage = HOLDING
    _head: AnswerHead = LATER
    _hold_timer: asyncio.TimerHandle | None = None

    # -- Reader: what the engine does -------------------------------------------------------------

    def begin(self, head: AnswerHead, body: bytes, complete: bool) -> None:
        """See Reader."""
        try:
            if complete and head.status == 200 and not self._order.request.stream:
                self._pass_whole(head, body)
                return
            self._head = head
            if complete:
                self._connection = None  # it is free for others, whatever this answer is
            failure = failure_of_head(head, self._order.request)
            if failure is not None:
                self._fail(failure)
                return
            self._passing = self._what_passes(head)
            if body or complete:
                self._look(body, complete=complete)
        except Exception as bug:  # noqa: BLE001 - see `read`
            self._give_up(bug)

    def _what_passes(self, head: AnswerHead) -> _Passing:
        order = self._order
        request, renamed = order.request, order.route.served_as is not None
        grammar = grammar_of(request.api)
        plain = grammar.plain.fullmatch
        if request.stream and head.status == 200:
            return _Passing(StreamJudge(grammar, request.sequences), plain, None, calm=not renamed)
        judge = WholeJudge(grammar, refused=head.status != 200, until_close=head.until_close)
        return _Passing(judge, plain, _what_to_undo(order, streamed=False) if renamed else None, calm=False)

    def read(self, body: bytes, complete: bool) -> None:
        """See Reader; runs for every chunk of every stream, so its common case is short."""
        try:
            passing = self._passing
            # All but one whole event, as engines write them and with nothing to be undone, is looked at.
            # No `in`: of bytes it first takes what is looked for as a number, and drops the error.
            if (
                complete
                or not passing.swift
                or body.find(LINE_END) != len(body) - len(EVENT_END)
                or not body.endswith(EVENT_END)
                or not body.startswith(EVENT_BEGINS)
                or body.find(USAGE) >= 0
            ):
                self._read(body, complete=complete)
                return
            passing.third, passing.second, passing.last = passing.second, passing.last, body
            events = passing.events = passing.events + 1
            if events >= STOCK_READS:
                self._take_stock()
            self._exchange.write(body)
        except Exception as bug:  # noqa: BLE001 - nobody else would hear of it, and the place would be lost
            self._give_up(bug)

    def _read(self, body: bytes, *, complete: bool) -> None:
        """The beginning or the end of an answer, or what of its middle has to be looked at."""
        if complete:
            self._connection = None
        if self._stage is HOLDING:
            self._look(body, complete=complete)
        elif self._stage is STREAMING:
            passing = self._passing
            recent = passing.recent
            if passing.events:
                self._take_stock()
            recent.append(body)
            if complete:
                self._end(passing.undone(body, self._order))
                return
            if len(recent) >= STOCK_READS or len(body) > STOCK_BYTES or passing.watching:
                self._take_stock()
            self._exchange.write(passing.undone(body, self._order))
            passing.swift = passing.calm and not passing.watching and passing.judge.by_one

    def failed(self, kind: FailureKind, detail: str) -> None:
        """See Reader."""
        self._connection = None
        if self._stage is STREAMING and self._passing.judge.streamed and self._whole():
            self._end(b"")  # nothing was missing but the close
        else:
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
        if self._stage is not OVER:
            self._leave()
            self._close()
            self.over.cancel()

    def cut(self, refusal: Refusal) -> None:
        """End the answer now and say why."""
        if self._stage is OVER:
            return
        if self._stage is STREAMING:
            self._break_off(refusal.outcome, refusal.message)
            self._leave()
        self._close()
        if not self.over.done():
            self.over.set_exception(refusal)

    # -- holding ----------------------------------------------------------------------------------

    def _look(self, body: bytes, *, complete: bool) -> None:
        """One read of an answer of which nothing has left yet: pass it, hold it, or fail."""
        passing = self._passing
        judge, held = passing.judge, passing.held
        held.append(body)
        passing.held_bytes += len(body)
        if not judge.streamed and complete:
            self._look_at_whole(b"".join(held))
            return
        failure = judge.look(body, complete=complete)
        if failure is not None:
            self._fail(failure)
        elif judge.begun or passing.held_bytes > self._hold.bytes_max:
            self._commit(complete=complete)
        elif judge.streamed and self._hold_timer is None:
            self._hold_timer = self._house.loop.call_later(self._hold.time_s, self._commit)

    def _look_at_whole(self, body: bytes) -> None:
        judge = self._passing.judge
        failure = judge.look(body, complete=True)
        if failure is not None:
            self._fail(failure)
        else:
            self._respond(self._head, body, judge.end()[1])

    def _pass_whole(self, head: AnswerHead, body: bytes) -> None:
        """A plain answer in one read, which is nearly every one."""
        order, exchange, over = self._order, self._exchange, self.over
        is_error, usage = grammar_of(order.request.api).read_whole(body)
        if is_error:
            self._connection = None
            self._fail(NO_ANSWER)
            return
        self._stage = OVER
        exchange.flow = None
        if order.route.served_as is not None:
            undo = _what_to_undo(order, streamed=False)
            body = undo.feed(body) + undo.flush()
        exchange.respond(200, answer_lines(head, order, self._leg, self._house), body)
        if not over.done():  # else cancelled a moment ago: the client left
            over.set_result((COMPLETED, usage))

    def _respond(self, head: AnswerHead, body: bytes, usage: Usage | None) -> None:
        """The answer is whole before anything of it has left: it leaves in one piece, and was all."""
        self._stage = OVER
        order, exchange = self._order, self._exchange
        exchange.flow = None
        undo = self._passing.undo
        if undo is not None:
            body = undo.feed(body) + undo.flush()
        if head.status != 200 and len(body) <= self._hold.bytes_max:
            head, body = in_clients_shape(head, body, order.request)
        exchange.respond(head.status, answer_lines(head, order, self._leg, self._house), body)
        if not self.over.done():  # else cancelled a moment ago: the client left
            self.over.set_result((COMPLETED if head.status == 200 else ENGINE_REFUSED, usage))

    def _commit(self, *, complete: bool = False) -> None:
        """Send the head and what was held; from here on nothing can be repeated."""
        if self._stage is not HOLDING:
            return
        self._stage = STREAMING
        order, head, exchange, passing = self._order, self._head, self._exchange, self._passing
        judge = passing.judge
        order.parts.clear()
        held = b"".join(passing.held)
        passing.held.clear()
        streamed, begun, thinking = judge.streamed, judge.begun, judge.reasoning
        if begun or not streamed:
            self._house.answered(self._leg)
        if streamed and (thinking or not begun):
            passing.begun, passing.thinking, passing.watching = begun, thinking, True
        tokens = judge.begin(held)
        lines = answer_lines(head, order, self._leg, self._house, streamed=streamed)
        body = passing.undone(held, order)
        if complete:
            self._tell(tokens)
            failure, usage = judge.end()
            if failure is None:
                exchange.start(head.status, lines, None, body + passing.remainder(), complete=True)
                self._finish(None, usage)
                return
        length = None if streamed or passing.undo is not None else head.length
        exchange.start(head.status, lines, length, body)
        passing.swift = passing.calm and not passing.watching and judge.by_one
        if complete:
            self._end(b"")

    # -- streaming --------------------------------------------------------------------------------

    def _take_stock(self) -> None:
        """Count what has passed, and tell the core at each multiple of PROGRESS_TOKENS."""
        passing = self._passing
        tokens = passing.stock()
        if passing.watching:
            self._watch()
        if tokens >= passing.tell_at:
            self._tell(tokens)

    def _tell(self, tokens: int) -> None:
        passing = self._passing
        while tokens >= passing.tell_at:
            self._house.progress(self._leg, passing.tell_at)
            passing.tell_at += PROGRESS_TOKENS

    def _watch(self) -> None:
        """See whether content has begun in a stream committed without, or the answer after the thinking."""
        passing = self._passing
        judge = passing.judge
        if judge.begun and not passing.begun:
            passing.begun, passing.thinking = True, judge.reasoning
            self._house.answered(self._leg)
        if passing.thinking and not judge.reasoning:
            passing.thinking = False
            self._house.answer_began(self._leg)
        passing.watching = not passing.begun or passing.thinking

    def _whole(self) -> bool:
        self._take_stock()
        return self._passing.judge.end()[0] is None

    def _leave(self) -> None:
        """Tell the core what was generated of an answer that nobody waits for any more."""
        if self._stage is STREAMING:
            self._take_stock()
            failure, usage = self._passing.judge.end()
            if failure is not None and failure.kind is FailureKind.ERROR_EVENT:
                # Clients leave when they read it; that the engine failed is true all the same.
                self._house.fail(self._leg, structs.replace(failure, final=True))
            self._house.leave(self._leg, usage)

    # -- the end ----------------------------------------------------------------------------------

    def _end(self, last: bytes) -> None:
        """The engine's last byte has come: say so to the client, unless something was missing."""
        self._take_stock()
        failure, usage = self._passing.judge.end()
        if failure is not None and failure.kind is FailureKind.TRUNCATED:
            self._exchange.write(last)
            self._break_off(failure.kind.outcome, failure.detail)
        else:
            self._exchange.end(last + self._passing.remainder())
        self._finish(failure, usage)

    def _finish(self, failure: Failure | None, usage: Usage | None) -> None:
        begun, over = self._stage is STREAMING, self.over
        self._close()
        if over.done():  # cancelled a moment ago: the client left
            pass
        elif failure is not None:
            head = self._head if failure.status else None
            over.set_exception(UpstreamFailed(self._leg, structs.replace(failure, final=begun), usage, head))
        else:
            over.set_result((COMPLETED if self._head.status == 200 else ENGINE_REFUSED, usage))

    def _fail(self, failure: Failure) -> None:
        """The engine's answer will not come, or no further."""
        if self._stage is OVER:
            return
        usage = None
        if self._stage is STREAMING:
            self._take_stock()
            _, usage = self._passing.judge.end()
            self._break_off(failure.kind.outcome, failure.detail)
        self._finish(failure, usage)

    def _break_off(self, outcome: Outcome, message: str) -> None:
        """Tell the client that what it has is not the whole: in the stream's own words, or by breaking it."""
        if self._passing.judge.streamed:
            request = self._order.request
            self._exchange.end(errors.event(outcome, message, request.api, request.id))
        else:
            self._exchange.abort()

    def _give_up(self, bug: Exception) -> None:
        self._close()
        if not self.over.done():
            self.over.set_exception(bug)

    def _close(self) -> None:
        if self._stage is STREAMING:
            self._passing.swift = False
        self._stage = OVER
        self._exchange.flow = None
        if self._hold_timer is not None:
            self._hold_timer.cancel()
        if self._connection is not None:
            self._connection.abort()
            self._connection = None


def _what_to_undo(order: Order, *, streamed: bool) -> Undo:
    route = order.route
    return Undo(
        streamed=streamed,
        strict=grammar_of(order.request.api).strict_clients,
        hides_usage=order.hides_usage,
        served_as=route.served_as,
        name=route.name,
    )
