"""A client that speaks HTTP/1.1 byte by byte, on either network: it sends anything and reads strictly."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

from maitred.net.seams import Network

Header = tuple[bytes, bytes]


class Answer:
    """One answer. `framing`: "length", "chunked", "close" or "none"; `chunks`: the pieces of the body."""

    def __init__(self, status: int, version: bytes, headers: list[Header], interim: list[int]) -> None:
        self.status = status
        self.version = version
        self.headers = headers
        self.interim = interim
        self.framing = "none"
        self.body = b""
        self.chunks: list[bytes] = []

    def values(self, name: bytes) -> list[bytes]:
        """Every value of a header."""
        return [value for key, value in self.headers if key == name]

    def value(self, name: bytes) -> bytes:
        """The one value of a header; b"" when it is not there."""
        values = self.values(name)
        assert len(values) <= 1, f"{name!r} came {len(values)} times"
        return values[0] if values else b""

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def outcome(self) -> str:
        """What the gateway says of an answer of its own."""
        return self.value(b"x-maitred-outcome").decode()


class Broken(Exception):
    """The connection ended within an answer, of which `answer` had come; None: before its head was over."""

    def __init__(self, answer: Answer | None) -> None:
        super().__init__("the connection ended within an answer" if answer else "no answer")
        self.answer = answer


class Client(asyncio.Protocol):
    """One connection; make it with `connected`. `received` is everything that came."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.over = False
        self.error: Exception | None = None
        self._at = 0
        self._news = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.received += data
        self._news.set()

    def eof_received(self) -> bool:
        self.over = True
        self._news.set()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.over = True
        self.error = exc
        self._news.set()

    def send(self, *parts: bytes) -> None:
        """Send each part as a write of its own."""
        for part in parts:
            self.transport.write(part)

    def leave(self) -> None:
        """Be gone at once."""
        self.transport.abort()

    async def closed(self) -> None:
        """Wait until the other side has closed."""
        while not self.over:
            await self._wait()

    async def heard(self, words: bytes) -> None:
        """Wait until these bytes have come."""
        while words not in self.received:
            if self.over:
                raise Broken(None)
            await self._wait()

    @property
    def unread(self) -> bytes:
        """What came after the last answer that was read."""
        return bytes(self.received[self._at :])

    async def answer(self, method: str = "POST") -> Answer:
        """Read the next answer; `method` of its request. Raises Broken."""
        interim: list[int] = []
        while True:
            answer = await self._head(interim)
            if answer.status >= 200:
                break
            interim.append(answer.status)
        try:
            await self._body(answer, method)
        except EOFError:
            raise Broken(answer) from None
        finally:
            answer.body = b"".join(answer.chunks)
        return answer

    async def _head(self, interim: list[int]) -> Answer:
        try:
            lines = (await self._until(b"\r\n\r\n")).split(b"\r\n")
        except EOFError:
            raise Broken(None) from None
        version, status, _ = lines[0].split(b" ", 2)
        headers = []
        for line in lines[1:]:
            name, colon, value = line.partition(b": ")
            assert colon, line
            assert not {*line} & {*b"\r\n"}, line
            headers.append((name.lower(), value))
        return Answer(int(status), version, headers, interim)

    async def _body(self, answer: Answer, method: str) -> None:
        length, coding = answer.value(b"content-length"), answer.value(b"transfer-encoding")
        assert not (length and coding), "two framings"
        if method == "HEAD" or answer.status in (204, 304):
            return
        if coding:
            assert coding == b"chunked", coding
            answer.framing = "chunked"
            while size := int(await self._until(b"\r\n"), 16):
                answer.chunks.append(await self._take(size))
                assert await self._take(2) == b"\r\n"
            assert await self._take(2) == b"\r\n", "trailers"
        elif length:
            answer.framing = "length"
            missing = int(length)
            while missing:
                answer.chunks.append(await self._some(missing))
                missing -= len(answer.chunks[-1])
        else:
            answer.framing = "close"
            await self.closed()
            if self.error is not None:
                raise EOFError
            answer.chunks.append(await self._take(len(self.received) - self._at))

    async def _until(self, mark: bytes) -> bytes:
        while (end := self.received.find(mark, self._at)) < 0:
            if self.over:
                raise EOFError
            await self._wait()
        found = bytes(self.received[self._at : end])
        self._at = end + len(mark)
        return found

    async def _take(self, size: int) -> bytes:
        while len(self.received) - self._at < size:
            if self.over:
                raise EOFError
            await self._wait()
        self._at += size
        return bytes(self.received[self._at - size : self._at])

    async def _some(self, most: int) -> bytes:
        while len(self.received) == self._at:
            if self.over:
                raise EOFError
            await self._wait()
        return await self._take(min(most, len(self.received) - self._at))

    async def _wait(self) -> None:
        self._news.clear()
        await self._news.wait()


class Stubborn(Client):
    """A client that does not close when the other side has."""

    def eof_received(self) -> bool:
        super().eof_received()
        return True


async def connected(network: Network, address: tuple[str, int], kind: type[Client] = Client) -> Client:
    """A new client, connected."""
    return await network.connect(kind, *address)


def get(path: str, *headers: str, method: str = "GET", version: str = "1.1") -> bytes:
    """A request without a body."""
    lines = [f"{method} {path} HTTP/{version}", "Host: gateway", *headers, "", ""]
    return "\r\n".join(lines).encode()


def post(path: str, body: bytes, *headers: str, version: str = "1.1") -> bytes:
    """A request with a JSON body of known length."""
    given = ("Content-Type: application/json", f"Content-Length: {len(body)}", *headers)
    return get(path, *given, method="POST", version=version) + body


def chunked(path: str, *chunks: bytes) -> bytes:
    """A request whose JSON body comes in chunks."""
    head = get(path, "Content-Type: application/json", "Transfer-Encoding: chunked", method="POST")
    return head + b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))


async def turns(count: int = 12) -> None:
    """Let what is on its way arrive: some turns of the loop, no time."""
    for _ in range(count):
        await asyncio.sleep(0)
