"""Two real engines that tell what they cache: conversations find it all, and tenants nothing of others'."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import uvloop
from msgspec import Struct, structs

from maitred.app.gateway import GatewayApp
from maitred.config.cache import Cache, Events
from maitred.config.kinds import Address
from maitred.config.tree import Config, Health, Listen, Model, TokensFolder
from maitred.core.events import Ended
from maitred.core.words import Api, EndpointState, Identity
from maitred.door.tokenizer import Folder
from maitred.net.seams import Sockets
from maitred.wire.conversation import TOOL_FORMS
from tests.net.http import Client, connected, post
from tests.ports import free_ports
from tests.vllm.engines import BLOCK_TOKENS, MODEL, engines, folder

pytestmark = pytest.mark.vllm

PATIENCE_S = 60.0
SYSTEM = "{0}: you keep the books of a large restaurant and answer in a few plain words. " * 6
HOUSES = ("The Golden Goose", "The Blue Boar")
CONVERSATIONS, TURNS = 4, 4


class Found(Struct):
    """Cached tokens of one request: as predicted, as reported, and by which index."""

    endpoint: str
    predicted: int
    reported: int
    exact: bool


class House:
    """A gateway before real engines; `found` tells of each answer."""

    def __init__(self, app: GatewayApp, client: Client) -> None:
        self.app = app
        self.client = client
        self.tenant = "a"
        self.found: list[Found] = []
        app.hub.subscribe({Ended: self._ended})
        service = structs.replace(app.front.service, identify=lambda _fields: Identity(self.tenant))
        app.front.service = service

    def _ended(self, event: Ended) -> None:
        (leg,) = event.ticket.legs
        assert event.usage is not None
        predicted = event.ticket.prompt_tokens - leg.fresh
        self.found.append(Found(leg.endpoint.name, predicted, event.usage.cached_tokens, leg.exact))

    async def ask(self, body: dict[str, Any]) -> Found:
        self.client.send(post("/v1/chat/completions", json.dumps(body).encode()))
        answer = await self.client.answer("POST")
        assert answer.status == 200, answer.body
        return self.found[-1]

    async def until(self, holds: Any) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                await asyncio.sleep(0.05)

    async def heard(self) -> None:
        """Until the blocks of all requests so far have been told."""
        await self.until(lambda: all(not told.soon for told in self.blocks.told.values()))

    @property
    def blocks(self) -> Any:
        return self.app.house.gateway._pools[MODEL].blocks


@asynccontextmanager
async def serving(urls: list[str], where: Path, isolate: str = "none") -> AsyncIterator[House]:
    network = Sockets()
    model = Model(
        MODEL,
        tuple(urls),
        routing="default",
        tokens=TokensFolder(where),
        cache=Cache(isolate=isolate, events=Events(offset=1, replay_offset=2)),
    )
    listen = Listen(Address("127.0.0.1", 0))
    app = GatewayApp(
        Config(listen=listen, models=(model,), health=Health(generate=False)), network, time.monotonic
    )
    client = await connected(network, await app.start())
    try:
        it = House(app, client)
        table = app.house.gateway.table.by_name
        await it.until(lambda: [end.state for end in table.values()] == [EndpointState.READY] * len(urls))
        await app.tokens.compare()
        yield it
    finally:
        client.leave()
        await app.stop()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[str], Path]]:
    where = folder(tmp_path_factory.mktemp("model"))
    with engines(where, *free_ports(2, run=3)) as urls:
        yield urls, where


def body(messages: list[dict[str, str]]) -> dict[str, Any]:
    return {"model": MODEL, "messages": messages, "max_tokens": 1, "temperature": 0}


def turns(number: int) -> Iterator[list[dict[str, str]]]:
    """What is asked in the turns of a conversation, each with all before it."""
    messages = [{"role": "system", "content": SYSTEM.format(HOUSES[number % 2])}]
    for turn in range(TURNS):
        asked = f"Guest {number}, course {turn}: what is owed, and by whom? " * (3 + turn)
        messages = [*messages, {"role": "user", "content": asked}]
        yield messages
        messages = [*messages, {"role": "assistant", "content": f"{number + turn} guilders, by the cook."}]


def best(ids: bytes, before: list[bytes]) -> int:
    """Tokens that would be found where the most of this prompt is: whole blocks, and never its last token."""
    most = 0
    for other in before:
        both = zip(memoryview(ids).cast("I"), memoryview(other).cast("I"), strict=False)
        most = max(
            most, next((at for at, (a, b) in enumerate(both) if a != b), min(len(ids), len(other)) // 4)
        )
    return min(most, len(ids) // 4 - 1) // BLOCK_TOKENS * BLOCK_TOKENS


def test_conversations_find_what_perfect_placement_would_give(place: tuple[list[str], Path]) -> None:
    urls, where = place
    tokenizer = Folder(where)

    async def main() -> None:
        async with serving(urls, where) as house:
            # a first word, so that the engines have told the size of their blocks
            await house.ask(body([{"role": "user", "content": "warm " * 60}]))
            await house.until(lambda: house.app.kv_events.block_tokens(MODEL) == BLOCK_TOKENS)
            await house.until(lambda: house.blocks.told)
            before: list[bytes] = []
            rows = []
            scripts = [turns(number) for number in range(CONVERSATIONS)]
            for turn, number in ((turn, number) for turn in range(TURNS) for number in range(CONVERSATIONS)):
                asked = body(next(scripts[number]))
                ids = tokenizer.ids(Api.CHAT, json.dumps(asked).encode(), TOOL_FORMS[0])
                found = await house.ask(asked)
                rows.append((number, turn, len(ids) // 4, best(ids, before), found))
                before.append(ids)
                await house.heard()
            for number, turn, tokens, perfect, found in rows:
                print(  # noqa: T201 - the table that docs/ has
                    f"conversation {number} turn {turn}: {tokens:4} tokens, perfect {perfect:4}, predicted "
                    f"{found.predicted:4}, reported {found.reported:4} at {found.endpoint}"
                )
            assert len({found.endpoint for *_, found in rows}) == 2
            assert sum(found.exact for *_, found in rows) >= len(rows) - 1
            assert all(
                abs(found.predicted - found.reported) <= BLOCK_TOKENS for *_, found in rows if found.exact
            )
            later = [(perfect, found.reported) for _, turn, _, perfect, found in rows if turn]
            assert all(reported >= perfect for perfect, reported in later)

    uvloop.run(main())


def test_two_tenants_find_nothing_of_each_other(place: tuple[list[str], Path]) -> None:
    urls, where = place

    async def main() -> None:
        async with serving(urls[:1], where, isolate="tenant") as house:
            asked = body([{"role": "user", "content": "What does the secret dish cost? " * 40}])
            numbers = count()
            for tenant, cached in (("a", False), ("b", False), ("a", True), ("b", True)):
                house.tenant = tenant
                found = await house.ask(asked)
                assert bool(found.reported) is cached, (next(numbers), tenant, found)
                if cached:
                    assert abs(found.predicted - found.reported) <= BLOCK_TOKENS
                await house.until(lambda: house.app.kv_events.block_tokens(MODEL) == BLOCK_TOKENS)
                await house.heard()

    uvloop.run(main())
