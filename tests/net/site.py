"""A site that answers at once, later or as a stream, for tests of the server's side of HTTP alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

from maitred.core.outcome import Outcome, Refusal
from maitred.net.burst import Burst
from maitred.net.exchange import HttpExchange, RequestHead
from maitred.net.memory import MemoryNetwork
from maitred.net.repeats import Known
from maitred.net.server import HttpLimits, ServerConnection
from maitred.net.sweep import Sweep
from tests.net.http import Client, connected, turns

ECHO, LATER, STREAM = "/echo", "/later", "/stream"
"""Paths: answered at once with what was asked; when the test wants; by a stream that has begun."""


class Site:
    """What was served and refused, in order.

    `held`: exchanges the test answers; `gone`: paths of clients that left within their requests.
    """

    def __init__(self) -> None:
        self.draining = False
        self.heads: Known[RequestHead] = {}
        self.cors: frozenset[str] = frozenset()
        self.served: list[tuple[str, str, bytes]] = []
        self.refused: list[Outcome] = []
        self.held: list[HttpExchange] = []
        self.gone: list[str] = []
        self.connections: list[ServerConnection] = []

    def check(self, head: RequestHead) -> None:
        if head.path not in (ECHO, LATER, STREAM):
            raise Refusal(Outcome.PATH_NOT_FOUND, "nothing here")

    def serve(self, exchange: HttpExchange) -> None:
        head = exchange.head
        self.served.append((head.method, head.path, exchange.body))
        if head.path == ECHO:
            exchange.respond(200, b"x-head: 1\r\n", f"{head.method} {head.path} ".encode() + exchange.body)
            return
        self.held.append(exchange)
        if head.path == STREAM:
            exchange.start(200, b"", None, b"")
            exchange.write(b"begun")

    def refuse(self, exchange: HttpExchange, refusal: Refusal, *, keep: bool) -> None:
        self.refused.append(refusal.outcome)
        exchange.refuse(refusal, "req-1", keep=keep)

    def left(self, exchange: HttpExchange) -> None:
        self.gone.append(exchange.head.path)

    def opened(self, connection: ServerConnection) -> None:
        self.connections.append(connection)

    def closed(self, connection: ServerConnection) -> None:
        self.connections.remove(connection)


class Door:
    """A listening site."""

    def __init__(self, site: Site, sweep: Sweep, network: MemoryNetwork, address: tuple[str, int]) -> None:
        self.site = site
        self.sweep = sweep
        self.network = network
        self.address = address

    async def client(self, kind: type[Client] = Client) -> Client:
        """A new connection."""
        return await connected(self.network, self.address, kind)


@asynccontextmanager
async def door(network: MemoryNetwork | None = None, **limits: Any) -> AsyncIterator[Door]:
    """Listen in virtual time. At the end every connection goes, and no callback may have failed."""
    faults: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: faults.append(context))
    network, site, sweep = network or MemoryNetwork(), Site(), Sweep(loop.time)
    bounds, burst = HttpLimits(**limits), Burst()
    listener = await network.listen(lambda: ServerConnection(site, sweep, burst, bounds), "127.0.0.1", 0)
    sweep.start()
    yield Door(site, sweep, network, listener.address)
    for connection in list(site.connections):
        connection.transport.abort()
    sweep.stop()
    listener.close()
    await turns()
    assert not faults, faults
    assert len(sweep) == 0
    assert site.connections == []


async def took(work: Awaitable[object]) -> float:
    """How many virtual seconds this takes."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    await work
    return loop.time() - start
