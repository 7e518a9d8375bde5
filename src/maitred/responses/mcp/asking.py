"""One request to an MCP server over HTTP, and its answer: JSON, or what matters of a stream of events."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from msgspec import Raw

from maitred.core.outcome import FailureKind
from maitred.net.client import AnswerHead
from maitred.net.pool import ConnectFailed, Pool
from maitred.responses.mcp.server import Failed, Server, http_failed, protocol_failed
from maitred.wire.mcp import NotMcp, RpcError, reply
from maitred.wire.sse import Scanner

NO_ANSWER = RpcError(0)
"""What a request gets that asks for none."""
CLOSE_S = 0.05
"""How long a stream may take to end once it has answered, so that its connection can be used again."""
STREAM, JSON = b"text/event-stream", b"application/json"


class Answer:
    """Reader of one answer to the request of this id; None waits for no more than a status.

    `over` is done when the answer is there, `ended` when the connection may be used again.
    """

    __slots__ = (
        "_bodies",
        "_request_id",
        "_scanner",
        "_server",
        "_size",
        "complete",
        "ended",
        "over",
        "session",
        "status",
    )

    def __init__(self, server: Server, request_id: int | None) -> None:
        loop = asyncio.get_running_loop()
        self.over: asyncio.Future[Raw | RpcError] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        self.status = 0
        self.session = b""
        self.complete = False
        self._server = server
        self._request_id = request_id
        self._scanner: Scanner | None = None
        self._bodies: list[bytes] = []
        self._size = 0

    # -- Reader -----------------------------------------------------------------------------------

    def begin(self, head: AnswerHead, body: bytes, complete: bool) -> None:
        """See Reader."""
        self.status = head.status
        for name, value in head.headers:
            if name == b"mcp-session-id":
                self.session = value
            elif name == b"content-type" and value.lower().startswith(STREAM) and head.status == 200:
                self._scanner = Scanner()
        if 300 <= head.status < 400:
            self._fail(http_failed("redirected", head.status, "the server redirects, which is not followed"))
        self.read(body, complete)

    def read(self, body: bytes, complete: bool) -> None:
        """See Reader."""
        self.complete = complete
        self._size += len(body)
        if self._size > self._server.answer_bytes_max:
            largest = self._server.answer_bytes_max
            self._fail(http_failed("too_large", 502, f"the answer is larger than {largest} bytes"))
        elif not self.over.done():
            try:
                self._take(body, complete)
            except NotMcp as wrong:
                self._fail(protocol_failed("protocol_error", 0, f"{wrong}"))
            except Failed as failed:
                self._fail(failed)
        if complete and not self.ended.done():
            self.ended.set_result(None)

    def failed(self, kind: FailureKind, detail: str) -> None:
        """See Reader."""
        if not self.over.done():
            self.over.set_exception(ConnectFailed(kind, detail))

    # -- what it holds ----------------------------------------------------------------------------

    def _take(self, body: bytes, complete: bool) -> None:
        if self._request_id is None:
            found: Raw | RpcError | None = NO_ANSWER
        elif self._scanner is not None:
            told = (
                reply(self._server.hide(event.data), self._request_id) for event in self._scanner.feed(body)
            )
            found = next(filter(lambda one: one is not None, told), None)
        else:
            self._bodies.append(body)
            found = self._whole(self._request_id) if complete else None
        if found is not None:
            self.over.set_result(found)
        elif complete:
            raise NotMcp("its answer ends before it has answered")

    def _whole(self, request_id: int) -> Raw | RpcError:
        """What a body says; where it says nothing, the status does."""
        body = self._server.hide(b"".join(self._bodies))
        with suppress(NotMcp):
            found = reply(body, request_id)
            if isinstance(found, RpcError) or (found is not None and self.status == 200):
                return found
        if self.status == 200:
            raise NotMcp("what it answers is no JSON-RPC")
        raise http_failed("http_error", self.status, f"the server answers with {self.status}")

    def _fail(self, failed: Failed) -> None:
        if not self.over.done():
            self.over.set_exception(failed)


async def ask(
    pool: Pool, server: Server, method: bytes, lines: bytes, body: bytes, request_id: int | None
) -> tuple[Raw | RpcError, Answer]:
    """Send one request. Raises Failed. Leaves nothing behind when cancelled."""
    head = b"%b %b HTTP/1.1\r\nhost: %b\r\n%b%b" % (
        method,
        server.path.encode(),
        server.origin.partition("://")[2].encode(),
        server.lines,
        lines,
    )
    if body:
        head += b"content-type: application/json\r\naccept: application/json, text/event-stream\r\n"
    head += b"content-length: %d\r\n\r\n" % len(body)
    while True:
        connection = None
        answer = Answer(server, request_id)
        try:
            connection = pool.take(server.origin) or await pool.connect(server.origin)
            connection.send(head, (body,), len(body), answer)
            found = await answer.over
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await answer.ended
            return found, answer
        except ConnectFailed as failed:
            if failed.kind is not FailureKind.STALE_CONNECTION:  # only a kept connection can be
                raise http_failed(
                    "unreachable", 502, f"the server cannot be reached ({failed.detail})"
                ) from None
        finally:
            if connection is not None and not answer.complete:
                connection.abort()
