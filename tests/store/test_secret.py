"""The secret that gateways of one database share, and what they seal by it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from threading import Barrier

from sqlalchemy import Connection, select

from maitred.store.connections import lanes
from maitred.store.secret import kept, prove
from maitred.store.store import Store
from tests.store.place import on_loop, remembering
from tests.store.postgres import Postgres


@on_loop
async def test_what_one_gateway_sealed_opens_at_another(url: str) -> None:
    async with remembering(url) as first, remembering(url) as second:
        sealed = (await first.seal()).close("a", "what was said")
        assert (await second.seal()).open("a", sealed) == "what was said"
        assert await first.seal() is await first.seal()


@on_loop
async def test_the_secret_is_drawn_once_however_many_ask(url: str) -> None:
    async with AsyncExitStack() as stack:
        gateways = [await stack.enter_async_context(remembering(url)) for _ in range(6)]
        seals = await asyncio.gather(*[gateway.seal() for gateway in gateways])
        assert len({seal.close("a", "what was said") for seal in seals}) == 1


@on_loop
async def test_two_prove_at_once_that_they_can_write(server: Postgres) -> None:
    together = Barrier(2)

    def prove_together(connection: Connection) -> None:
        connection.execute(select(kept))
        together.wait()
        prove(connection)

    store = Store.open(server.make("prove"))
    await store.upgrade()
    kept_open = lanes(store.place, "test", 4)
    await asyncio.gather(*[kept_open.write(prove_together) for _ in range(2)])
    await kept_open.close()
    await store.close()
