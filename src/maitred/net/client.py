"""One connection to an engine: sends a request, parses the answer, tells a reader.

The reader is called once a read, never once a chunk: what one read brought of the body is one piece, however
the engine had cut it. Nothing is buffered here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import httptools
from msgspec import Struct

from maitred.core.mutable import mutable
from maitred.core.outcome import FailureKind
from maitred.net.burst import Burst
from maitred.net.repeats import HEAD_BYTES_MAX as KNOWN_BYTES_MAX
from maitred.net.repeats import KNOWN_MAX, Known, Repeats
from maitred.net.sweep import NEVER, Sweep

HEAD_BYTES_MAX = 256 * 1024
"""An engine's head beyond this is no head."""
STALE_S = 1.0
"""A reused connection that dies within this, unheard, had been closed by the engine before it was used."""
JOIN_BYTES_MAX = 16 * 1024
"""Up to this size copying head and body together is cheaper than writing them as two."""

NOT_HTTP = (httptools.HttpParserError, httptools.HttpParserUpgrade)
"""What the parser raises."""
IN_CHUNKS = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
"""A head that says nothing but how the body is framed."""


@mutable
class AnswerHead(Struct):
    """Status and headers of an answer (names in lower case).

    `length` None: it comes in chunks, or, `until_close`, ends with the connection. Whole answers alike but
    for their lengths share a head, so of theirs the length is true only while `begin` runs; and `lines`: what
    the reader made of the headers for the next of them, by what it left out. `is_events` is whether they say
    server-sent events, None until a reader has looked.
    """

    status: int
    headers: list[tuple[bytes, bytes]]
    length: int | None
    until_close: bool = False
    lines: dict[frozenset[bytes], bytes] = {}
    is_events: bool | None = None


class Reader(Protocol):
    """Who wants an answer: one that is complete, or `failed`, is the last call, and there is exactly one."""

    def begin(self, head: AnswerHead, body: bytes, complete: bool) -> None:
        """Status and headers have come, with so much of the body, and whether this was all."""

    def read(self, body: bytes, complete: bool) -> None:
        """More of the body has come, and whether this was the end."""

    def failed(self, kind: FailureKind, detail: str) -> None:
        """No more will come."""


class Patience(Struct, frozen=True):
    """How long to wait, in seconds: for the first byte of an answer, between its reads, on an idle line."""

    first_byte_s: float = 600.0
    idle_s: float = 300.0
    keep_alive_s: float = 4.0


class Owner(Protocol):
    """Who keeps connections; told when one opens, falls idle after an answer, and closes.

    `heads`: what one connection learns of a head is known to all of its owner's. `streams` are those of
    answers in chunks, by all their bytes.
    """

    heads: Known[AnswerHead]
    streams: dict[bytes, AnswerHead]

    def opened(self, connection: ClientConnection) -> Callable[[ClientConnection], object]:
        """It is connected. What is returned is called whenever it may carry another request."""

    def lost(self, connection: ClientConnection) -> None:
        """It is closed."""


class _Closed(asyncio.Transport):
    """Stands where no transport is yet, or any more."""

    def is_closing(self) -> bool:
        return True

    def abort(self) -> None:
        pass


CLOSED = _Closed()


class ClientConnection(asyncio.Protocol):
    """One TCP or TLS connection to an endpoint, used for one request at a time.

    `openings`: how the heads of requests begin that were sent by it, by their path; for those who send.
    """

    __slots__ = (
        "_bodies", "_burst", "_chunked", "_complete", "_freed", "_head_bytes", "_head_over", "_headers",
        "_in_chunks", "_keep", "_length", "_owner", "_parser", "_patience", "_reader", "_repeats", "_sweep",
        "_told_head", "_transport", "authority", "deadline", "heard_at", "on_body", "openings",
        "reused", "sent_at", "url",
    )  # fmt: skip

    def __init__(self, url: str, sweep: Sweep, burst: Burst, patience: Patience, owner: Owner) -> None:
        self.url = url
        self.authority = url.partition("://")[2].encode()
        self.openings: dict[str, bytes] = {}
        self.reused = False
        self.deadline = NEVER
        self._sweep = sweep
        self._patience = patience
        self._burst = burst
        self._owner = owner
        self._reader: Reader | None = None
        self._parser: Any = None  # a head that is known needs none
        self._transport: asyncio.Transport = CLOSED
        self._length: int | None = None
        self._chunked = False
        self._in_chunks = False  # as the last answer was, and so perhaps the next
        self._head_over = False
        self._head_bytes = 0
        self.sent_at = self.heard_at = 0.0  # instants of the sweep's clock
        self._told_head = False
        self._complete = False
        self._keep = False
        self._repeats = Repeats(owner.heads)

    # -- what a dispatcher calls ------------------------------------------------------------------

    @property
    def closing(self) -> bool:
        """Whether it can no longer carry a request."""
        return self._transport.is_closing()

    @property
    def busy(self) -> bool:
        """Whether somebody waits for its answer."""
        return self._reader is not None

    @property
    def unsent_bytes(self) -> int:
        """What was sent and the system has not taken yet."""
        if self.closing:
            return 0
        self._burst.flush()
        return self._transport.get_write_buffer_size()

    def send(self, head: bytes, body: Sequence[bytes | memoryview], size: int, reader: Reader) -> None:
        """Send one request with a body of `size` bytes, in parts; its answer goes to `reader`.

        That hears at once if the line is already dead.
        """
        now = self._sweep.now
        if self._transport.is_closing():
            reader.failed(FailureKind.STALE_CONNECTION, "the connection was lost before it was used")
            return
        self._reader = reader
        self.sent_at = now
        self.deadline = now + self._patience.first_byte_s
        parts = (head + b"".join(body),) if size <= JOIN_BYTES_MAX else (head, *body)
        self._burst.write(self._transport, parts)

    def pause(self) -> None:
        """Read no more until `resume`: the client is slower than the engine."""
        if not self.closing:
            self._transport.pause_reading()
        self.deadline = NEVER

    def resume(self) -> None:
        """Read on."""
        if not self.closing:
            self._transport.resume_reading()
        self.deadline = self._sweep.now + self._patience.idle_s

    def abandon(self) -> None:
        """Close a connection that nobody waited for to the end: a loop may have made it and tell no more."""
        self._transport.abort()
        self.connection_lost(None)

    def abort(self) -> None:
        """Close at once; the reader hears nothing more. The engine sees its client leave."""
        self._reader = None
        self._burst.flush()
        self._transport.abort()

    # -- asyncio.Protocol -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast("asyncio.Transport", transport)
        self._burst.ready()
        self._sweep.add(self)
        self._freed = self._owner.opened(self)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        reader = self._reader
        if reader is None:  # nobody asked: the engine breaks the protocol
            self._transport.abort()
            return
        if not self._told_head:
            if self._head_bytes or self._in_chunks or (again := self._repeats.body(data)) is None:
                self._begin(reader, data)
                return
            head = self._repeats.head
            head.length = len(again)
            self.heard_at = self._sweep.now
            self._free()
            reader.begin(head, again, True)
            return
        try:  # from here on it runs for every chunk of every stream
            self._parser.feed_data(data)
        except NOT_HTTP as error:
            trouble = f"not HTTP: {error}"
        else:
            self.heard_at = self._sweep.now  # `expired` moves the deadline
            bodies = self._bodies
            if self._complete:
                self._finish()
                reader.read(_taken(bodies), True)
            elif len(bodies) == 1:
                reader.read(bodies.pop(), False)
            elif bodies:
                reader.read(_taken(bodies), False)
            return
        # Told only now, or the error would ride along as context of what follows.
        self._lose(FailureKind.BAD_RESPONSE, trouble)

    def _begin(self, reader: Reader, data: bytes) -> None:
        """A head has come that has no known one's form, or more of it."""
        head: AnswerHead | None = None
        rest = data
        if not self._head_bytes:
            if self._parser is None:
                self._ready()
            end = data.find(b"\r\n\r\n", 0, KNOWN_BYTES_MAX) + 4
            if end > 3:
                raw, rest = data[:end], data[end:]
                head = self._owner.streams.get(raw)
                if head is not None:  # the parser gets another that is framed alike
                    self._head_over = self._chunked = True
                    rest = IN_CHUNKS + rest
                elif self._in_chunks:  # it was not looked whether this is a whole one that is known
                    self._in_chunks = False
                    self.data_received(data)
                    return
                elif self._parsed(raw):
                    head = self._learn_stream(raw)
                else:
                    return
        if not self._parsed(rest):
            return
        now = self._sweep.now
        self.heard_at = now
        self._head_bytes += len(data)
        if not self._head_over:
            self.deadline = now + self._patience.idle_s
            if self._head_bytes > HEAD_BYTES_MAX:
                self._lose(FailureKind.BAD_RESPONSE, "the head of the answer is too large")
            return
        body, complete = _taken(self._bodies), self._complete
        if head is None:
            until_close = self._length is None and not self._chunked
            head = AnswerHead(self._parser.get_status_code(), self._headers, self._length, until_close)
            # Bytes that were only a part of the head may be a whole one where they come by themselves.
            whole = complete and self._keep and self._head_bytes == len(data)
            self._repeats.learn(data, head, len(body) if whole else 0)
        self._in_chunks = self._chunked
        if complete:
            self._finish()
        else:
            self._told_head = True
            self.deadline = now + self._patience.idle_s
        reader.begin(head, body, complete)

    def _parsed(self, data: bytes) -> bool:
        """Whether these bytes were what may come; if not, the reader is told."""
        try:
            self._parser.feed_data(data)
        except NOT_HTTP as error:
            trouble = f"not HTTP: {error}"
        else:
            return True
        self._lose(FailureKind.BAD_RESPONSE, trouble)  # only now, as above
        return False

    def _learn_stream(self, raw: bytes) -> AnswerHead | None:
        """The head that was parsed from these bytes, if it is a stream's that may come again.

        It must end with them: of what is behind it something would have been told.
        """
        codings = [value.lower() for name, value in self._headers if name == b"transfer-encoding"]
        if codings != [b"chunked"] or not self._head_over or self._bodies or self._complete:
            return None
        if self._parser.get_status_code() != 200 or not self._parser.should_keep_alive():
            return None
        streams = self._owner.streams
        if len(streams) >= KNOWN_MAX:
            streams.clear()
        head = streams[raw] = AnswerHead(200, self._headers, None)
        return head

    def eof_received(self) -> None:
        """See asyncio.Protocol; an answer without length or chunks is complete now."""
        if self._reader is not None and self._told_head and not self._chunked and self._length is None:
            reader, self._reader = self._reader, None
            reader.read(b"", True)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        if self._transport is CLOSED:
            return
        self._parser = None  # it names this connection, as do its transports
        self._transport = CLOSED
        self._sweep.discard(self)
        self._owner.lost(self)
        if self._reader is None:
            return
        detail = str(exc) if exc else "the engine closed the connection"
        if self._told_head:
            kind = FailureKind.TRUNCATED
        else:
            # Only an idle connection that had died unnoticed is stale; one that dies at work is a crash.
            unheard = self.reused and not self._head_bytes and self._sweep.now - self.sent_at <= STALE_S
            kind = FailureKind.STALE_CONNECTION if unheard else FailureKind.RESET
        reader, self._reader = self._reader, None
        reader.failed(kind, detail)

    def expired(self, now: float) -> None:
        """See Sweep: the engine was silent for too long, or the line has been idle long enough."""
        if self._reader is None:
            self._transport.abort()
        elif self._told_head and self.heard_at + self._patience.idle_s > now:
            self.deadline = self.heard_at + self._patience.idle_s
        elif self._told_head:
            self._lose(FailureKind.IDLE_TIMEOUT, f"silent for {self._patience.idle_s:g} s")
        else:
            self._lose(FailureKind.FIRST_BYTE_TIMEOUT, f"no answer in {self._patience.first_byte_s:g} s")

    def _lose(self, kind: FailureKind, detail: str) -> None:
        reader, self._reader = self._reader, None
        self._transport.abort()
        if reader is not None:
            reader.failed(kind, detail)

    def _ready(self) -> None:
        """A head comes that is not known."""
        self._headers: list[tuple[bytes, bytes]] = []
        self._bodies: deque[bytes] = deque()  # a list gives its memory back each time it is empty
        self.on_body = self._bodies.append  # called for every chunk: spare it a frame
        self._parser = httptools.HttpResponseParser(self)

    def _finish(self) -> None:
        """The answer is over: the connection is idle, or closes."""
        if not self._keep:
            self._reader = None
            self._transport.abort()
            return
        self._headers = []
        self._length = None
        self._head_bytes = 0
        self._chunked = self._head_over = self._told_head = self._complete = False
        self._free()

    def _free(self) -> None:
        """Nobody's answer is under way: it may carry another request."""
        self._reader = None
        self.reused = True
        self.deadline = self._sweep.now + self._patience.keep_alive_s
        self._freed(self)

    # -- httptools callbacks ----------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Bytes after the end of an answer are nobody's: refuse them before they reach a client."""
        if self._complete:
            raise ValueError("bytes after the end of the answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header line, or a trailer, which is dropped."""
        if self._head_over:
            return
        name = name.lower()
        if name == b"content-length":
            self._length = int(value)
        elif name == b"transfer-encoding":
            self._chunked = value.lower() == b"chunked"
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is over, unless it was an interim one (1xx), or stands for one that is known."""
        if not self._head_over and self._parser.get_status_code() >= 200:
            self._head_over = True

    def on_message_complete(self) -> None:
        """The answer is over, or the interim head was."""
        if not self._head_over:  # how that said to be framed is not how what follows is
            self._headers, self._length, self._chunked = [], None, False
            return
        self._complete = True
        self._keep = self._parser.should_keep_alive()


def _taken(pieces: deque[bytes]) -> bytes:
    """All of the pieces as one; none are left."""
    whole = b"".join(pieces)
    pieces.clear()
    return whole
