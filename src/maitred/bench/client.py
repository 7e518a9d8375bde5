"""One request and its answer, stamped as it comes: the reader behind every figure of a run.

An instant is taken once a read, when its bytes are there. A stream is whole when the API's own end was in it;
that its connection closed proves nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from maitred.bench.forms import Form, counts, judge_whole, text_of
from maitred.bench.shot import Ending, Shot
from maitred.core.outcome import FailureKind
from maitred.net.client import AnswerHead, ClientConnection
from maitred.sim.arrival import Arrival
from maitred.wire.answers import Says
from maitred.wire.sse import Event, Scanner

REFUSALS = (429, 503, 529)
KEPT_BYTES_MAX = 16 * 1024 * 1024
"""Of an answer that is no stream, and of the events whose text is wanted."""


class Call:
    """One request on its way, and the Reader of its answer.

    It writes into `shot`, and calls `over` once, after the last of it; `stale` instead where the connection
    had been closed before it was used. `trace`: the instant of each read with tokens is wanted.
    """

    __slots__ = (
        "_clock", "_failed", "_form", "_kept", "_kept_bytes", "_last", "_last_at", "_over", "_reads",
        "_scanner", "_stale", "_trace", "_whole", "arrival", "connecting", "connection", "patience",
        "shot",
    )  # fmt: skip

    def __init__(
        self,
        arrival: Arrival,
        shot: Shot,
        form: Form,
        clock: Callable[[], float],
        over: Callable[[Call], None],
        stale: Callable[[Call], None],
        *,
        trace: bool = False,
    ) -> None:
        self.arrival = arrival
        self.shot = shot
        self.connection: ClientConnection | None = None
        self.connecting: asyncio.Task[None] | None = None
        self.patience: asyncio.TimerHandle | None = None
        self._form = form
        self._clock = clock
        self._over = over
        self._stale = stale
        self._trace = trace
        self._scanner: Scanner | None = None  # of a stream
        self._kept: list[bytes] = []  # a whole answer, or the events whose text is wanted
        self._kept_bytes = 0
        self._last = b""  # the last event with a token
        self._last_at = 0.0
        self._reads: list[float] = []
        self._whole = False
        self._failed = ""

    @property
    def text(self) -> str:
        """What was answered, where the request belongs to a conversation; "" where too much was."""
        if self._kept_bytes > KEPT_BYTES_MAX:
            return ""
        return "".join(map(text_of, self._kept if self._scanner else [b"".join(self._kept)]))

    # -- Reader -----------------------------------------------------------------------------------

    def head(self, head: AnswerHead) -> None:
        """See Reader."""
        shot = self.shot
        shot.status = head.status
        for name, value in head.headers:
            if name == b"content-type":
                if value.startswith(b"text/event-stream"):
                    self._scanner = Scanner()
            elif name == b"x-maitred-outcome":
                shot.why = value.decode("latin-1")

    def read(self, body: bytes, complete: bool) -> None:
        """See Reader."""
        if self._scanner is not None:
            self._hear(self._scanner.feed(body))
        elif body:
            self._keep(body)
        if complete:
            self._end()

    def failed(self, kind: FailureKind, detail: str) -> None:  # noqa: ARG002 - details are not comparable
        """See Reader."""
        if kind is FailureKind.STALE_CONNECTION:
            self._stale(self)
        else:
            self.finish(Ending.FAILED, kind.label)

    def finish(self, ending: Ending, why: str = "") -> None:
        """It is over, for this reason."""
        shot = self.shot
        shot.over_at = self._clock()
        shot.ending, shot.why = ending, why
        shot.reads_at = tuple(self._reads)
        self._over(self)

    # -- a stream ---------------------------------------------------------------------------------

    def _hear(self, events: list[Event]) -> None:
        """The events of one read."""
        now, shot, find, tokens = self._clock(), self.shot, self._form.token.search, 0
        for event in events:
            data = event.data
            found = find(data)
            if found is None:
                self._notice(event)
                continue
            tokens += 1
            self._last = data
            if found.lastindex is None:
                if shot.answer_at is None:
                    shot.answer_at = now
                if self.arrival.conversation:
                    self._keep(data)
        if not tokens:
            return
        if shot.first_at is None:
            shot.first_at = now
        else:
            shot.gaps += 1
            shot.gap_max_s = max(shot.gap_max_s, now - self._last_at)
        if shot.counted:
            shot.tokens += tokens
        self._last_at = now
        if self._trace:
            self._reads.append(now)

    def _notice(self, event: Event) -> None:
        """An event without a token: the end, the usage, an error, or nothing to us."""
        said = self._form.says(event)
        if said is Says.ERROR:
            self._failed = "error_event"
        elif said is not Says.NOTHING:
            self._whole = True
        if b"usage" in event.data:
            self._count(event.data)

    # -- ends -------------------------------------------------------------------------------------

    def _end(self) -> None:
        """The answer is complete, as far as HTTP can tell."""
        shot, streams = self.shot, self._scanner is not None
        if shot.status != 200:
            refused = shot.status in REFUSALS
            why = shot.why or f"status_{shot.status}"
            self.finish(Ending.REFUSED if refused else Ending.FAILED, why)
            return
        if streams:
            if not self._whole and self._last:
                self._whole = self._form.ended(self._last)
            if shot.counted and self._last:
                self._count(self._last)
        else:
            body = b"".join(self._kept)
            self._whole, self._failed = True, judge_whole(body)
            self._count(body)
        if self._failed:
            self.finish(Ending.FAILED, self._failed)
        elif not self._whole:
            self.finish(Ending.FAILED, "truncated")
        elif self.arrival.stream and self._form.stream and not streams:
            self.finish(Ending.FAILED, "not_a_stream")
        else:
            self.finish(Ending.COMPLETED)
            if streams and shot.first_at is None:  # an answer without a word is first seen at its end
                shot.first_at = shot.answer_at = shot.over_at

    def _count(self, data: bytes) -> None:
        """The server's own count, if it is in there; it goes before ours."""
        told = counts(data)
        if told is None:
            return
        shot = self.shot
        shot.counted = False
        shot.prompt_tokens, shot.tokens, shot.cached_tokens = told.prompt, told.output, told.cached

    def _keep(self, data: bytes) -> None:
        self._kept_bytes += len(data)
        if self._kept_bytes <= KEPT_BYTES_MAX:
            self._kept.append(data)
