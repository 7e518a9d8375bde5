"""One request and its answer over HTTP/1.1: the written half of a client connection.

An answer is either whole (`respond`) or streamed (`start`, `write`..., `end`). Streams to HTTP/1.1 clients
are chunked; HTTP/1.0 clients get the bare bytes and a close.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from maitred.core.outcome import Refusal
from maitred.core.words import Api
from maitred.wire import errors

if TYPE_CHECKING:
    import asyncio

Headers = Iterable[tuple[bytes, bytes]]

STATUS_LINES = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus}


class RequestHead(Struct):
    """The head of a request: names in lower case, values as they came. `length` None: chunked."""

    method: str
    target: str
    headers: list[tuple[bytes, bytes]]
    http11: bool
    length: int | None
    keep_alive: bool = False

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    def get(self, name: bytes) -> bytes:
        """The first header of this (lower-case) name; b"" when there is none."""
        for key, value in self.headers:
            if key == name:
                return value
        return b""

    def expects_body(self, more_than: int) -> bool:
        """Whether a body of more than so many bytes, or of unknown size, may follow."""
        return self.length is None or self.length > more_than


class Flow(Protocol):
    """Who feeds a stream and can be asked to wait."""

    def pause(self) -> None:
        """The client is slower than what it is given."""

    def resume(self) -> None:
        """It has caught up."""


class Line(Protocol):
    """The connection an exchange writes to."""

    transport: asyncio.Transport
    client: str

    def done(self, exchange: HttpExchange, *, keep: bool) -> None:
        """The answer is over."""


class House(Protocol):
    """What an exchange must know of its site: whether connections are still kept."""

    draining: bool


class HttpExchange:
    """One request with the means to answer it once. `refusal` is set when its head was already refused."""

    __slots__ = (
        "_chunked", "_keep", "_line", "_site", "body", "bytes_sent", "flow", "gone", "head", "on_gone",
        "refusal", "started", "status",
    )  # fmt: skip

    def __init__(self, line: Line, site: House, head: RequestHead, body: bytes) -> None:
        self._line = line
        self._site = site
        self._keep = head.keep_alive
        self._chunked = False
        self.head = head
        self.body = body
        self.refusal: Refusal | None = None
        self.flow: Flow | None = None
        self.on_gone: Callable[[], object] | None = None
        self.gone = False
        self.started = False
        self.status = 0
        self.bytes_sent = 0

    @property
    def client(self) -> str:
        """The client's address, "host:port"."""
        return self._line.client

    @property
    def method(self) -> str:
        """For the access log."""
        return self.head.method

    @property
    def path(self) -> str:
        """For the access log: as the client sent it, without the query."""
        return self.head.path

    @property
    def client_request_id(self) -> str:
        """For the access log: the client's own id, which means nothing to us."""
        return self.head.get(b"x-request-id").decode("latin-1")

    def refuse(self, refusal: Refusal, request_id: str, api: Api | None = None, *, keep: bool = True) -> None:
        """Answer with a refusal in the API's shape; not `keep`: and close."""
        self._keep = self._keep and keep
        headers = [*errors.headers(refusal), (b"x-request-id", request_id.encode())]
        self.respond(refusal.outcome.status, headers, errors.body(refusal, api))

    def fail(self, refusal: Refusal, request_id: str, api: Api | None = None) -> None:
        """Answer with a refusal; break off where an answer has begun."""
        if self.started:
            self.abort()
        else:
            self.refuse(refusal, request_id, api)

    def watch(self, on_gone: Callable[[], object]) -> None:
        """Call this when the client leaves before its answer is over; at once when it has left already."""
        self.on_gone = on_gone
        if self.gone:
            on_gone()

    def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """Answer whole. `headers` must not hold lengths or encodings of the transfer."""
        if self.started or self.gone:
            return
        self.status = status
        self.started = True
        self._keep = self._keep and not self._site.draining
        parts = self._head(status, headers)
        parts.append(b"content-length: %d\r\n\r\n" % len(body))
        if body and self.head.method != "HEAD":
            parts.append(body)
            self.bytes_sent = len(body)
        self._line.transport.writelines(parts)
        self._line.done(self, keep=self._keep)

    def start(self, status: int, headers: Headers, length: int | None = None) -> None:
        """Begin a streamed answer; `length` when it is known, else chunks."""
        self.status = status
        self.started = True
        self._keep = self._keep and not self._site.draining
        self._chunked = length is None and self.head.http11
        if length is None and not self._chunked:
            self._keep = False
        parts = self._head(status, headers)
        if length is not None:
            parts.append(b"content-length: %d\r\n\r\n" % length)
        else:
            parts.append(b"transfer-encoding: chunked\r\n\r\n" if self._chunked else b"\r\n")
        self._line.transport.write(b"".join(parts))

    @property
    def chunked(self) -> bool:
        """Whether the answer goes out in chunks, so that an engine's whole chunks may pass as they are."""
        return self._chunked

    def write(self, body: bytes) -> None:
        """More of a streamed answer, framed as the client needs it."""
        if not body:
            return
        self.bytes_sent += len(body)
        if self._chunked:
            self._line.transport.writelines((b"%x\r\n" % len(body), body, b"\r\n"))
        else:
            self._line.transport.write(body)

    def write_chunks(self, raw: bytes, body_bytes: int) -> None:
        """More of a chunked answer: whole HTTP chunks as they came, `body_bytes` of body in them."""
        self.bytes_sent += body_bytes
        self._line.transport.write(raw)

    def end(self) -> None:
        """The streamed answer is complete."""
        if self._chunked:
            self._line.transport.write(b"0\r\n\r\n")
        self._line.done(self, keep=self._keep)

    def abort(self) -> None:
        """Break the connection, so that nobody takes what was sent for a whole answer."""
        self._line.transport.abort()

    def lost(self) -> None:
        """The client has left before the end."""
        self.gone = True
        self.flow = None
        if self.on_gone is not None:
            self.on_gone()

    def hold(self, *, paused: bool) -> None:
        """The connection says that the client is slow, or has caught up."""
        if self.flow is not None:
            if paused:
                self.flow.pause()
            else:
                self.flow.resume()

    def _head(self, status: int, headers: Headers) -> list[bytes]:
        parts = [STATUS_LINES.get(status) or b"HTTP/1.1 %d Unknown\r\n" % status]
        for name, value in headers:
            parts += (name, b": ", value, b"\r\n")
        if not self._keep:
            parts.append(b"connection: close\r\n")
        return parts
