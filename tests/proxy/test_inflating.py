"""Compressed bodies that are inflated beside the loop, which real time and threads are needed for."""

from __future__ import annotations

import gzip
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from string import ascii_letters

from maitred.net.seams import Sockets
from tests.net.http import get, post
from tests.proxy.place import CHAT, WHOLE, Door, Place, chat, serving
from tests.proxy.test_sockets import on_sockets
from tests.proxy.upstream import JSON

BODY = chat(padding="".join(Random(1).choices(ascii_letters, k=8_000)) * 60)
LARGE = post(CHAT, gzip.compress(BODY), "Content-Encoding: gzip")
assert len(LARGE) < 16 * 1024


@asynccontextmanager
async def held() -> AsyncIterator[tuple[Place, threading.Event]]:
    """A gateway that inflates nothing large until the event is set."""
    free = threading.Event()
    async with serving(network=Sockets()) as place:
        place.app.inflate._thread.submit(free.wait)
        try:
            yield place, free
        finally:
            free.set()


def test_others_are_served_while_a_large_body_is_inflated() -> None:
    async def main() -> None:
        async with held() as (place, free):
            client = await place.client()
            client.send(LARGE + get("/v1/models"))
            await place.until(lambda: len(place.app.journeys) == 1)
            assert (await place.ask(WHOLE)).body == JSON
            assert client.received == b""
            free.set()
            assert (await client.answer()).body == JSON
            assert (await client.answer()).json["object"] == "list"
            assert [asked.body for asked in place.menu.asked] == [chat(), BODY]

    on_sockets(main())


def test_a_client_that_leaves_meanwhile_is_let_go() -> None:
    async def main() -> None:
        async with held() as (place, _):
            client = await place.client()
            client.send(LARGE)
            await place.until(lambda: len(place.app.journeys) == 1)
            client.leave()
            await place.until(lambda: not place.app.journeys)
            assert place.outcomes == ["client_gone"]
            assert place.menu.asked == []

    on_sockets(main())


def test_whoever_may_not_ask_any_more_once_it_is_inflated_is_refused() -> None:
    async def main() -> None:
        async with held() as (place, free):
            door = Door(place)
            client = await place.client()
            client.send(LARGE)
            await place.until(lambda: len(place.app.journeys) == 1)
            door.shut = True
            free.set()
            assert (await client.answer()).status == 401
            assert place.menu.asked == []

    on_sockets(main())


def test_too_many_large_bodies_at_once_are_refused() -> None:
    async def main() -> None:
        async with held() as (place, free):
            clients = [await place.client() for _ in range(33)]
            for client in clients:
                client.send(LARGE)
            await place.until(lambda: place.outcomes == ["queue_full"])
            free.set()
            answers = [await client.answer() for client in clients]
            (refused,) = (answer for answer in answers if answer.status != 200)
            assert (refused.status, refused.value(b"retry-after")) == (429, b"1")
            assert place.outcomes.count("completed") == 32

    on_sockets(main())
