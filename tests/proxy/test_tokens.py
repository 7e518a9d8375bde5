"""Token ids on a request's way: they come before the core is asked, and nobody fails or stays for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from maitred.config.cache import Cache
from maitred.control.models import Route
from maitred.core.events import Ended
from maitred.core.tokens import NoTokens
from maitred.core.words import Request
from maitred.door.read import Order
from maitred.door.source import Source
from maitred.wire.prefix import blocks_of, root
from tests.net.http import turns
from tests.proxy.place import WHOLE, Door, Place, in_virtual_time, serving
from tests.proxy.upstream import MODEL

IDS = bytes(range(40 * 4))
DEFAULT: dict[str, Any] = {"routing": "default"}


class Told:
    """A source that tells this of everything, or waits for ever where that is None."""

    def __init__(self, found: bytes | NoTokens | None) -> None:
        self.found = found
        self.asked = 0
        self.cancelled = 0
        self.told: Callable[[], object] = lambda: None

    async def __call__(self, order: Order) -> bytes | NoTokens:
        self.asked += 1
        self.order = order
        if self.found is None:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        assert self.found is not None
        self.told()
        return self.found


def ask_first(place: Place, source: Told, block_tokens: int = 16) -> list[Request]:
    """Have requests of the model ask this source; those that ended, as the core had them."""
    app, ended = place.app, list[Request]()
    app.tokens.sources[MODEL] = cast("Source", source)
    app.kv_events._sizes[MODEL] = block_tokens
    app.hub.subscribe({Ended: lambda event: ended.append(event.ticket.request)})
    return ended


@in_virtual_time()
async def test_the_core_gets_blocks_and_the_exact_length() -> None:
    async with serving(model=DEFAULT) as place:
        ended = ask_first(place, Told(IDS))
        assert (await place.ask()).status == 200
        (request,) = ended
        assert request.blocks == blocks_of(root(MODEL), IDS, 16)
        assert len(request.blocks) == 2
        assert (request.block_tokens, request.prompt_tokens, request.prompt_exact) == (16, 40, True)
        assert request.untold is None


@in_virtual_time()
async def test_whoever_may_not_ask_any_more_once_they_are_told_is_refused() -> None:
    async with serving(model=DEFAULT) as place:
        ask_first(place, source := Told(IDS))
        door = Door(place)
        source.told = lambda: setattr(door, "shut", True)
        assert (await place.ask()).status == 401
        assert place.menu.asked == []


@in_virtual_time()
async def test_blocks_have_the_salt_that_the_engine_gets() -> None:
    async with serving(model={**DEFAULT, "cache": Cache(isolate="tenant")}) as place:
        source = Told(IDS)
        ended = ask_first(place, source)
        assert (await place.ask()).status == 200
        assert source.order.salt
        assert ended[0].blocks == blocks_of(root(MODEL), IDS, 16, source.order.salt)


@in_virtual_time()
async def test_without_a_known_size_there_are_no_blocks_but_the_length() -> None:
    async with serving(model=DEFAULT) as place:
        ended = ask_first(place, Told(IDS), block_tokens=0)
        assert (await place.ask()).status == 200
        assert (ended[0].blocks, ended[0].prompt_tokens, ended[0].prompt_exact) == ((), 40, True)


@in_virtual_time()
async def test_a_model_whose_prompts_nobody_looks_up_gets_no_blocks() -> None:
    async with serving() as place:
        ended = ask_first(place, Told(IDS))
        place.app.models.serve([Route(MODEL, MODEL, keyed=False)])
        assert (await place.ask()).status == 200
        assert (ended[0].blocks, ended[0].prompt_tokens) == ((), 40)


@in_virtual_time()
async def test_no_request_fails_for_want_of_them() -> None:
    async with serving(model=DEFAULT) as place:
        ended = ask_first(place, Told(NoTokens.BUSY))
        assert (await place.ask()).status == 200
        assert ended[0].untold is NoTokens.BUSY
        assert (ended[0].blocks, ended[0].prompt_exact) == ((), False)


@in_virtual_time()
async def test_who_leaves_meanwhile_is_waited_for_no_longer() -> None:
    async with serving(model=DEFAULT) as place:
        source = Told(None)
        ended = ask_first(place, source)
        client = await place.client()
        client.send(WHOLE)
        await place.until(lambda: source.asked == 1)
        client.leave()
        await turns()
        assert source.cancelled == 1
        assert place.outcomes == ["client_gone"]
        assert not ended
