"""A whole gateway between clients and scripted engines, on either network, checked when it closes.

Whatever a test does to it, at the end every request must have left exactly one line and one count, and
nothing may be left of any of them.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, ParamSpec

from msgspec import structs
from prometheus_client.parser import text_string_to_metric_families

from maitred.app.gateway import GatewayApp
from maitred.config.kinds import Address
from maitred.config.tree import Config, Health, Listen, Model, Scrape
from maitred.control.known import unauthenticated
from maitred.core.words import EndpointState, Identity
from maitred.door.identify import ANYBODY
from maitred.net import virtual
from maitred.net.memory import MemoryNetwork
from maitred.net.seams import Network
from maitred.observe.access import AccessLog
from maitred.observe.exposition import render
from maitred.observe.sink import Sink
from tests.net.http import Answer, Client, connected, post, turns
from tests.proxy.upstream import GOOD, MODEL, Kitchen, Menu, Plan

CHAT = "/v1/chat/completions"
P = ParamSpec("P")


def chat(**members: Any) -> bytes:
    """The body of a chat request."""
    return json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "hi"}], **members}).encode()


WHOLE, STREAM = post(CHAT, chat()), post(CHAT, chat(stream=True))
ASKS_USAGE = post(CHAT, chat(stream=True, stream_options={"include_usage": True}))
"""Plain requests; the last is the one whose answer needs no change."""


class Place:
    """What a test has in hand."""

    def __init__(self, network: Network, menu: Menu, kitchens: list[Kitchen], config: Config) -> None:
        self.network = network
        self.menu = menu
        self.kitchens = kitchens
        self._log_fd = os.memfd_create("access")
        real = not isinstance(network, MemoryNetwork)
        clock = time.monotonic if real else asyncio.get_running_loop().time
        self.bugs = 0  # that the test put in
        access = AccessLog(Sink(self._log_fd), "json", clock=clock)
        self.app = GatewayApp(config, network, clock, access, seed=1)
        self.clients: list[Client] = []
        self.faults: list[dict[str, Any]] = []

    @property
    def memory(self) -> MemoryNetwork:
        """The network, in virtual time."""
        assert isinstance(self.network, MemoryNetwork)
        return self.network

    async def open(self) -> None:
        """Start, and wait until every engine has been found."""
        self.address = await self.app.start()
        await self.until(lambda: self.states == [EndpointState.READY] * len(self.kitchens))

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for something that nobody tells."""
        while not holds():
            await asyncio.sleep(0.005)

    @property
    def states(self) -> list[EndpointState]:
        """Where the endpoints stand."""
        return [endpoint.state for endpoint in self.app.house.gateway.table.by_name.values()]

    @property
    def running(self) -> list[int]:
        """How many requests each endpoint serves."""
        return [endpoint.running for endpoint in self.app.house.gateway.table.by_name.values()]

    @property
    def waiting(self) -> int:
        """How many requests are queued."""
        return sum(self.app.house.gateway.waiting_by_pool().values())

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The access log so far."""
        assert self.app.access is not None
        self.app.ends.tell()
        self.app.access.flush()
        text = os.pread(self._log_fd, 1 << 26, 0)
        return [json.loads(line) for line in text.splitlines()]

    @property
    def outcomes(self) -> list[str]:
        """How requests ended so far, in order."""
        return [line["outcome"] for line in self.lines]

    @property
    def counted(self) -> Counter[str]:
        """How many requests ended in which way, as the metrics have it."""
        text = b"".join(render(self.app.metrics)).decode()
        counts: Counter[str] = Counter()
        for family in text_string_to_metric_families(text):
            if family.name == "maitred_requests":
                for sample in family.samples:
                    counts[sample.labels["outcome"]] += int(sample.value)
        return counts

    async def client(self) -> Client:
        """A new connection."""
        self.clients.append(await connected(self.network, self.address))
        return self.clients[-1]

    async def ask(self, request: bytes = WHOLE) -> Answer:
        """One request on a new connection, and its answer."""
        client = await self.client()
        client.send(request)
        answer = await client.answer(request.partition(b" ")[0].decode())
        client.leave()
        return answer

    async def drop_idle(self) -> None:
        """Close the engines' ends of idle connections, so that the next request opens one of its own."""
        for kitchen in self.kitchens:
            for connection in kitchen.serving:
                connection.transport.abort()
        await self.until(lambda: self.app.pool.open == 0)

    async def settle(self) -> None:
        """Let every client leave, and see that nothing is left of its requests."""
        for client in self.clients:
            client.leave()
        await self.until(lambda: not self.app.journeys and not self.app.front.connections)
        await turns()
        assert not self.app.house.running
        assert self.running == [0] * len(self.running)
        assert self.waiting == 0
        pool = self.app.pool
        await self.until(lambda: pool.open == pool.idle)  # a question to an engine may be under way
        self.check_told()

    def check_told(self) -> None:
        """Each request left one line and one count."""
        lines = self.lines
        assert len({line["id"] for line in lines}) == len(lines)
        assert Counter(self.outcomes) == self.counted
        assert self.outcomes.count("failed_internal") == self.bugs

    def close(self) -> None:
        """Let go of the log."""
        os.close(self._log_fd)


@asynccontextmanager
async def serving(
    *plans: Plan,
    kitchens: int = 1,
    network: Network | None = None,
    model: dict[str, Any] | None = None,
    **sections: Any,
) -> AsyncIterator[Place]:
    """A gateway before so many kitchens with one menu; `sections` are parts of its configuration.

    No kitchen is asked for a token or for metrics unless `health` or `scrape` say so: plans are for the
    test's own requests.

    `model`: options of the one model, which is called "m" unless they say otherwise.
    """
    network = network or MemoryNetwork()
    tasks, faults = asyncio.all_tasks(), list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: faults.append(context))
    menu = Menu(*(plans or (GOOD,)))
    built = [Kitchen(number, menu) for number in range(kitchens)]
    for kitchen in built:
        await kitchen.open(network)
    named = Model(**{"name": MODEL, "endpoints": tuple(k.url for k in built), **(model or {})})
    quiet = {"health": Health(generate=False), "scrape": Scrape(period_s=1e6)}
    sections = {**quiet, **sections}
    config = Config(listen=Listen(Address("127.0.0.1", 0)), models=(named,), **sections)
    place = Place(network, menu, built, config)
    try:
        await place.open()
        yield place
        await place.settle()
    finally:
        await place.app.stop()
        for kitchen in built:
            kitchen.close()
        await turns()
        place.close()
    assert asyncio.all_tasks() <= tasks, "tasks were left behind"
    assert not faults, faults
    if isinstance(network, MemoryNetwork):
        assert network.open_transports == 0


def in_virtual_time(
    timeout_s: float = 120.0,
) -> Callable[[Callable[P, Coroutine[Any, Any, None]]], Callable[P, None]]:
    """Run a coroutine test in virtual time, for at most so many virtual seconds."""

    def decorate(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
        @functools.wraps(test)
        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            virtual.run(test(*args, **kwargs), timeout_s)

        return run

    return decorate


async def took(work: Awaitable[object]) -> float:
    """How many virtual seconds this takes."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    await work
    return loop.time() - start


def pieces(data: bytes, *cuts: int) -> Sequence[bytes]:
    """The data cut at these places."""
    return [data[a:b] for a, b in zip((0, *cuts), (*cuts, len(data)), strict=True)]


class Door:
    """Who stands at a place's door, and knows nobody any more once it is `shut`."""

    def __init__(self, place: Place) -> None:
        self.shut = False
        app = place.app
        app.front.service = app.site.service = structs.replace(app.site.service, identify=self._identify)

    def _identify(self, _fields: dict[bytes, bytes]) -> Identity:
        if self.shut:
            raise unauthenticated("the key was revoked")
        return ANYBODY
