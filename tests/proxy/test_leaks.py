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

from maitred.config.tree import Http, Queue, Upstream
from tests.net.http import Broken, Client, get, post, turns
from tests.proxy.faults import AFTER_CONTENT, BEFORE_ANY_ANSWER, BEFORE_CONTENT, CUT_WHOLE
from tests.proxy.place import CHAT, STREAM, WHOLE, Place, chat, in_virtual_time, serving
from tests.proxy.upstream import GOOD, GOOD_STREAM, SILENCE, Plan, stream, word

REQUESTS = ("HttpExchange", "RequestHead", "Relay", "Order", "Ticket", "Leg", "Task", "StreamJudge", "WholeJudge")
CONNECTIONS = ("ServerConnection", "ClientConnection", "HttpRequestParser", "HttpResponseParser")
ERRORS = ("Refusal", "UpstreamFailed", "ConnectFailed", "traceback")
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
    for _ in range(20):
        client = await asks(place, client, WHOLE)
        client = await asks(place, client, STREAM)


async def refused(place: Place) -> None:
    client = await place.client()
    for request in DOOR * 3:
        client = await asks(place, client, request)


async def failed(place: Place) -> None:
    client = await place.client()
    for plan in FAULTS:
        for request, good in ((WHOLE, GOOD), (STREAM, GOOD_STREAM)):
            place.menu.plans.extend([plan, good])
            place.menu.plans.popleft()
            client = await asks(place, client, request)


async def left(place: Place) -> None:
    for plan, moment, request in itertools.product((SILENCE, CHATTY), (0, 3, 8, 20), (WHOLE, STREAM, WHOLE[:-9])):
        place.menu.plans.extend([plan])
        place.menu.plans.popleft()
        client = await place.client()
        client.send(request)
        await turns(moment)
        client.leave()
        await turns()


async def waited(place: Place) -> None:
    place.menu.plans.extend([SILENCE])
    place.menu.plans.popleft()
    clients = [await place.client() for _ in range(9)]
    for client in clients:
        client.send(STREAM)
    await asyncio.sleep(2.0)
    for client in clients:
        client.leave()
    await turns()


WAYS: list[Callable[[Place], Awaitable[None]]] = [answered, refused, failed, left, waited]


@pytest.mark.parametrize("names", [REQUESTS, CONNECTIONS, ERRORS], ids=["requests", "connections", "errors"])
@pytest.mark.parametrize("way", WAYS)
@in_virtual_time(10_000)
async def test_nothing_is_left(way: Callable[[Place], Awaitable[None]], names: tuple[str, ...]) -> None:
    async with serving(
        kitchens=2,
        model={"cap": 2, "queue": Queue(wait_s=1.0, requests_max=4)},
        http=Http(body_bytes_max=60_000),
        upstream=Upstream(first_byte_s=5.0, keep_alive_s=1.0),
    ) as place:
        await at_rest(place)
        with no_collector():
            before = alive(*names)
            await way(place)
            await at_rest(place)
            assert len(place.lines) >= 15
            assert alive(*names) - before == Counter()


async def at_rest(place: Place) -> None:
    """Everything that was is over; the test lets go of it as well."""
    for client in place.clients:
        client.leave()
    place.clients.clear()
    place.menu.plans.extend([GOOD])
    place.menu.plans.popleft()
    place.menu.asked.clear()
    await asyncio.sleep(10.0)
    for kitchen in place.kitchens:
        kitchen.connections.clear()
    assert not place.app.journeys
    assert place.app.pool.open == 0
    await turns()
