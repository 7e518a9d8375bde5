"""Loads in virtual time: a server whose every byte a test writes, arrivals one by one, captured answers."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from maitred.bench.load import Load, LoadOptions
from maitred.bench.shot import Run, Shot
from maitred.bench.targets import Target
from maitred.net.memory import MemoryNetwork
from maitred.net.seams import Network
from maitred.sim.arrival import Arrival, Workload
from maitred.sim.workload import Spec, load_workload
from tests.net.http import turns

ENGINES = Path(__file__).parents[1] / "data" / "engines"
TWIN = Path(__file__).parents[1] / "data" / "twin"
SALT = 7
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
JSON_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"

Script = list[tuple[float, bytes | None]]
"""What is written when, in seconds from the request; None breaks the connection."""


def captured(path: Path) -> bytes:
    """The body of a captured answer, as it came."""
    return path.read_bytes().partition(b"\n\nHTTP")[2].partition(b"\n\n")[2]


def whole(body: bytes, head: bytes = JSON_HEAD) -> bytes:
    """An answer with its length."""
    return head + b"content-length: %d\r\n\r\n%b" % (len(body), body)


def event(text: str) -> bytes:
    """One event of a chat stream."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def usage(prompt: int, output: int) -> bytes:
    """The event that tells the usage."""
    counts = {"prompt_tokens": prompt, "completion_tokens": output}
    return b"data: " + json.dumps({"choices": [], "usage": counts}).encode() + b"\n\n"


def chunk(data: bytes) -> bytes:
    """As a chunk of a body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def streamed(at: Sequence[float], tokens: int = 1) -> Script:
    """A stream with so many tokens at each of these times, whole."""
    writes: Script = [(time, chunk(event("word") * tokens)) for time in at]
    head = STREAM_HEAD + b"transfer-encoding: chunked\r\n\r\n"
    end = chunk(usage(10, len(at) * tokens) + b"data: [DONE]\n\n") + b"0\r\n\r\n"
    writes[0] = (at[0], head + cast("bytes", writes[0][1]))
    writes[-1] = (at[-1], cast("bytes", writes[-1][1]) + end)
    return writes


class Server:
    """Answers each request as `answer` says; `asked` are the bodies, `came_at` when each was whole."""

    def __init__(self, answer: Callable[[dict[str, Any]], Script]) -> None:
        self.answer = answer
        self.heads: list[bytes] = []
        self.asked: list[dict[str, Any]] = []
        self.came_at: list[float] = []
        self.lines: list[_Line] = []

    def accepted(self) -> _Line:
        """Another connection."""
        self.lines.append(_Line(self))
        return self.lines[-1]


class _Line(asyncio.Protocol):
    def __init__(self, server: Server) -> None:
        self._server = server
        self._data = b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, _, body = self._data.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        if length is not None and len(body) < int(length[1]):
            return
        self._data = b""
        server, loop = self._server, asyncio.get_running_loop()
        server.heads.append(head)
        server.asked.append(json.loads(body) if body else {})
        server.came_at.append(loop.time())
        for after_s, written in server.answer(server.asked[-1]):
            loop.call_later(after_s, self._write, written)

    def _write(self, data: bytes | None) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        if data is None:
            self.transport.abort()
        else:
            self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None


class Listed:
    """A workload of these arrivals; `after` follow the end of the one with their number."""

    def __init__(self, *first: Arrival, after: dict[int, list[Arrival]] | None = None) -> None:
        self._first = first
        self._after = after or {}
        self.over_at: list[tuple[int, float]] = []

    def begin(self, at: float) -> Iterable[Arrival]:
        return self._first

    def over(self, arrival: Arrival, at: float) -> Iterable[Arrival]:
        self.over_at.append((arrival.number, at))
        for follower in self._after.get(arrival.number, ()):
            follower.at += at
            yield follower


def arrival(number: int = 1, at: float = 0.0, prompt: int = 50, output: int = 5, **more: Any) -> Arrival:
    """A request that shares nothing."""
    return Arrival(number, at, "smollm2", ((number, prompt),), prompt, output, 1000 + number, **more)


class Place:
    """What a test has in hand: a server, and loads against it."""

    def __init__(self, server: Server, network: MemoryNetwork, address: tuple[str, int]) -> None:
        self.server = server
        self.network = network
        self.address = address
        self.url = f"http://{address[0]}:{address[1]}"

    def load(self, workload: Workload, target: Target | None = None, **more: Any) -> Load:
        """A load against the server."""
        return loading(workload, target or Target(self.url), self.network, **more)

    async def run(self, workload: Workload, target: Target | None = None, **more: Any) -> Run:
        """Run one to its end."""
        return await self.load(workload, target, **more).run()


def loading(
    workload: Workload,
    target: Target,
    network: Network,
    watch: Callable[[Shot], None] | None = None,
    name: str = "",
    **options: Any,
) -> Load:
    """A load on the running loop's clock."""
    clock = asyncio.get_running_loop().time
    return Load(target, workload, LoadOptions(name, salt=SALT, **options), network, clock, watch)


@asynccontextmanager
async def serving(answer: Callable[[dict[str, Any]], Script]) -> AsyncIterator[Place]:
    """A server in virtual time. At the end nothing may be open, and no callback may have failed."""
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: faults.append(context))
    network, server = MemoryNetwork(), Server(answer)
    listener = await network.listen(server.accepted, "127.0.0.1", 0)
    yield Place(server, network, listener.address)
    listener.close()
    await turns()
    assert not faults, faults
    assert network.open_transports == 0


def specified(folder: Path, text: str) -> Spec:
    """The workload of a file that says this."""
    path = folder / "workload.yaml"
    path.write_text("version: 1\n" + text)
    return load_workload(path)
