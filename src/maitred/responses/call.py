"""One call of the model inside a turn: what its journey answers to, in place of a client.

The journey is the same as any other request's, so tenant, band, session, deadline and trace mean what they
always do. Nothing of its answer is the client's yet: what a stream brings is handed on read by read, in the
relay's callback; everything else is kept for the turn.
"""

from __future__ import annotations

from collections.abc import Callable

from maitred.core.outcome import Refusal
from maitred.core.words import Api
from maitred.net.exchange import Flow, RequestHead

CHAT = "/v1/chat/completions"
OWN_FRAMING = (b"content-encoding", b"transfer-encoding", b"expect")
"""Headers that are true of the client's body, and not of the one made from it."""
SESSION, BAND = b"x-session-id", b"x-maitred-band"

Hear = Callable[[bytes], object]
Fed = Callable[[Flow], object]


def inner_head(head: RequestHead, session: str, band: str, path: str = CHAT) -> RequestHead:
    """The head of a model call: what the client said of its request, and by what it is to be known."""
    fields = {name: value for name, value in head.fields.items() if name not in OWN_FRAMING}
    if session:
        fields.setdefault(SESSION, session.encode())
    if band:
        fields[BAND] = band.encode()
    return RequestHead("POST", path, fields, http11=True, length=None)


class ModelCall:
    """An Exchange (proxy/exchange.py).

    `hear` is given the bytes of a stream as they come; `fed` is told who feeds it, whenever the request
    leaves for an engine. Afterwards: `refusal`, where it got no answer; else the answer's `status` and
    `headers` (lines), and `answer` if it was no stream. `whole` is False where it broke off; `over` is, too,
    where it was stopped.
    """

    __slots__ = (
        "_fed", "_flow", "_hear", "_leave", "_parts", "_streamed", "body", "head", "headers", "over",
        "refusal", "started", "status", "whole",
    )  # fmt: skip

    def __init__(self, head: RequestHead, body: bytes, hear: Hear, fed: Fed, *, streamed: bool) -> None:
        self.head = head
        self.body = body
        self.over = self.started = self.whole = False
        self.status = 0
        self.headers = b""
        self.refusal: Refusal | None = None
        self._flow: Flow | None = None
        self._hear = hear
        self._fed = fed
        self._streamed = streamed
        self._parts: list[bytes] = []
        self._leave: Callable[[], object] | None = None

    @property
    def answer(self) -> bytes:
        """All of an answer that was no stream."""
        return b"".join(self._parts)

    def leave(self) -> None:
        """Nobody wants the answer any more: the engine's work is aborted."""
        if self._leave is not None:
            self._leave()

    # -- Exchange ---------------------------------------------------------------------------------

    @property
    def flow(self) -> Flow | None:
        """Who feeds it; the relay says so when it sends the request."""
        return self._flow

    @flow.setter
    def flow(self, flow: Flow | None) -> None:
        self._flow = flow
        if flow is not None:
            self._fed(flow)

    def watch(self, on_gone: Callable[[], object]) -> None:
        """See Exchange."""
        self._leave = on_gone

    def refuse(self, refusal: Refusal, request_id: str, api: Api | None = None) -> None:  # noqa: ARG002
        """See Exchange."""
        self.over = True
        if not self.started:
            self.refusal = refusal

    fail = refuse

    def respond(self, status: int, headers: bytes, body: bytes) -> None:
        """See Exchange."""
        self.over = self.started = self.whole = True
        self.status, self.headers = status, headers
        self._parts.append(body)

    def start(
        self,
        status: int,
        headers: bytes,
        length: int | None,  # noqa: ARG002
        body: bytes,
        complete: bool = False,
    ) -> None:
        """See Exchange."""
        self.started = True
        self.status, self.headers = status, headers
        self._streamed = self._streamed and status == 200
        self.write(body)
        if complete:
            self.over = self.whole = True

    def write(self, body: bytes) -> None:
        """See Exchange."""
        if self._streamed:
            self._hear(body)
        else:
            self._parts.append(body)

    def end(self, body: bytes = b"") -> None:
        """See Exchange."""
        self.write(body)
        self.over = self.whole = True

    def abort(self) -> None:
        """See Exchange."""
        self.over = True
