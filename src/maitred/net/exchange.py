"""One request and its answer over HTTP/1.1: the written half of a client connection.

An answer is either whole (`respond`) or streamed (`start`, `write`..., `end`). Streams to HTTP/1.1 clients
are chunked; HTTP/1.0 clients get the bare bytes and a close.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from maitred.core.mutable import mutable
from maitred.core.outcome import Refusal
from maitred.core.words import Api
from maitred.net import cors
from maitred.net.client import JOIN_BYTES_MAX
from maitred.wire import errors, ratelimits

if TYPE_CHECKING:
    import asyncio

    from maitred.net.burst import Burst, Outlet

RESET = struct.pack("ii", 1, 0)
"""Value of SO_LINGER that makes a close a reset."""
LAST_CHUNK = b"0\r\n\r\n"
LATER: Any = None
"""Of what is not known before an answer begins."""
STATUS_LINES = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus}


def lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Header lines as they go over the wire."""
    return b"".join([b"%b: %b\r\n" % header for header in headers])


def reset(transport: asyncio.Transport) -> None:
    """Break a connection as a process does that dies: the other side sees a reset, and no end."""
    sock = transport.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    transport.abort()


@mutable
class RequestHead(Struct):
    """The head of a request. `length` None: the body is chunked.

    `query` is what follows the path, b"" for nothing. `fields`: headers by name in lower case, without
    content-length. Requests alike but for their lengths may
    share a head, which then tells that of the first; `known` is whether the site need not check such a one
    again, `packed` whether the body comes compressed, and `said` what it made of the fields.
    """

    method: str
    path: str
    fields: dict[bytes, bytes]
    http11: bool
    length: int | None
    keep_alive: bool = False
    known: bool = False
    packed: bool = False
    said: Any = None
    query: bytes = b""

    def expects_body(self, more_than: int) -> bool:
        """Whether a body of more than so many bytes, or of unknown size, may follow."""
        return self.length is None or self.length > more_than


class Flow(Protocol):
    """Who feeds a stream and can be asked to wait."""

    def pause(self) -> None:
        """The client is slower than what it is given."""

    def resume(self) -> None:
        """It has caught up."""

    def drop(self) -> None:
        """It has left: feed it no more."""


class Line(Protocol):
    """The connection an exchange writes to."""

    transport: Outlet

    def done(self, exchange: HttpExchange, keep: bool) -> None:
        """The answer is over."""


class Keeper(Protocol):
    """What an exchange must know of its site: whether connections are kept, whose pages may read answers."""

    draining: bool
    cors: frozenset[str]


@mutable
class HttpExchange(Struct, eq=False):  # a Struct, because one is made for each request
    """One request with the means to answer it once; `client` is the address it came from.

    `refusal` is set when its head was already refused.
    """

    _line: Line
    _site: Keeper
    client: str
    head: RequestHead
    body: bytes
    refusal: Refusal | None = None
    flow: Flow | None = None
    on_gone: Callable[[], object] | None = None
    gone: bool = False
    status: int = 0
    _keep: bool = True
    _chunked: bool = False
    _burst: Burst = LATER
    _below: asyncio.Transport = LATER
    _by_close: bool = False  # nothing but the connection's close tells the client that it has all

    @property
    def started(self) -> bool:
        """Whether anything of an answer has left."""
        return self.status != 0

    def refuse(self, refusal: Refusal, request_id: str, api: Api | None = None, *, keep: bool = True) -> None:
        """Answer with a refusal in the API's shape; not `keep`: and close."""
        self._keep = self._keep and keep
        headers = lines(errors.headers(refusal)) + errors.id_lines(api, request_id)
        if refusal.levels is not None and api is not None:
            headers += ratelimits.lines(refusal.levels, api, time.time())
        self.respond(errors.status(refusal, api), headers, errors.body(refusal, api, request_id))

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

    def respond(self, status: int, headers: bytes, body: bytes) -> None:
        """Answer whole. `headers` are lines without lengths or encodings of the transfer."""
        if self.status or self.gone:
            return
        self.status = status
        self.body = b""  # of no more use; who still names the exchange need not keep it
        site, head, line = self._site, self.head, self._line
        size = len(body)
        if site.cors or site.draining or not (self._keep and head.keep_alive):
            headers += self._more()
        first = STATUS_LINES.get(status) or b"HTTP/1.1 %d Unknown\r\n" % status
        if head.method == "HEAD":
            body = b""
        if status == 204:
            parts: tuple[bytes, ...] = (b"%b%b\r\n%b" % (first, headers, body),)
        elif size <= JOIN_BYTES_MAX:
            parts = (b"%b%bcontent-length: %d\r\n\r\n%b" % (first, headers, size, body),)
        else:
            parts = (b"%b%bcontent-length: %d\r\n\r\n" % (first, headers, size), body)
        outlet = line.transport
        outlet.burst.write(outlet.below, parts)
        line.done(self, self._keep)

    def start(
        self, status: int, headers: bytes, length: int | None, body: bytes, complete: bool = False
    ) -> None:
        """Begin a streamed answer with its first piece; `length` when it is known, else chunks.

        `complete`: that piece is all of it.
        """
        outlet = self._line.transport
        self._burst, self._below = outlet.burst, outlet.below
        if length is not None:
            headers += b"content-length: %d\r\n" % length
        elif self.head.http11:
            self._chunked = True
            headers += b"transfer-encoding: chunked\r\n"
            if body:
                body = b"%x\r\n%b\r\n" % (len(body), body)
            if complete:
                body += LAST_CHUNK
        else:
            self._keep, self._by_close = False, True
        self._burst.write(self._below, (self._head(status, headers, b"\r\n" + body),))
        if complete:
            self._line.done(self, self._keep and not self._site.draining)

    def write(self, body: bytes) -> None:
        """More of a streamed answer, framed as the client needs it."""
        if body:  # framed here, once more: this runs for every chunk of every stream
            piece = b"%x\r\n%b\r\n" % (len(body), body) if self._chunked else body
            self._burst.write(self._below, (piece,))

    def end(self, body: bytes = b"") -> None:
        """The streamed answer is complete with this last piece."""
        if self._chunked:
            framed = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            self._burst.write(self._below, (framed + LAST_CHUNK,))
        elif body:
            self._burst.write(self._below, (body,))
        self._line.done(self, self._keep and not self._site.draining)

    def abort(self) -> None:
        """Break the connection, so that nobody takes what was sent for a whole answer."""
        self.on_gone = None  # it is not the client who leaves
        if self._by_close:
            self.reset()  # a plain close would say: whole
        else:
            self._line.transport.abort()

    def reset(self) -> None:
        """Break the connection with a reset."""
        reset(self._line.transport)

    def lost(self) -> None:
        """The client has left before the end."""
        self.gone = True
        self.body = b""
        flow, self.flow = self.flow, None
        if flow is not None:
            flow.drop()
        if self.on_gone is not None:
            self.on_gone()

    def hold(self, *, paused: bool) -> None:
        """The connection says that the client is slow, or has caught up."""
        if self.flow is not None:
            if paused:
                self.flow.pause()
            else:
                self.flow.resume()

    def _head(self, status: int, headers: bytes, rest: bytes) -> bytes:
        """The head of the answer, and the rest as far as it goes with it."""
        self.status = status
        self.body = b""  # as above
        line = STATUS_LINES.get(status) or b"HTTP/1.1 %d Unknown\r\n" % status
        return b"".join((line, headers, self._more(), rest))

    def _more(self) -> bytes:
        """What is to be said in each answer's head, which mostly is nothing."""
        site, head = self._site, self.head
        more = cors.lines(site.cors, head.fields) if site.cors else b""
        if site.draining or not (self._keep and head.keep_alive):
            self._keep = False
            more += b"connection: close\r\n"
        return more
