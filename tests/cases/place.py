"""A whole gateway on uvloop and real sockets, in front of engines that misbehave by script.

The checks at the end are those of the fault suite: each request left one line and one count, and nothing is
left of any of them.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from typing import Any, ParamSpec

import uvloop
from openai import AsyncOpenAI

from maitred.admin.server import AdminServer
from maitred.app.desk import Desk
from maitred.config.kinds import Address
from maitred.config.secret import Secret
from maitred.config.tree import Admin, Config, Listen, Model
from maitred.core.words import EndpointState
from maitred.net.seams import Sockets
from maitred.observe.exposition import render
from maitred.observe.findings import Finding
from tests.cases.upstream import OPEN, Engine, Plan, Script
from tests.net.http import Answer, connected, get, turns
from tests.proxy import place as proxy_place
from tests.proxy.upstream import MODEL, Menu

P = ParamSpec("P")
DEADLINE_S = 60.0
"""Only a failing test ever waits this long."""
ANYWHERE = Listen(Address("127.0.0.1", 0))


def on_sockets(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a coroutine test on uvloop; one that hangs fails. Engines that it opened are closed."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def main() -> None:
            try:
                async with asyncio.timeout(DEADLINE_S):
                    await test(*args, **kwargs)
            finally:
                for engine in list(OPEN):
                    engine.close()
                await turns()

        uvloop.run(main())

    return run


class Place(proxy_place.Place):
    """What a test has in hand. `script`: the plans that all engines share."""

    def __init__(self, engines: Sequence[Engine], script: Script, config: Config) -> None:
        super().__init__(Sockets(), Menu(), [], config)
        self.engines = list(engines)
        self.script = script

    @property
    def findings(self) -> list[Finding]:
        """What is wrong now, except that the machine under the tests is slow."""
        return [finding for finding in self.app.findings.current() if finding.kind != "loop_lag"]

    async def open(self) -> None:
        """Start, and wait until every engine serves."""
        await self.begin()
        await self.ready()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for something that nobody tells."""
        while not holds():
            await asyncio.sleep(0.001)

    async def begin(self) -> None:
        """Only start."""
        self.address = await self.app.start()

    async def ready(self, count: int = 1) -> None:
        """Wait until there are so many endpoints or more, and all serve."""
        await self.until(lambda: len(self.states) >= count and set(self.states) == {EndpointState.READY})

    @property
    def urls(self) -> set[str]:
        """Where the endpoints are."""
        return {endpoint.url for endpoint in self.app.house.gateway.table.by_name.values()}

    @property
    def port(self) -> int:
        """Where it listens."""
        return self.address[1]

    def openai(self, retries: int = 0) -> AsyncOpenAI:
        """The official client."""
        url = f"http://127.0.0.1:{self.port}/v1"
        return AsyncOpenAI(base_url=url, api_key="sk-of-the-client", max_retries=retries)

    async def drop_idle(self) -> None:
        """Close the engines' ends of idle connections, so that the next request opens one of its own."""
        for engine in self.engines:
            for connection in list(engine.serving):
                connection.transport.abort()
        await self.until(lambda: self.app.pool.open == 0)

    async def settle(self) -> None:
        """Let every client leave, and see that nothing is left of its requests."""
        for client in self.clients:
            client.leave()
        await self.until(lambda: not self.app.journeys and not self.app.front.connections)
        await self.until(lambda: self.app.pool.open == self.app.pool.idle)  # questions may be under way
        assert not self.app.house.running
        assert self.running == [0] * len(self.running)
        assert self.waiting == 0
        self.check_told()


@asynccontextmanager
async def serving(*plans: Plan, engines: int = 1, **config: Any) -> AsyncIterator[Place]:
    """A gateway before so many engines that share one script; see `opened`."""
    script = Script(*plans) if plans else Engine().script
    async with opened([Engine(script=script) for _ in range(engines)], **config) as place:
        yield place


@asynccontextmanager
async def opened(
    engines: Sequence[Engine],
    model: dict[str, Any] | None = None,
    config: Callable[[list[str]], Config] | None = None,
    begin: Callable[[Place], Awaitable[None]] = Place.open,
    **sections: Any,
) -> AsyncIterator[Place]:
    """A gateway before these engines, which serve one model unless `config` makes another of their URLs.

    `model`: options of that model; `sections`: parts of the configuration. `begin` starts it, and waits for
    all engines unless it is another one.
    """
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: faults.append(context))
    before = asyncio.all_tasks()
    for number, engine in enumerate(engines):
        engine.number = number
        await engine.open()
    urls = [engine.url for engine in engines]
    if config is None:
        named = Model(**{"name": MODEL, "endpoints": tuple(urls), **(model or {})})
        made = Config(listen=ANYWHERE, models=(named,), **sections)
    else:
        made = config(urls)
    place = Place(engines, engines[0].script, made)
    try:
        await begin(place)
        yield place
        await place.settle()
    finally:
        await place.app.stop()
        for engine in engines:
            engine.close()
        async with asyncio.timeout(DEADLINE_S):
            await place.until(lambda: not any(engine.serving for engine in engines))
        await turns()
        place.close()
    assert asyncio.all_tasks() == before, "tasks were left behind"
    assert not faults, faults


def open_sockets() -> int:
    """How many sockets this process has open; the loop itself keeps other files as it likes."""
    count = 0
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - a path is of no use here
        with suppress(FileNotFoundError):  # what the list itself was read from
            count += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")  # noqa: PTH115 - as above
    return count


@contextmanager
def deaf() -> Iterator[int]:
    """A port that answers no connection: it listens, and its backlog is full."""
    with ExitStack() as held:
        listener = held.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        address = listener.getsockname()
        for _ in range(4):
            filler = held.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(address)
        yield address[1]


@asynccontextmanager
async def admin_port(
    place: Place, token: Secret | None = None, load: Callable[[], Config] | None = None
) -> AsyncIterator[Callable[..., Coroutine[Any, Any, Answer]]]:
    """The admin port of this gateway; gives a function that asks it: path, method, header lines."""
    loop = asyncio.get_running_loop()
    desk, metrics = Desk(place.app, load or (lambda: place.app.config)), place.app.metrics
    settings = Admin(listen=ANYWHERE.data, token=token)
    server = AdminServer(settings, loop=loop, desk=desk, render=lambda: render(metrics), clock=time.monotonic)
    address = server.start()

    async def ask(path: str, *headers: str, method: str = "GET", host: str = "localhost") -> Answer:
        client = await connected(place.network, address)
        request = get(path, *headers, method=method)
        client.send(request.replace(b"Host: gateway", f"Host: {host}".encode()))
        answer = await client.answer(method)
        client.leave()
        return answer

    try:
        yield ask
    finally:
        await asyncio.to_thread(server.stop)


TURN_CPU_S = 0.05
"""More work than this in one turn of the loop is felt by every stream."""


@asynccontextmanager
async def unhurried(limit_s: float = TURN_CPU_S) -> AsyncIterator[None]:
    """Within this no turn of the loop may take more CPU time, gateway, client and engine together.

    CPU time and not the clock's, so that whatever else runs on the machine is no failure.
    """
    longest_s = 0.0

    async def watch() -> None:
        nonlocal longest_s
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            longest_s, before = max(longest_s, now - before), now

    gc.disable()  # its pauses depend on what other tests have left
    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.wait([watching])
        gc.enable()
    assert longest_s < limit_s


WAITS = ("open", "os.listdir", "socket.getaddrinfo", "socket.gethostbyname", "subprocess.Popen", "time.sleep")
"""What the interpreter tells of that can keep a thread waiting."""

_heard: list[str] | None = None


def _hear(event: str, _details: object) -> None:
    if _heard is not None and event in WAITS:
        _heard.append(event)


@contextmanager
def nothing_that_waits() -> Iterator[None]:
    """Within this nobody opens a file, resolves a name, starts a process or sleeps."""
    global _heard  # noqa: PLW0603 - a hook can never be taken off again
    heard: list[str] = []
    _heard = heard
    try:
        yield
    finally:
        _heard = None
    assert heard == []


sys.addaudithook(_hear)
