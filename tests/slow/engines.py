"""Engines that go wrong in every way, now and then: most answers are good, in one of many forms.

Unlike the scripted engines of other tests these keep nothing of what came, so that they can run for long.
"""

from __future__ import annotations

import asyncio
import json
import re
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Sequence
from enum import Enum, auto
from random import Random
from typing import cast

from msgspec import Struct

from tests.cases.upstream import card, reset
from tests.proxy.upstream import LAST, chunk, head, whole
from tests.slow.book import COMPLETED, ENGINE_ERROR, REFUSED, Attempt, Book
from tests.slow.wishes import MODELS, Wish, answer_to, understood

BODY_BYTES_MAX = 8 * 1024 * 1024
PACED_MAX = 60
"""Answers of more pieces are not paced: they would take too long."""


class End(Enum):
    """How an engine can end a connection, or not: HANG waits until the gateway leaves."""

    CLOSE = auto()
    RESET = auto()
    HANG = auto()


Step = bytes | float | End
JSON_LINE, EVENTS_LINE = "content-type: application/json", "content-type: text/event-stream"
METRICS = b"vllm:num_requests_running 1.0\nvllm:num_requests_waiting 0.0\nvllm:kv_cache_usage_perc 0.25\n"
TOKEN = whole(b'{"id":"probe","choices":[{"index":0,"text":"a"}]}')
ERROR = {"type": "error", "error": {"type": "api_error", "message": ENGINE_ERROR}}

_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)


# -- good answers, in many forms ---------------------------------------------------------------------


def framed(wish: Wish, rng: Random, pieces: Sequence[bytes] | None = None) -> list[Step]:
    """The answer, or these pieces, in one of the framings that HTTP has."""
    pieces = answer_to(wish) if pieces is None else pieces
    media = EVENTS_LINE if wish.stream else JSON_LINE
    how = rng.choice(("chunked", "chunked", "close") if wish.stream else ("length", "chunked", "close"))
    if how == "chunked":
        return [head(200, media, "transfer-encoding: chunked"), *map(chunk, pieces), LAST]
    if how == "length":
        return [head(200, media, f"content-length: {sum(map(len, pieces))}"), *pieces]
    return [head(200, media, "connection: close"), *pieces, End.CLOSE]


def paced(wish: Wish, rng: Random) -> list[Step]:
    """Token by token."""
    steps = framed(wish, rng)
    if len(steps) > PACED_MAX:
        return steps
    return [part for step in steps for part in (step, rng.uniform(0.0, 0.02))][: 2 * len(steps) - 1]


def lump(wish: Wish, rng: Random) -> list[Step]:
    """All in one write."""
    steps = framed(wish, rng)
    ends = [step for step in steps if isinstance(step, End)]
    return [b"".join(step for step in steps if isinstance(step, bytes)), *ends]


def shreds(wish: Wish, rng: Random) -> list[Step]:
    """Cut where nobody expects it: within chunks, heads, events and letters."""
    blob, *end = lump(wish, rng)
    assert isinstance(blob, bytes)
    cuts = sorted(rng.randrange(len(blob)) for _ in range(12))
    steps: list[Step] = []
    for start, stop in zip([0, *cuts], [*cuts, len(blob)], strict=True):
        steps += [blob[start:stop], 0.001]
    return steps[:-1] + end


def slow(wish: Wish, rng: Random) -> list[Step]:
    """Late with its first byte."""
    return [rng.uniform(0.2, 0.8), *framed(wish, rng)]


def thinking(wish: Wish, rng: Random) -> list[Step]:
    """Silent after its first piece, for longer than a gateway wants to hold it."""
    first, second, *rest = framed(wish, rng)
    return [first, second, rng.uniform(0.3, 0.8), *rest]


def hinted(wish: Wish, rng: Random) -> list[Step]:
    """With an interim head before."""
    return [b"HTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload\r\n\r\n", *framed(wish, rng)]


# -- faults ------------------------------------------------------------------------------------------


def ill(_wish: Wish, rng: Random) -> list[Step]:
    """A status that says: not now, or not any more."""
    return [whole(json.dumps(ERROR).encode(), status=rng.choice((500, 502, 503, 302)))]


def busy(_wish: Wish, rng: Random) -> list[Step]:
    """Overloaded by its own account, now and then for longer than anybody waits."""
    rest_s = 90 if rng.random() < 0.01 else rng.randrange(3)
    return [whole(json.dumps(ERROR).encode(), f"retry-after: {rest_s}", status=429)]


def unwilling(wish: Wish, rng: Random) -> list[Step]:
    """The request is wrong, it says."""
    return [whole(json.dumps({"error": {"message": wish.tag}}).encode(), status=rng.choice((400, 501)))]


def dead(_wish: Wish, rng: Random) -> list[Step]:
    """Gone before the end of its head."""
    begun: list[Step] = [b"HTTP/1.1 200 OK\r\ncontent-ty"] if rng.random() < 0.3 else []
    return [*begun, rng.choice((End.CLOSE, End.RESET))]


def _beginning(wish: Wish, rng: Random) -> list[Step]:
    """A part of an answer, at least its head, cut anywhere."""
    steps = [step for step in framed(wish, rng) if isinstance(step, bytes)]
    kept = rng.randrange(1, len(steps))
    return [*steps[:kept], steps[kept][: rng.randrange(len(steps[kept]))]]


def cut(wish: Wish, rng: Random) -> list[Step]:
    """Gone in the middle."""
    return [*_beginning(wish, rng), rng.choice((End.CLOSE, End.RESET))]


def hung(_wish: Wish, _rng: Random) -> list[Step]:
    """Never a byte."""
    return [End.HANG]


def stalled(wish: Wish, rng: Random) -> list[Step]:
    """A beginning, and then nothing any more."""
    return [*_beginning(wish, rng), End.HANG]


def unended(wish: Wish, rng: Random) -> list[Step]:
    """A stream closed as if it were whole, with its end missing."""
    pieces = answer_to(wish)
    return framed(wish, rng, pieces[: rng.randrange(1, max(2, len(pieces) - 3))])


def erring(wish: Wish, rng: Random) -> list[Step]:
    """200, and then an error event, at once or after some content."""
    if not wish.stream:
        return [whole(json.dumps(ERROR).encode())]
    event = b"event: error\n" * wish.anthropic + b"data: " + json.dumps(ERROR).encode() + b"\n\n"
    pieces = answer_to(wish)
    return framed(wish, rng, [*pieces[: rng.randrange(len(pieces) - 3)], event])


def garbage(wish: Wish, rng: Random) -> list[Step]:
    """No HTTP at all, or none any more after a while."""
    noise = rng.randbytes(200) + b"!"  # which is not how JSON ends
    return [noise] if rng.random() < 0.5 else [*framed(wish, rng)[:2], b"zz\r\n" + noise, End.CLOSE]


def swollen(_wish: Wish, _rng: Random) -> list[Step]:
    """A head without end."""
    return [head(200, "x-much: " + "x" * 300_000)]


def plain_for_stream(_wish: Wish, _rng: Random) -> list[Step]:
    """JSON, whatever was asked for."""
    return [whole(b'{"error":{"message":"no streams today"}}')]


def talkative(wish: Wish, rng: Random) -> list[Step]:
    """More after the end than there should be."""
    steps = [step for step in framed(wish, rng) if isinstance(step, bytes)]
    return [*steps[:-1], steps[-1] + b"HTTP/1.1 200 OK\r\n\r\n", End.CLOSE]


Make = Callable[[Wish, Random], list[Step]]
EVERYWHERE: tuple[tuple[int, Make, str], ...] = (
    (20, framed, COMPLETED),
    (20, paced, COMPLETED),
    (10, lump, COMPLETED),
    (10, shreds, COMPLETED),
    (5, slow, COMPLETED),
    (3, hinted, COMPLETED),
    (4, ill, ""),
    (3, busy, ""),
    (2, unwilling, REFUSED),
    (4, dead, ""),
    (6, cut, ""),
    (1, hung, ""),
    (1, stalled, ""),
    (3, erring, ""),
    (2, garbage, ""),
    (1, swollen, ""),
    (1, talkative, ""),
)
"""Weight, what is done, and the outcome it must have if it is the last word; "" where it is a failure."""
STREAMS: tuple[tuple[int, Make, str], ...] = (
    *EVERYWHERE,
    (3, thinking, COMPLETED),
    (2, unended, ""),
    (1, plain_for_stream, ""),
)


class _Serving(Struct, eq=False):
    """One connection, and the answer on its way there."""

    writer: StreamWriter
    attempt: Attempt | None = None


class Engine:
    """One address. `busy` counts the answers on their way."""

    def __init__(self, book: Book, rng: Random) -> None:
        self.port = 0
        self._book = book
        self._rng = rng
        self._server: asyncio.Server | None = None
        self._serving: set[_Serving] = set()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def busy(self) -> int:
        """Answers on their way."""
        return sum(serving.attempt is not None for serving in self._serving)

    async def open(self) -> None:
        """Listen, at the same port as before."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=BODY_BYTES_MAX)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Be gone like a process that is killed."""
        if self._server is not None:
            self._server.close()
        for serving in self._serving:
            if serving.attempt is not None:
                serving.attempt.spoiled = True
            serving.writer.transport.abort()

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        serving = _Serving(writer)
        self._serving.add(serving)
        try:
            while await self._answer_one(reader, serving):
                serving.attempt = None
        except (ConnectionError, asyncio.IncompleteReadError, RuntimeError):
            pass  # the gateway has left, or the engine was closed; uvloop says the last to who reads on then
        finally:
            self._serving.discard(serving)
            writer.close()

    async def _answer_one(self, reader: StreamReader, serving: _Serving) -> bool:
        """Read one request and answer it; whether the connection goes on."""
        said = await reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(said)
        body = await reader.readexactly(int(length[1]) if length else 0)
        writer = serving.writer
        for step in self._plan(said, body, serving):
            if isinstance(step, bytes):
                writer.write(step)
                await writer.drain()
            elif isinstance(step, float):
                await asyncio.sleep(step)
            elif step is End.HANG:
                await reader.read(1)
                return False
            else:
                if step is End.RESET:
                    reset(cast("asyncio.Transport", writer.transport))
                return False
        return True

    def _plan(self, said: bytes, body: bytes, serving: _Serving) -> list[Step]:
        path = said.split(b" ", 2)[1].decode()
        if said.startswith(b"GET "):
            return [_told(path)]
        wish = understood(path, body)
        if wish is None:
            return [TOKEN]
        menu, rng = STREAMS if wish.stream else EVERYWHERE, self._rng
        ((_, make, meant),) = rng.choices(menu, [weight for weight, _, _ in menu])
        serving.attempt = self._book.attempt(wish.tag, meant)
        return make(wish, rng)


def _told(path: str) -> bytes:
    """What an engine says of itself."""
    if path == "/v1/models":
        return whole(json.dumps({"object": "list", "data": [card(n) for n in {*MODELS.values()}]}).encode())
    if path == "/metrics":
        return head(200, "content-type: text/plain", f"content-length: {len(METRICS)}") + METRICS
    return whole(b"{}", status=404)
