"""The clients of the soak: each visit is one connection or a few, of one kind, with its own randomness.

A visit writes into the book what it saw. Whatever is not as it should be is an AssertionError.
"""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import Awaitable, Callable
from random import Random

from maitred.core.outcome import Outcome
from tests.net.http import Broken, Client, get
from tests.slow.book import Book
from tests.slow.wishes import CHAT, COMPLETIONS, EMBEDDINGS, MANY_TOKENS, MESSAGES, MODELS, Wish

PATHS = (CHAT, COMPLETIONS, EMBEDDINGS, MESSAGES)
JSON = "content-type: application/json"
SMALL_WINDOW = 8 * 1024
BODY_BYTES_MAX = 2 * 1024 * 1024
"""The gateway's `http.body_max`."""
STALL_S = 4.0
"""Longer than any of the gateway's limits for clients."""
MIB = 1024 * 1024

BAD = Outcome.BAD_REQUEST
UNREADABLE: tuple[tuple[Outcome, bytes], ...] = (
    (BAD, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 this is TLS\r\n\r\n"),
    (BAD, get(CHAT, "content-length: 2", "transfer-encoding: chunked", method="POST") + b"0\r\n\r\n"),
    (BAD, b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nhost: b\r\ncontent-length: 2\r\n\r\n{}"),
    (BAD, b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}"),
    (BAD, b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: -2\r\n\r\n{}"),
    (BAD, b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\n folded: b\r\ncontent-length: 2\r\n\r\n{}"),
    (BAD, b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}"),
    (BAD, b"POST /v1/chat/completions HTTP/3.7\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}"),
    (BAD, b"POST /v1/chat/completions HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
    (Outcome.HEADERS_TOO_LARGE, get(CHAT, "x-much: " + "x" * 40_000)),
    (Outcome.HEADERS_TOO_LARGE, get(CHAT, *["x-many: y"] * 300)),
)  # fmt: skip
"""What is no request to anybody; the connection is closed after the answer."""


class Visit:
    """One visit to the gateway at this port."""

    def __init__(self, book: Book, port: int, rng: Random) -> None:
        self.book = book
        self.rng = rng
        self._port = port
        self._clients: list[Client] = []

    def leave(self) -> None:
        """Close whatever is still open."""
        for client in self._clients:
            client.leave()

    # -- kinds of visit ---------------------------------------------------------------------------

    async def ordinary(self) -> None:
        """Some requests on one connection, one after the other."""
        client, rng = await self._connected(), self.rng
        for _ in range(rng.randint(1, 6)):
            wish = self._wish()
            client.send(_request(wish, wish.body()))
            if not await self._hear(client, wish):
                return
            await asyncio.sleep(rng.choice((0.0, rng.uniform(0.0, 0.3))))

    async def fresh(self) -> None:
        """One request that says it is the last."""
        client, wish = await self._connected(), self._wish()
        client.send(_request(wish, wish.body(), "connection: close"))
        await self._hear(client, wish)
        await client.closed()

    async def old(self) -> None:
        """HTTP/1.0, with answers that may be too large to be passed in one piece."""
        client, wish = await self._connected(), self._wish(tokens=self.rng.choice((5, 5, 5, MANY_TOKENS)))
        client.send(_request(wish, wish.body(), version="1.0"))
        await self._hear(client, wish)
        await client.closed()

    async def pipelined(self) -> None:
        """Several requests in one write."""
        client, wishes = await self._connected(), [self._wish() for _ in range(self.rng.randint(2, 5))]
        client.send(b"".join(_request(wish, wish.body()) for wish in wishes))
        while wishes and await self._hear(client, wishes.pop(0)):
            pass
        for wish in wishes:  # behind an answer that broke the connection
            self.book.left(wish, sure=False)

    async def burst(self) -> None:
        """Many at once: more than there are places, and room to wait."""
        wishes = [self._wish(model="small", tokens=3) for _ in range(60)]
        clients = [await self._connected() for _ in wishes]
        for client, wish in zip(clients, wishes, strict=True):
            client.send(_request(wish, wish.body()))
        await asyncio.gather(*map(self._hear, clients, wishes))

    async def dribbled(self) -> None:
        """A request in small pieces."""
        client, rng, wish = await self._connected(), self.rng, self._wish()
        rest = _request(wish, wish.body())
        while rest:
            size = rng.randint(1, 120)
            client.send(rest[:size])
            rest = rest[size:]
            await asyncio.sleep(rng.uniform(0.0, 0.03))
        await self._hear(client, wish)

    async def chunked(self) -> None:
        """A body of unknown length, for which the client may want to be asked."""
        client, rng, wish = await self._connected(), self.rng, self._wish()
        body = wish.body("x" * rng.choice((10, 1000, 200_000)))
        asks = rng.random() < 0.5
        client.send(_head(wish, "transfer-encoding: chunked", *["expect: 100-continue"] * asks))
        if asks:
            await client.heard(b"HTTP/1.1 100 ")
        size = max(100, len(body) // 8)
        client.send(*[_chunk(body[at : at + size]) for at in range(0, len(body), size)], _chunk(b""))
        await self._hear(client, wish)

    async def packed(self) -> None:
        """gzip: small, large, broken, cut and a bomb."""
        client, rng = await self._connected(), self.rng
        for _ in range(rng.randint(1, 3)):
            wish = self._wish()
            body, refused = gzip.compress(wish.body(rng.randbytes(rng.choice((10, 200_000))).hex()), 1), None
            match rng.randrange(6):
                case 0:
                    body, refused = b"no gzip" + body, BAD
                case 1:
                    body, refused = body[:-5], BAD
                case 2:
                    body, refused = gzip.compress(bytes(3 * MIB), 1), Outcome.BODY_TOO_LARGE
            client.send(_request(wish, body, "content-encoding: gzip"))
            if not await self._hear(client, wish, refused):
                return

    async def huge(self) -> None:
        """Bodies around the largest allowed."""
        client, wish = await self._connected(), self._wish()
        match self.rng.randrange(3):
            case 0:
                client.send(_request(wish, wish.body("z" * int(1.9 * MIB))))
                await self._hear(client, wish)
                return
            case 1:
                client.send(_head(wish, f"content-length: {10 * MIB}"), b"z" * MIB)
            case _:
                client.send(_head(wish, "transfer-encoding: chunked"), *[_chunk(b"z" * MIB)] * 3)
        await self._hear(client, wish, Outcome.BODY_TOO_LARGE)
        await client.closed()

    async def refused(self) -> None:
        """Requests that only the gateway sees."""
        client, rng = await self._connected(), self.rng
        for _ in range(rng.randint(1, 4)):
            wish = self._wish()
            body, outcome, headers = wish.body(), BAD, list[str]()
            match rng.randrange(9):
                case 0:
                    body, outcome = wish.body(model="nobody"), Outcome.MODEL_NOT_FOUND
                case 1:
                    body = wish.body(kv_transfer_params={"do_remote_decode": True})
                case 2:
                    body = body[: -rng.randint(1, 20)]
                case 3:
                    body = body.replace(b"Count", b"C\xffunt")
                case 4:
                    body = wish.body(stream="perhaps", n="many", input=3, model=5)
                case 5:
                    part = {"type": "image_url", "image_url": {"url": "http://169.254.169.254/"}}
                    wish = self._wish(path=CHAT)
                    body = wish.body(messages=[{"role": "user", "content": [part]}])
                case 6:
                    headers, outcome = ["content-encoding: br"], Outcome.MEDIA_TYPE
                case 7:
                    wish = self._wish(path="/v1/nothing")
                    body, outcome = wish.body(), Outcome.PATH_NOT_FOUND
                case _:
                    client.send(get(wish.path, f"x-request-id: {wish.tag}"))
                    body, outcome = b"", Outcome.METHOD_NOT_ALLOWED
            if body:
                client.send(_request(wish, body, *headers))
            if not await self._hear(client, wish, outcome):
                return

    async def unreadable(self) -> None:
        """What is no HTTP, or could be read in two ways."""
        client = await self._connected()
        outcome, said = self.rng.choice(UNREADABLE)
        client.send(said)
        self.book.unread(await client.answer(), outcome)
        await client.closed()

    async def late(self) -> None:
        """A head or a body that never ends, and a client that waits for what is said to that."""
        client, wish = await self._connected(), self._wish()
        request = _request(wish, wish.body())
        if self.rng.random() < 0.5:
            client.send(request[: self.rng.randint(10, 40)])
            self.book.unread(await client.answer(), Outcome.REQUEST_TIMEOUT)
        else:
            client.send(request[:-5])
            await self._hear(client, wish, Outcome.REQUEST_TIMEOUT)
        await client.closed()

    async def looks(self) -> None:
        """Whoever only wants to know: models have a line in the log, health has none."""
        client = await self._connected()
        for path in ("/livez", "/readyz", "/health", "/ping"):
            client.send(get(path))
            assert (await client.answer("GET")).status in (
                (200,) if path in ("/livez", "/ping") else (200, 503)
            )
        for path, method in (("/v1/models", "GET"), ("/v1/models", "HEAD"), ("/v1/models/small", "GET")):
            wish = self._wish(path=path)
            client.send(get(path, f"x-request-id: {wish.tag}", method=method))
            self.book.told(wish, await client.answer(method))
        wish = self._wish(path="/v1/models/nobody")
        client.send(get(wish.path, f"x-request-id: {wish.tag}"))
        await self._hear(client, wish, Outcome.MODEL_NOT_FOUND)

    async def dawdling(self) -> None:
        """A long answer, read slowly to its end."""
        client = await self._connected(SMALL_WINDOW)
        wish = self._wish(tokens=MANY_TOKENS)
        client.send(_request(wish, wish.body()))
        dawdle = asyncio.create_task(_dawdle(client, self.rng))
        try:
            await self._hear(client, wish)
        finally:
            dawdle.cancel()

    async def stuck(self) -> None:
        """A long answer that nobody takes any more; the gateway gives it up."""
        client = await self._connected(SMALL_WINDOW)
        wish = self._wish(path=CHAT, tokens=3 * MANY_TOKENS, stream=True)
        client.send(_request(wish, wish.body()))
        client.transport.pause_reading()
        await asyncio.sleep(STALL_S)
        client.leave()
        self.book.left(wish)

    async def leaving(self) -> None:
        """Gone before the end, in every phase, politely or not."""
        client, rng, wish = await self._connected(), self.rng, self._wish(tokens=40)
        request = _request(wish, wish.body())
        phase = rng.choice(("head", "body", "asked", "answered", "quiet"))
        if phase == "head":
            client.send(request[: rng.randint(0, 60)])
        elif phase == "body":
            client.send(request[: -rng.randint(1, 30)])
        else:
            client.send(request)
        if phase == "answered":
            while not client.received and not client.over:
                await asyncio.sleep(0.01)
        await asyncio.sleep(rng.choice((0.02, rng.uniform(0.02, 0.5))))
        if phase == "quiet":  # it would still listen
            client.transport.write_eof()
            await client.closed()
        client.leave()
        if phase != "head":
            self.book.left(wish)

    # -- parts ------------------------------------------------------------------------------------

    def _wish(
        self,
        *,
        path: str | None = None,
        model: str | None = None,
        stream: bool | None = None,
        tokens: int | None = None,
    ) -> Wish:
        rng = self.rng
        path = path or rng.choice(PATHS)
        streams = path in PATHS and path != EMBEDDINGS
        stream = streams and (rng.random() < 0.7 if stream is None else stream)
        usage = stream and path != MESSAGES and rng.random() < 0.3
        tokens = tokens or rng.choice((1, 5, 12, 30) * 8 + (MANY_TOKENS,))
        return Wish(self.book.tag(), path, model or rng.choice([*MODELS]), stream, tokens, usage)

    async def _connected(self, window: int | None = None) -> Client:
        """A connection; `window`: bytes that the system takes in for a client that does not read."""
        loop, sock = asyncio.get_running_loop(), socket.socket()
        sock.setblocking(False)
        if window is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        try:
            await loop.sock_connect(sock, ("127.0.0.1", self._port))
            _, client = await loop.create_connection(Client, sock=sock)
        except asyncio.CancelledError:
            sock.close()
            raise
        self._clients.append(client)
        return client

    async def _hear(self, client: Client, wish: Wish, refused: Outcome | None = None) -> bool:
        """Read one answer; whether the connection can take another request."""
        try:
            answer = await client.answer()
        except Broken as broken:
            self.book.broken(wish, broken.answer)
            return False
        if refused is None:
            self.book.answered(wish, answer)
        else:
            self.book.refused(wish, answer, refused)
        return answer.value(b"connection") != b"close"


Kind = Callable[[Visit], Awaitable[None]]
KINDS: tuple[tuple[int, Kind], ...] = (
    (40, Visit.ordinary),
    (10, Visit.fresh),
    (6, Visit.old),
    (6, Visit.pipelined),
    (5, Visit.dribbled),
    (6, Visit.chunked),
    (5, Visit.packed),
    (1, Visit.huge),
    (6, Visit.refused),
    (5, Visit.unreadable),
    (1, Visit.late),
    (2, Visit.looks),
    (1, Visit.dawdling),
    (1, Visit.stuck),
    (12, Visit.leaving),
    (1, Visit.burst),
)
"""How often, and what."""


def _head(wish: Wish, *headers: str, version: str = "1.1") -> bytes:
    return get(wish.path, f"x-request-id: {wish.tag}", JSON, *headers, method="POST", version=version)


def _request(wish: Wish, body: bytes, *headers: str, version: str = "1.1") -> bytes:
    return _head(wish, f"content-length: {len(body)}", *headers, version=version) + body


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def _dawdle(client: Client, rng: Random) -> None:
    """Read a little now and then."""
    while not client.over:
        client.transport.pause_reading()
        await asyncio.sleep(rng.uniform(0.0, 0.1))
        client.transport.resume_reading()
        await asyncio.sleep(0.005)
