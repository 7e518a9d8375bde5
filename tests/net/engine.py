"""The far end of a client connection: an engine whose every byte the test writes, and a reader of answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import copy
from typing import Any

from maitred.core.outcome import FailureKind
from maitred.net.burst import Burst
from maitred.net.client import AnswerHead, ClientConnection, Patience
from maitred.net.memory import MemoryNetwork, MemoryTransport
from maitred.net.pool import Pool
from maitred.net.sweep import Sweep
from tests.net.http import Client, turns


class Engine(Client):
    """One connection at the engine: what it `received`, and `send` to answer."""

    def reset(self) -> None:
        """Let the gateway see a reset."""
        assert isinstance(self.transport, MemoryTransport)
        self.transport.reset()


class Reading:
    """A reader that writes down what it is told; exactly one ending may come."""

    def __init__(self) -> None:
        self.status = 0
        self.heads: list[AnswerHead] = []
        self.pieces: list[bytes] = []
        self.complete = False
        self.failure: tuple[FailureKind, str] | None = None
        self.over = asyncio.Event()

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    def begin(self, head: AnswerHead, body: bytes, complete: bool) -> None:
        assert not self.over.is_set()
        self.heads.append(copy(head))  # of a whole answer, the next may tell another length
        if body or complete:
            self.read(body, complete)

    def read(self, body: bytes, complete: bool) -> None:
        assert not self.over.is_set()
        self.pieces.append(body)
        self.complete = complete
        if complete:
            self.over.set()

    def failed(self, kind: FailureKind, detail: str) -> None:
        assert not self.over.is_set()
        self.failure = (kind, detail)
        self.over.set()


class Line:
    """A pool before one engine's address; `engines` are its connections."""

    def __init__(self, network: MemoryNetwork, pool: Pool, sweep: Sweep, address: tuple[str, int]) -> None:
        self.network = network
        self.pool = pool
        self.sweep = sweep
        self.address = address
        self.url = f"http://{address[0]}:{address[1]}"
        self.engines: list[Engine] = []

    async def connect(self) -> tuple[ClientConnection, Engine]:
        """A new connection, both ends."""
        connection = await self.pool.connect(self.url)
        await turns()
        return connection, self.engines[-1]

    async def ask(self, connection: ClientConnection | None = None) -> tuple[Reading, Engine]:
        """Send a request on a new connection or a given one."""
        if connection is None:
            connection, _ = await self.connect()
        reading = Reading()
        connection.send(b"GET / HTTP/1.1\r\n", (memoryview(b"host: a\r\n\r\n"),), 11, reading)
        await turns()
        return reading, self.engines[-1]


@asynccontextmanager
async def line(network: MemoryNetwork | None = None, **patience: Any) -> AsyncIterator[Line]:
    """An engine in virtual time. At the end nothing may be open, and no callback may have failed."""
    faults: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: faults.append(context))
    network, sweep = network or MemoryNetwork(), Sweep(loop.time)
    pool = Pool(network, sweep, Patience(**patience), burst=Burst())
    engines: list[Engine] = []

    def accepted() -> Engine:
        engines.append(Engine())
        return engines[-1]

    listener = await network.listen(accepted, "127.0.0.1", 0)
    sweep.start()
    opened = Line(network, pool, sweep, listener.address)
    opened.engines = engines
    yield opened
    pool.close()
    sweep.stop()
    listener.close()
    await turns()
    assert not faults, faults
    assert (pool.open, pool.idle, len(sweep)) == (0, 0, 0)
    assert network.open_transports == 0
