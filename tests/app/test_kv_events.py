"""KV events in a whole gateway: what a request leaves in an engine's cache is known, and can be seen."""

from __future__ import annotations

import asyncio
import json
import time
from random import Random

import pytest
import uvloop

from maitred.app.desk import Desk
from maitred.app.gateway import GatewayApp
from maitred.config.cache import Cache, Events
from maitred.config.kinds import Address
from maitred.config.tree import Config, Health, Listen, Model
from maitred.net.seams import Sockets
from maitred.observe.exposition import render
from maitred.twin.kv_events import KvEvents
from tests.net.http import connected, post
from tests.ports import free_port
from tests.twin.place import CHAT, MODEL, Place, chat, serving

PATIENCE_S = 60.0
LONG = chat(messages=[{"role": "user", "content": "a long story " * 40}], max_tokens=1)
"""A prompt of 4 full blocks."""


async def until_heard(at: Desk, name: str, engine: Place) -> None:
    """Have it tell of nothing in particular until that is heard, for what it tells before is lost."""
    async with asyncio.timeout(PATIENCE_S):
        while (known := (await at.kv_events()).get(name)) is None or known.heard_at is None:
            await engine.post("/reset_prefix_cache", {})
            await asyncio.sleep(0.01)


async def until_used(at: Desk, name: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (known := (await at.kv_events()).get(name)) is None or known.why or known.blocks != 4:
            await asyncio.sleep(0.01)


def test_what_a_request_leaves_in_a_cache_is_known() -> None:
    async def test() -> None:
        port, replay, network = free_port(), free_port(), Sockets()
        events = KvEvents(f"tcp://*:{port}", 32, time.time, f"tcp://127.0.0.1:{replay}")
        async with serving(None, network, events) as place:
            heard = Cache(events=Events(port=port, replay=replay))
            config = Config(
                listen=Listen(Address("127.0.0.1", 0)),
                models=(Model(MODEL, (place.url,), cache=heard),),
                health=Health(generate=False),
            )
            app = GatewayApp(config, network, time.monotonic, seed=Random(1).getrandbits(32))
            client = await connected(network, await app.start())
            try:
                at, name = Desk(app, lambda: config), f"{MODEL}/{place.url.removeprefix('http://')}"
                await until_heard(at, name, place)
                client.send(post(CHAT, LONG))
                assert (await client.answer("POST")).status == 200
                await until_used(at, name)
                text = b"".join(render(app.metrics)).decode()
                assert f'maitred_kv_events_used{{endpoint="{name}"}} 1.0\n' in text
                assert f'maitred_kv_events_blocks{{endpoint="{name}"}} 4.0\n' in text
                assert "maitred_kv_events_foreign_total 0.0\n" in text
            finally:
                client.leave()
                await app.stop()
        assert len(asyncio.all_tasks()) == 1

    uvloop.run(test())


@pytest.mark.usefixtures("patient")
def test_what_was_told_is_what_the_engine_reports_of_the_next_request() -> None:
    async def test() -> None:
        port, replay, network = free_port(), free_port(), Sockets()
        events = KvEvents(f"tcp://*:{port}", 32, time.time, f"tcp://127.0.0.1:{replay}")
        async with serving(None, network, events) as place:
            heard = Cache(events=Events(port=port, replay=replay))
            config = Config(
                listen=Listen(Address("127.0.0.1", 0)),
                models=(Model(MODEL, (place.url,), routing="default", tokens="engine", cache=heard),),
                health=Health(generate=False),
            )
            app = GatewayApp(config, network, time.monotonic, seed=1)
            client = await connected(network, await app.start())
            at, name = Desk(app, lambda: config), f"{MODEL}/{place.url.removeprefix('http://')}"
            try:
                await until_heard(at, name, place)
                for _ in range(2):
                    client.send(post(CHAT, LONG))
                    answer = await client.answer("POST")
                    assert answer.status == 200
                    await until_used(at, name)
                usage = json.loads(answer.body)["usage"]
                cached = usage["prompt_tokens_details"]["cached_tokens"]
                assert cached == 4 * 32
                text = b"".join(render(app.metrics)).decode()
                for kind in ("predicted", "reported"):
                    labels = f'endpoint="{name}",index="precise",kind="{kind}"'
                    assert f"maitred_cached_tokens_total{{{labels}}} {cached}.0\n" in text
            finally:
                client.leave()
                await app.stop()
        assert len(asyncio.all_tasks()) == 1

    uvloop.run(test())
