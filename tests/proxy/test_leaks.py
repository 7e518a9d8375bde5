"""Nothing is left of a request, however it ended, without any help of the garbage collector.

A cycle of objects would live until the collector finds it, with the bodies it holds; at a few hundred
requests a second that is memory and pauses. So the collector is off here and what is left is counted.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest
import uvloop

from maitred.config.tree import Http, Queue, Upstream
from maitred.net.memory import MemoryNetwork
from maitred.net.seams import Network, Sockets
from tests.net.http import Broken, Client, get, post, turns
from tests.proxy.faults import AFTER_CONTENT, BEFORE_ANY_ANSWER, BEFORE_CONTENT, CUT_WHOLE
from tests.proxy.place import CHAT, STREAM, WHOLE, Place, chat, in_virtual_time, serving
from tests.proxy.upstream import GOOD, GOOD_STREAM, SILENCE, Plan, stream, word

REQUESTS = (
    *("HttpExchange", "Relay", "Order", "Ticket", "Leg", "Task", "Future", "StreamJudge", "WholeJudge"),
    *("UpstreamFailed", "ConnectFailed", "traceback", "frame"),
)
CONNECTIONS = ("ServerConnection", "ClientConnection", "HttpRequestParser", "HttpResponseParser", "Refusal")
CHATTY: Plan = [*stream(word("Hello"), end=()), 1e6]
FAULTS: list[Plan] = [
    *BEFORE_ANY_ANSWER.values(),
    *BEFORE_CONTENT.values(),
    *CUT_WHOLE.values(),
    *(plan for plan, _ in AFTER_CONTENT.values()),
]
DOOR = [
    get("/v1/unknown"),
    get(CHAT),
    post(CHAT, b"no JSON"),
    post(CHAT, chat(model="other")),
    get("/v1/models"),
    get("/livez"),
    post(CHAT, b"x" * 70_000),
    b"NONSENSE\r\n\r\n",
    get("/v1/models", "Host: twice"),
]


def alive(*names: str) -> Counter[str]:
    """How many objects of these types there are."""
    return Counter(name for each in gc.get_objects() if (name := type(each).__name__) in names)


@contextmanager
def no_collector() -> Iterator[None]:
    """Collect, and then no more until the end."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()


async def asks(place: Place, client: Client, request: bytes) -> Client:
    """Ask on this connection, or on a new one where it was closed."""
    if client.over:
        client = await place.client()
    client.send(request)
    try:
        await client.answer()
    except Broken:
        client.leave()
    await turns()
    return client


async def answered(place: Place) -> None:
    client = await place.client()
    for _ in range(200):
        client = await asks(place, client, WHOLE)
        client = await asks(place, client, STREAM)


async def refused(place: Place) -> None:
    client = await place.client()
    for request in DOOR * 12:
        client = await asks(place, client, request)


async def failed(place: Place) -> None:
    client = await place.client()
    for plan in FAULTS * 4:
        for request, good in ((WHOLE, GOOD), (STREAM, GOOD_STREAM)):
            place.menu.set(plan, good)
            client = await asks(place, client, request)


async def left(place: Place) -> None:
    moments, requests = (0, 3, 8, 20), (WHOLE, STREAM, WHOLE[:-9])
    for plan, moment, request in itertools.product((SILENCE, CHATTY) * 8, moments, requests):
        place.menu.set(plan)
        client = await place.client()
        client.send(request)
        await turns(moment)
        client.leave()
        await turns()


async def waited(place: Place) -> None:
    place.menu.set(SILENCE)
    for _ in range(15):
        clients = [await place.client() for _ in range(9)]
        for client in clients:
            client.send(STREAM)
        await asyncio.sleep(2.0)
        for client in clients:
            client.leave()
        await turns()


WAYS: list[Callable[[Place], Awaitable[None]]] = [answered, refused, failed, left, waited]


async def nothing_left(
    way: Callable[[Place], Awaitable[None]], names: tuple[str, ...], network: Network
) -> None:
    """Serve requests that end in this way; no object of these types may outlive them."""
    async with serving(
        kitchens=2,
        network=network,
        model={"cap": 2, "queue": Queue(wait_s=1.0, requests_max=4)},
        http=Http(body_bytes_max=60_000),
        upstream=Upstream(first_byte_s=5.0, keep_alive_s=0.1),
    ) as place:
        await at_rest(place)
        with no_collector():
            before = alive(*names)
            await way(place)
            await at_rest(place)
            assert len(place.lines) > 80
            assert alive(*names) - before == Counter()


async def at_rest(place: Place) -> None:
    """Wait until everything is over, and let the test forget it as well."""
    for client in place.clients:
        client.leave()
    place.clients.clear()
    place.menu.set(GOOD)
    place.menu.asked.clear()
    app, asked = place.app, True
    while asked:  # the gateway asks its engines how they are, each second
        await place.until(lambda: not (app.journeys or app.front.connections or app.pool.open))
        for kitchen in place.kitchens:
            kitchen.connections.clear()
        await turns()
        asked = app.pool.open > 0


@pytest.mark.parametrize("way", WAYS)
@in_virtual_time(1000)
async def test_nothing_is_left_of_a_request(way: Callable[[Place], Awaitable[None]]) -> None:
    await nothing_left(way, REQUESTS, MemoryNetwork())


@pytest.mark.parametrize("way", WAYS)
@in_virtual_time(1000)
async def test_nothing_is_left_of_a_connection(way: Callable[[Place], Awaitable[None]]) -> None:
    await nothing_left(way, CONNECTIONS, MemoryNetwork())


@pytest.mark.parametrize("way", [answered, refused, left])
def test_nothing_is_left_of_a_connection_on_sockets(way: Callable[[Place], Awaitable[None]]) -> None:
    uvloop.run(asyncio.wait_for(nothing_left(way, CONNECTIONS, Sockets()), 60))
