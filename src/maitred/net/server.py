"""One client connection: strict parsing of requests, answers in order, and noticing that the client left.

Requests are handed to a `Site` whole, one at a time, as an `HttpExchange`; pipelined ones wait their turn.
Whatever two readers could understand differently (lengths, encodings, line ends, hosts) is refused and the
connection closed, so that a request cannot be smuggled past the gateway inside another. llhttp in strict
mode refuses most of it; `_check_head` adds what it lets pass.
"""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn, Protocol, cast

import httptools
from msgspec import Struct

from maitred.core.outcome import Outcome, Refusal
from maitred.net.burst import Burst
from maitred.net.exchange import HttpExchange, Keeper, RequestHead
from maitred.net.repeats import Known, Repeats
from maitred.net.sweep import NEVER, Sweep
from maitred.net.target import is_host, path_of

PIPELINED_MAX = 64
"""Requests that may wait behind the one being served, with bodies of at most one largest body in all."""
DISCARD_BYTES_MAX = 64 * 1024
"""A refused request's body up to this size is read and dropped; a larger one ends the connection."""
LINGER_S = 2.0
"""How long a closing connection is still read, so that the client sees the answer and not a reset."""


NO_HEAD = RequestHead("", "", {}, http11=True, length=None)
"""Stands for a head that could not be read."""


class HttpLimits(Struct, frozen=True):
    """Bounds of one connection; sizes in bytes, times in seconds."""

    head_bytes_max: int = 64 * 1024
    headers_max: int = 128
    body_bytes_max: int = 64 * 1024 * 1024
    head_timeout_s: float = 10.0
    body_timeout_s: float = 30.0
    keep_alive_s: float = 620.0
    write_timeout_s: float = 60.0


class Site(Keeper, Protocol):
    """Who answers. `heads`: what one connection learns of a head is known to all of its site."""

    heads: Known[RequestHead]

    def check(self, head: RequestHead) -> None:
        """Raise Refusal when this head is enough to refuse; called before the body is read."""

    def serve(self, exchange: HttpExchange) -> None:
        """Answer one request, now or later."""

    def refuse(self, exchange: HttpExchange, refusal: Refusal, *, keep: bool) -> None:
        """Answer a request that was refused before it could be served; not `keep`: and close."""

    def left(self, exchange: HttpExchange) -> None:
        """The client left before its request was whole."""

    def opened(self, connection: ServerConnection) -> None:
        """A client came."""

    def closed(self, connection: ServerConnection) -> None:
        """A client's connection is over."""


class ServerConnection(asyncio.Protocol):
    """One TCP connection of a client."""

    __slots__ = (
        "_advancing", "_alone", "_barren", "_bodies", "_broken", "_burst", "_chunked_body", "_current",
        "_cut_short", "_expects", "_fed", "_fields", "_head", "_head_at", "_head_bytes", "_head_over",
        "_limits", "_lingering", "_parser", "_paused", "_pending", "_received", "_refusal", "_repeated",
        "_repeats", "_site", "_sweep", "_unsent", "_url", "client", "deadline", "transport",
    )  # fmt: skip

    def __init__(self, site: Site, sweep: Sweep, burst: Burst, limits: HttpLimits) -> None:
        self._site = site
        self._sweep = sweep
        self._burst = burst
        self._limits = limits
        self._parser: Any = None  # a head that is known needs none
        self._repeats = Repeats(site.heads)
        self._pending: list[HttpExchange] = []  # short, and nearly always empty
        self._current: HttpExchange | None = None
        self._broken: Refusal | None = None
        self._lingering = False  # closing: what still comes is read and dropped
        self._advancing = False
        self._paused = False  # the client does not take what was written
        self._unsent = 0
        self._head_bytes = 0
        self._head_over = False
        self._head: RequestHead | None = None
        self._expects = False
        self.client = ""
        self.deadline = sweep.now + limits.keep_alive_s

    def _begin(self) -> None:
        """Expect a head that is not known."""
        self._url = b""
        self._fields: dict[bytes, bytes] = {}
        self._repeated: list[tuple[bytes, bytes]] = []
        self._bodies: list[bytes] = []
        self._chunked_body = bytearray()  # chunks may be tiny, and pieces of memory are not
        self._received = 0
        self._barren = 0  # bytes since the last of the body
        self._expects = False
        self._head_at = 0.0
        self._head_bytes = 0
        self._head_over = False
        self._head = None
        self._cut_short = False
        self._refusal: Refusal | None = None

    @property
    def idle(self) -> bool:
        """Whether it serves nobody at the moment and no request is on its way."""
        return self._current is None and not self._pending and not self._head_bytes

    @property
    def unsent(self) -> int:
        """Bytes written and not yet taken by the client."""
        return self.transport.get_write_buffer_size()

    # -- asyncio.Protocol -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self.transport = self._burst.outlet(cast("asyncio.Transport", transport))
        peer = transport.get_extra_info("peername")
        self.client = f"{peer[0]}:{peer[1]}" if peer else ""
        self._sweep.add(self)
        self._site.opened(self)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self._lingering or self._broken is not None:
            return
        fresh = not self._head_bytes and not self._pending
        if fresh and (body := self._repeats.body(data)) is not None:
            head = self._repeats.head
            if len(body) <= self._limits.body_bytes_max and (head.known or self._lets_in(head)):
                exchange = HttpExchange(self, self._site, self.client, head, body)
                if self._current is None and not self._paused:
                    self._current, self.deadline = exchange, NEVER
                    self._site.serve(exchange)
                else:
                    self._pending.append(exchange)
                return
        self._read(data, fresh=fresh)

    def _read(self, data: bytes, *, fresh: bool) -> None:
        """Parse what has no known head; `fresh`: it is the first of a request, and nobody waits."""
        self._fed = len(data)
        self._alone = True
        if self._head_bytes:
            self._head_bytes += self._fed
        if self._head_over:
            self._barren += self._fed
        self._parse(data)
        if (self._barren if self._head_over else self._head_bytes) > self._limits.head_bytes_max:
            self._break(Refusal(Outcome.HEADERS_TOO_LARGE, "the request head is too large"))
        if fresh and len(self._pending) == 1:
            self._learn(data, self._pending[0])
        self._advance()

    def eof_received(self) -> None:
        """See asyncio.Protocol: whoever stops sending has left; there is no half-open service."""
        if self._current is not None:
            self.transport.abort()
        else:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """See asyncio.Protocol."""
        self._sweep.discard(self)
        self._site.closed(self)
        self._parser = None  # it names this connection, and this connection it
        exchange, self._current = self._current, None
        if exchange is not None:
            exchange.lost()
        for waiting in self._pending:
            self._site.left(waiting)
        self._pending.clear()
        if self._head is not None and not self._lingering:
            self._site.left(HttpExchange(self, self._site, self.client, self._head, b""))

    def pause_writing(self) -> None:
        """See asyncio.Protocol: the client is slow."""
        self._paused = True
        self._unsent = self.transport.get_write_buffer_size()
        self._set_deadline()
        if self._current is not None:
            self._current.hold(paused=True)

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        self._paused = False
        self._set_deadline()
        if self._current is not None:
            self._current.hold(paused=False)
        self._advance()

    def expired(self, now: float) -> None:
        """See Sweep: too slow with its head or body, idle for too long, or not taking its answer."""
        unsent = self.transport.get_write_buffer_size()
        if 0 < unsent < self._unsent:  # it takes little, but it takes
            self._unsent = unsent
            self.deadline = now + self._limits.write_timeout_s
        elif self._lingering or self._paused or self.transport.is_closing() or not self._head_bytes:
            self.transport.abort()
        else:
            self._break(Refusal(Outcome.REQUEST_TIMEOUT, "the request did not arrive in time"))
            self._advance()

    # -- serving in order -------------------------------------------------------------------------

    def done(self, exchange: HttpExchange, keep: bool) -> None:
        """The exchange is answered in full; `keep`: the connection may carry another."""
        if exchange is not self._current:
            return
        self._current = None
        if not keep:
            self.close()
        elif self._pending or self._expects or self._broken is not None:
            self._burst.flush()  # a client that reads slowly is told of before it is served more
            if not self._advancing:
                self._advance()
        elif self._paused or self._head_bytes:
            self._set_deadline()
        else:
            self.deadline = self._sweep.now + self._limits.keep_alive_s

    def close(self) -> None:
        """Close after what was written has left; an unread body is drained for a moment."""
        self._pending.clear()
        if self.transport.is_closing():
            return
        if self._broken is None and not self._head_bytes:
            self._unsent = self.transport.get_write_buffer_size()
            self.deadline = self._sweep.now + self._limits.write_timeout_s
            self.transport.close()
            return
        self._lingering = True
        self.deadline = self._sweep.now + LINGER_S
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def _set_deadline(self) -> None:
        """Set the deadline of what the connection waits for now."""
        now, limits = self._sweep.now, self._limits
        if self._paused:
            self.deadline = now + limits.write_timeout_s
        elif self._current is not None:
            self.deadline = NEVER
        elif self._head_over:
            self.deadline = now + limits.body_timeout_s
        elif self._head_bytes:
            self.deadline = self._head_at + limits.head_timeout_s
        else:
            self.deadline = now + limits.keep_alive_s

    def _advance(self) -> None:
        """Serve what is whole, in order; then refuse what is broken; then wait for more."""
        if self._lingering or self._paused:
            return
        self._advancing = True
        while self._current is None and self._pending and not self._paused:
            exchange = self._current = self._pending.pop(0)
            self.deadline = NEVER
            if exchange.refusal is not None:
                self._site.refuse(exchange, exchange.refusal, keep=True)
            else:
                self._site.serve(exchange)
        self._advancing = False
        if self._current is not None or self._pending or self.transport.is_closing():
            return
        if self._broken is not None and not self._lingering:
            head = self._head or NO_HEAD
            exchange = self._current = HttpExchange(self, self._site, self.client, head, b"")
            self._site.refuse(exchange, self._broken, keep=False)
        if not self._lingering:
            self._ask_for_body()
            self._set_deadline()

    def _ask_for_body(self) -> None:
        """Tell a client that waits for the word that its body may come, now that it is its turn."""
        if self._expects:
            self._expects = False
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    # -- parsing ----------------------------------------------------------------------------------

    def _lets_in(self, head: RequestHead) -> bool:
        """Whether a head that was let in before still is; if not, the parser sees it, and it is refused."""
        try:
            self._site.check(head)
        except Refusal:
            return False
        return True

    def _learn(self, data: bytes, exchange: HttpExchange) -> None:
        """Know the head of a request again, unless it was refused or ends the connection."""
        again = exchange.refusal is None and exchange.head.keep_alive
        self._repeats.learn(data, exchange.head, len(exchange.body) if again else 0)

    def _parse(self, data: bytes) -> None:
        if self._parser is None:
            self._parser = httptools.HttpRequestParser(self)
            self._begin()
        while True:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
                self._ignore_upgrade()
                if data and self._broken is None:
                    continue
            except httptools.HttpParserError as error:
                self._break(Refusal(Outcome.BAD_REQUEST, f"malformed HTTP request: {error}"))
            return

    def _ignore_upgrade(self) -> None:
        """Go on as if no upgrade had been asked for.

        llhttp ends such a request with its head and leaves the rest to whoever upgrades. A body that is
        still to come is read by a fresh parser, put into its state by a head of the same framing.
        """
        self._parser = httptools.HttpRequestParser(self)
        if self._cut_short and self._head is not None:
            length = self._head.length
            framing = b"transfer-encoding: chunked" if length is None else b"content-length: %d" % length
            self._parser.feed_data(b"POST / HTTP/1.1\r\nhost: -\r\n%b\r\n\r\n" % framing)

    def on_url(self, url: bytes) -> None:
        """The request target, or a piece of it."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header line; trailers are dropped."""
        if not self._head_over:
            name = name.lower()
            if name in self._fields:
                self._repeated.append((name, self._fields[name]))
            self._fields[name] = value

    def on_headers_complete(self) -> None:
        """The head is over: enough to refuse, or to ask for the body."""
        if self._head_over:  # the stand-in of `_ignore_upgrade`
            return
        self._head_over = True
        head = self._head = self._read_head()
        self._check_head(head)
        try:
            self._site.check(head)
        except Refusal as refusal:
            asks = b"expect" in head.fields
            if asks or head.method == "CONNECT" or head.expects_body(DISCARD_BYTES_MAX):
                self._stop(refusal)
            self._refusal = refusal
            return
        expect = head.fields.get(b"expect")
        self._expects = expect is not None and expect.lower() == b"100-continue" and head.http11

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._barren = 0
        self._received += len(body)
        if self._received > self._limits.body_bytes_max:
            self._stop(Refusal(Outcome.BODY_TOO_LARGE, self._too_large()))
        if self._refusal is None:
            if self._head is not None and self._head.length is None:
                self._chunked_body += body
            else:
                self._bodies.append(body)

    def on_message_complete(self) -> None:
        """The request is whole: it may be served when those before it are."""
        head = self._head
        assert head is not None  # noqa: S101 - it was read when the head was over
        if not self._cut_short:
            # HTTP/1.0 would have to be told that it is kept, and gains nothing.
            head.keep_alive = head.http11 and self._parser.should_keep_alive()
            if b"upgrade" in head.fields and head.length != 0 and self._parser.should_upgrade():
                self._cut_short = True  # only the head is over: see `_ignore_upgrade`
                return
        bodies = self._bodies
        body = bodies[0] if len(bodies) == 1 else bytes(self._chunked_body) or b"".join(bodies)
        if self._pending:
            self._check_backlog(len(body))
        exchange = HttpExchange(self, self._site, self.client, head, body)
        exchange.refusal = self._refusal
        self._pending.append(exchange)
        self._alone = False
        self._begin()

    def on_message_begin(self) -> None:
        """A request begins. How much of this read is its head is known only if it is alone in it."""
        self._head_at = self._sweep.now
        self._head_bytes = self._fed if self._alone else 1

    def _check_backlog(self, body_bytes: int) -> None:
        """Refuse a client that sends too far ahead of its answers."""
        waiting_bytes = body_bytes + sum(len(exchange.body) for exchange in self._pending)
        if len(self._pending) >= PIPELINED_MAX or waiting_bytes > self._limits.body_bytes_max:
            self._stop(Refusal(Outcome.BAD_REQUEST, "too many requests at once on one connection"))

    def _read_head(self) -> RequestHead:
        fields, parser = self._fields, self._parser
        method = parser.get_method().decode("ascii")
        return RequestHead(
            method,
            path_of(self._url, method),
            fields,
            parser.get_http_version() == "1.1",
            None if b"transfer-encoding" in fields else int(fields.pop(b"content-length", 0)),
            query=self._url.partition(b"?")[2] if b"?" in self._url else b"",
        )

    def _check_head(self, head: RequestHead) -> None:
        """Refuse a head that is too large, or that another reader might understand differently."""
        fields, limits = head.fields, self._limits
        if not head.path:
            self._stop(Refusal(Outcome.BAD_REQUEST, "malformed request target"))
        if not head.http11 or head.length is None or self._repeated or not is_host(fields.get(b"host", b"")):
            repeated = [name for name, _ in self._repeated]
            problem = _ambiguity(self._parser.get_http_version(), fields, repeated)
            if problem is not None:
                self._stop(Refusal(Outcome.BAD_REQUEST, problem))
        if len(fields) + len(self._repeated) > limits.headers_max:
            self._stop(Refusal(Outcome.HEADERS_TOO_LARGE, f"more than {limits.headers_max} headers"))
        if self._head_bytes > limits.head_bytes_max or self._fed > limits.head_bytes_max:
            # Perhaps: body and neighbours are in these figures.
            lines = (*fields.items(), *self._repeated)
            size = len(self._url) + sum(len(name) + len(value) for name, value in lines)
            if size > limits.head_bytes_max:
                self._stop(Refusal(Outcome.HEADERS_TOO_LARGE, "the request head is too large"))
        if head.length is not None and head.length > limits.body_bytes_max:
            self._stop(Refusal(Outcome.BODY_TOO_LARGE, self._too_large()))

    def _break(self, refusal: Refusal) -> None:
        """Nothing more is understood on this connection; the first reason is the one to tell."""
        if self._broken is None:
            self._broken = refusal

    def _stop(self, refusal: Refusal) -> NoReturn:
        """Refuse and read no further: raising makes the parser stop where it is."""
        self._break(refusal)
        raise ValueError(refusal.message)

    def _too_large(self) -> str:
        return f"the body is larger than {self._limits.body_bytes_max} bytes"


def _ambiguity(version: str, fields: dict[bytes, bytes], repeated: list[bytes]) -> str | None:
    """What llhttp accepts of an unusual head and another reader might understand differently."""
    if version not in ("1.1", "1.0"):
        return "only HTTP/1.0 and HTTP/1.1 are spoken here"
    coding = fields.get(b"transfer-encoding")
    if coding is not None and (version == "1.0" or coding.lower() != b"chunked"):
        return "the only transfer coding understood is chunked"
    if b"transfer-encoding" in repeated or b"content-encoding" in repeated:
        return "codings on several lines are not understood"
    host = fields.get(b"host", b"" if version == "1.1" else b"-")
    if b"host" in repeated or not is_host(host):
        return "exactly one well-formed Host header is needed"
    return None
