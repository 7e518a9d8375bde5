"""One connection to an engine: sends a request, parses the answer, tells a reader.

The reader is called once a read, never once a chunk: what one read brought of the body is one piece, however
the engine had cut it. Nothing is buffered here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import httptools
from msgspec import Struct

from maitred.core.outcome import FailureKind
from maitred.net.burst import Burst
from maitred.net.repeats import Known, Repeats
from maitred.net.sweep import NEVER, Sweep

HEAD_BYTES_MAX = 256 * 1024
"""An engine's head beyond this is no head."""
STALE_S = 1.0
"""A reused connection that dies within this, unheard, had been closed by the engine before it was used."""
JOIN_BYTES_MAX = 16 * 1024
"""Up to this size copying head and body together is cheaper than writing them as two."""


class AnswerHead(Struct):
    """Status and headers of an answer (names in lower case).

    `length` None: it comes in chunks, or, `until_close`, ends with the connection. Whole answers alike but
    for their lengths share a head, so of theirs the length is true only while `begin` runs; and `lines`: what
    the reader made of the headers for the next of them, by what it left out.
    """

    status: int
    headers: list[tuple[bytes, bytes]]
    length: int | None
    until_close: bool = False
    lines: dict[frozenset[bytes], bytes] = {}


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

    `heads`: what one connection learns of a head is known to all of its owner's.
    """

    heads: Known[AnswerHead]

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
        "_keep", "_length", "_line", "_owner", "_parser", "_patience", "_reader", "_repeats", "_sweep",
        "_told_head", "_transport", "authority", "deadline", "heard_at", "on_body", "openings", "reused",
        "sent_at", "url",
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
        self._line: asyncio.Transport = CLOSED  # to the same, for what is written
        self._length: int | None = None
        self._chunked = False
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
        return 0 if self.closing else self._line.get_write_buffer_size()

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
        self._line.writelines((head + b"".join(body),) if size <= JOIN_BYTES_MAX else (head, *body))

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
        self._line.abort()
        self.connection_lost(None)

    def abort(self) -> None:
        """Close at once; the reader hears nothing more. The engine sees its client leave."""
        self._reader = None
        self._line.abort()

    # -- asyncio.Protocol -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast("asyncio.Transport", transport)
        self._line = self._burst.line(self._transport)
        self._sweep.add(self)
        self._freed = self._owner.opened(self)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        reader = self._reader
        if reader is None:  # nobody asked: the engine breaks the protocol
            self._transport.abort()
            return
        if not self._head_bytes and (again := self._repeats.body(data)) is not None:
            head = self._repeats.head
            head.length = len(again)
            self.heard_at = self._sweep.now
            self._free()
            reader.begin(head, again, True)
            return
        if self._parser is None:
            self._ready()
        trouble = None
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            trouble = f"not HTTP: {error}"
        if trouble is not None:  # told only now, or the error would ride along as context of what follows
            self._lose(FailureKind.BAD_RESPONSE, trouble)
            return
        self.heard_at = self._sweep.now  # `expired` moves the deadline: this runs for every chunk
        if not self._told_head:
            self._begin(reader, data)
            return
        bodies, complete = self._bodies, self._complete
        if complete:
            self._finish()
        if bodies:
            if len(bodies) == 1:
                body = bodies.pop()
            else:
                body = b"".join(bodies)
                bodies.clear()
            reader.read(body, complete)
        elif complete:
            reader.read(b"", True)

    def _begin(self, reader: Reader, data: bytes) -> None:
        """More of the head has come, or all of it."""
        self.deadline = self._sweep.now + self._patience.idle_s
        self._head_bytes += len(data)
        if not self._head_over:
            if self._head_bytes > HEAD_BYTES_MAX:
                self._lose(FailureKind.BAD_RESPONSE, "the head of the answer is too large")
            return
        self._told_head = True
        until_close = self._length is None and not self._chunked
        head = AnswerHead(self._parser.get_status_code(), self._headers, self._length, until_close)
        body, complete = b"".join(self._bodies), self._complete
        self._bodies.clear()
        # Bytes that were only a part of the head may be a whole one where they come by themselves.
        whole = complete and self._keep and self._head_bytes == len(data)
        self._repeats.learn(data, head, len(body) if whole else 0)
        if complete:
            self._finish()
        reader.begin(head, body, complete)

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
        self._transport = self._line = CLOSED
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
        self._bodies: list[bytes] = []
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
        """The head is over, unless it was an interim one (1xx)."""
        if self._parser.get_status_code() >= 200:
            self._head_over = True

    def on_message_complete(self) -> None:
        """The answer is over, or the interim head was."""
        if not self._head_over:
            self._headers = []
            return
        self._complete = True
        self._keep = self._parser.should_keep_alive()
