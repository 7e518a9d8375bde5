"""An engine in memory that answers each path as it is told to, and writes down what it was asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from maitred.net.client import Patience
from maitred.net.memory import MemoryNetwork
from maitred.net.pool import Pool
from maitred.net.sweep import Sweep

HANG = None
"""An answer that never comes."""

Answer = tuple[int, bytes] | None


def models(*names: str, engine: str = "vllm") -> tuple[int, bytes]:
    """A list of models."""
    entries = [{"id": name, "owned_by": engine, "max_model_len": 4096} for name in names]
    return 200, json.dumps({"object": "list", "data": entries}).encode()


class Engine:
    """`answers` by path, 404 for any other. `asked` holds each question: path, JSON posted, when.

    `busy` counts questions under way, `busy_max` the most there have been at once.
    """

    def __init__(self, answers: dict[str, Answer], takes_s: float) -> None:
        self.answers = answers
        self.takes_s = takes_s
        self.asked: list[tuple[str, Any, float]] = []
        self.busy = self.busy_max = 0

    def paths(self) -> list[str]:
        """What was asked, in order."""
        return [path for path, _, _ in self.asked]


class _Connection(asyncio.Protocol):
    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        head, _, body = data.partition(b"\r\n\r\n")
        method, path, _ = head.split(b"\r\n")[0].decode().split(" ")
        assert method == ("POST" if body else "GET")
        if body:
            assert b"\r\ncontent-type: application/json\r\ncontent-length: %d" % len(body) in head
        loop = asyncio.get_running_loop()
        self.engine.asked.append((path, json.loads(body) if body else None, loop.time()))
        answer = self.engine.answers.get(path, (404, b"{}"))
        if answer is not HANG:
            self.engine.busy += 1
            self.engine.busy_max = max(self.engine.busy, self.engine.busy_max)
            loop.call_later(self.engine.takes_s, self.answer, *answer)

    def answer(self, status: int, body: bytes) -> None:
        self.engine.busy -= 1
        head = f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\n\r\n"
        self.transport.write(head.encode() + body)


class Street:
    """Engines by port, behind one pool."""

    def __init__(self) -> None:
        self.network = MemoryNetwork()
        self.sweep = Sweep(asyncio.get_running_loop().time)
        self.pool = Pool(self.network, self.sweep, Patience())

    async def open(self, port: int, answers: dict[str, Answer], takes_s: float = 0.0) -> Engine:
        """Have an engine listen at http://127.0.0.1:port."""
        engine = Engine(answers, takes_s)
        await self.network.listen(lambda: _Connection(engine), "127.0.0.1", port)
        return engine


@asynccontextmanager
async def street() -> AsyncIterator[Street]:
    """At the end no connection may be left open."""
    it = Street()
    it.sweep.start()
    yield it
    it.pool.close()
    it.sweep.stop()
    await asyncio.sleep(0.1)
    assert it.pool.open == 0
