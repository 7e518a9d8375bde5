"""One request and its answer, stamped as it comes: the reader behind every figure of a run.

An instant is taken once a read, when its bytes are there. A stream is whole when the API's own end was in it;
that its connection closed proves nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from maitred.bench.forms import Form, judge_whole, text_of, told
from maitred.bench.shot import Ending, Shot
from maitred.core.outcome import FailureKind
from maitred.net.client import AnswerHead, ClientConnection
from maitred.sim.arrival import Arrival
from maitred.wire.answers import Says
from maitred.wire.sse import Event, Scanner

REFUSALS = (429, 503, 529)
KEPT_BYTES_MAX = 16 * 1024 * 1024
"""Of an answer that is no stream, and of the events whose text is wanted."""
OUTCOME_BYTES_MAX = 64


class Call:
    """One request on its way, and the Reader of its answer.

    It writes into `shot`, and calls `over` once, after the last of it; or first `stale`, where a connection
    that was not `fresh` had been closed before it was used. `trace`: the instant of each read with tokens is
    wanted.
    """

    __slots__ = (
        "_clock", "_failed", "_form", "_kept", "_kept_bytes", "_last", "_last_at", "_over", "_reads",
        "_scanner", "_stale", "_trace", "_whole", "arrival", "connecting", "connection", "fresh",
        "patience", "shot",
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
        self.fresh = False
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

    def begin(self, head: AnswerHead, body: bytes, complete: bool) -> None:
        """See Reader."""
        shot = self.shot
        shot.status = head.status
        for name, value in head.headers:
            if name == b"content-type":
                if value.startswith(b"text/event-stream"):
                    self._scanner = Scanner()
            elif name == b"x-maitred-outcome":
                shot.why = value[:OUTCOME_BYTES_MAX].decode("latin-1")
        if body or complete:
            self.read(body, complete)

    def read(self, body: bytes, complete: bool) -> None:
        """See Reader."""
        now = self._clock()
        if self._scanner is not None:
            self._hear(self._scanner.feed(body), now)
        elif body:
            self._keep(body)
        if complete:
            self._finish(now, *self._judged(now))

    def failed(self, kind: FailureKind, detail: str) -> None:  # noqa: ARG002 - details are not comparable
        """See Reader."""
        if kind is FailureKind.STALE_CONNECTION and not self.fresh:
            self._stale(self)
        else:
            self.finish(Ending.FAILED, kind.label)

    def finish(self, ending: Ending, why: str = "") -> None:
        """It is over, for this reason."""
        self._finish(self._clock(), ending, why)

    def _finish(self, now: float, ending: Ending, why: str) -> None:
        shot = self.shot
        shot.over_at, shot.ending, shot.why = now, ending, why
        shot.reads_at = tuple(self._reads)
        self._over(self)

    # -- a stream ---------------------------------------------------------------------------------

    def _hear(self, events: list[Event], now: float) -> None:
        """The events of one read."""
        shot, find, has_token = self.shot, self._form.token.search, False
        for event in events:
            data = event.data
            found = find(data)
            if found is None:
                self._notice(event)
                continue
            has_token = True
            shot.tokens += 1
            shot.counted = True  # also after a usage in between: it was of what came before
            self._last = data
            if found.lastindex is None:
                if shot.answer_at is None:
                    shot.answer_at = now
                if self.arrival.conversation:
                    self._keep(data)
        if not has_token:
            return
        if shot.first_at is None:
            shot.first_at = now
        else:
            shot.gaps += 1
            shot.gap_max_s = max(shot.gap_max_s, now - self._last_at)
        self._last_at = now
        if self._trace:
            self._reads.append(now)

    def _notice(self, event: Event) -> None:
        """An event without a token: the end, the usage, an error, or nothing to us."""
        said = self._form.says(event)
        if said is Says.ERROR:
            self._failed = FailureKind.ERROR_EVENT.label
        elif said is not Says.NOTHING:
            self._whole = True
        self._learn(event.data)

    # -- the end ----------------------------------------------------------------------------------

    def _judged(self, now: float) -> tuple[Ending, str]:
        """How an answer ended that is complete as far as HTTP can tell."""
        shot = self.shot
        if shot.status != 200:
            ending = Ending.REFUSED if shot.status in REFUSALS else Ending.FAILED
            return ending, shot.why or f"status_{shot.status}"
        why = self._fault_of_whole() if self._scanner is None else self._fault_of_stream()
        if why:
            return Ending.FAILED, why
        if self._scanner is not None and shot.first_at is None:
            shot.first_at = shot.answer_at = now  # an answer without a word is first seen at its end
        return Ending.COMPLETED, ""

    def _fault_of_stream(self) -> str:
        """What is wrong with it; "" where nothing is."""
        if self._last and self.shot.counted:
            self._learn(self._last)
        whole = self._whole or (self._last != b"" and self._form.ended(self._last))
        return self._failed or ("" if whole else FailureKind.TRUNCATED.label)

    def _fault_of_whole(self) -> str:
        """What is wrong with it; "" where nothing is."""
        if self._kept_bytes > KEPT_BYTES_MAX:
            return "too_large"
        body = b"".join(self._kept)
        self._learn(body)
        wanted_stream = self.arrival.stream and self._form.stream != b""
        return judge_whole(body) or ("not_a_stream" if wanted_stream else "")

    def _learn(self, data: bytes) -> None:
        """What the server tells, if it is in there; its count of tokens goes before ours."""
        said = told(data)
        if said is None:
            return
        shot = self.shot
        shot.counted = False
        shot.prompt_tokens, shot.tokens = said.prompt_tokens, said.output_tokens
        shot.cached_tokens, shot.queue_s, shot.prefill_s = said.cached_tokens, said.queue_s, said.prefill_s

    def _keep(self, data: bytes) -> None:
        self._kept_bytes += len(data)
        if self._kept_bytes <= KEPT_BYTES_MAX:
            self._kept.append(data)
