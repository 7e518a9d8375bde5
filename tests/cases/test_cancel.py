"""Clients that leave: whatever the request waits for at that moment, the engine is let go at once."""

from __future__ import annotations

import asyncio

import pytest

from tests.cases.place import Place, deaf, on_sockets, opened, serving
from tests.cases.upstream import SILENCE, Engine, Plan, stream
from tests.net.http import Client, turns
from tests.proxy.place import STREAM, WHOLE
from tests.proxy.upstream import LAST, ROLE, chunk, head, word
from tests.proxy.upstream import STREAM as STREAM_HEAD

NEVER = asyncio.Event
CHATTY: Plan = [*stream(ROLE, word("Hello"), end=()), NEVER()]
BEFORE_CONTENT: dict[str, Plan] = {
    "no answer": SILENCE,
    "half a head": [b"HTTP/1.1 200 O", NEVER()],
    "interim": [head(100), NEVER()],
    "headers": [STREAM_HEAD, NEVER()],
    "role": [STREAM_HEAD, chunk(ROLE), NEVER()],
    "comments": [STREAM_HEAD, chunk(b": thinking\n\n"), NEVER()],
}


def leave(client: Client, how: str) -> None:
    """Go, as a process that ends (RST), as one that closes its socket, or as one that only says no more."""
    if how == "reset":
        client.leave()
    elif how == "close":
        client.transport.close()
    else:
        client.transport.write_eof()


async def all_gone(place: Place, count: int = 1) -> None:
    """Nothing is left of so many requests whose clients left."""
    await place.until(lambda: not place.app.journeys and not place.app.front.connections)
    assert place.outcomes == ["client_gone"] * count
    assert place.counted == {"client_gone": count}
    assert place.running == [0] * len(place.running)
    assert place.waiting == 0
    assert {line["status"] for line in place.lines} <= {499, 200}


class TestLeavingBeforeTheFirstToken:
    """B17: BerriAI/litellm#31499, 1rgs/claude-code-proxy#114.

    Whoever waited for the first chunk before there was an answer to give watched no client meanwhile. The
    engine's request ends in every phase: body, queue, connect, headers, before content.
    """

    @pytest.mark.parametrize("how", ["reset", "close", "half close"])
    @pytest.mark.parametrize("phase", BEFORE_CONTENT)
    @pytest.mark.parametrize("request_", [STREAM, WHOLE], ids=["stream", "whole"])
    @on_sockets
    async def test_the_engine_is_let_go(self, phase: str, how: str, request_: bytes) -> None:
        async with serving(BEFORE_CONTENT[phase]) as place:
            client = await place.client()
            client.send(request_)
            asked = await place.script.called()
            leave(client, how)
            await asked.lost.wait()
            await all_gone(place)

    @on_sockets
    async def test_while_its_body_is_read(self) -> None:
        async with serving() as place:
            client = await place.client()
            client.send(WHOLE[:-5])
            await place.until(lambda: bool(place.app.front.connections))
            await turns()
            client.leave()
            await all_gone(place)
            assert place.script.asked == []

    @on_sockets
    async def test_while_it_waits_in_the_queue(self) -> None:
        async with serving(CHATTY, model={"cap": 1}) as place:
            seated, waiting = await place.client(), await place.client()
            seated.send(STREAM)
            await seated.heard(b"Hello")
            waiting.send(STREAM)
            await place.until(lambda: place.waiting == 1)
            waiting.leave()
            await place.until(lambda: place.waiting == 0)
            assert place.outcomes == ["client_gone"]
            assert len(place.script.asked) == 1
            assert not place.script.asked[0].lost.is_set()

    @on_sockets
    async def test_while_it_connects(self) -> None:
        """The engine's host takes no connection; it answered when it was asked for its models."""
        engine = Engine()
        async with opened([engine]) as place:
            await place.drop_idle()
            engine.close()
            with deaf() as port:
                (endpoint,) = place.app.house.gateway.table.by_name.values()
                endpoint.url = f"http://127.0.0.1:{port}"
                client = await place.client()
                client.send(STREAM)
                await place.until(lambda: place.running == [1])
                client.leave()
                await all_gone(place)
            assert place.app.pool.open == 0

    @on_sockets
    async def test_while_the_second_engine_is_tried(self) -> None:
        async with serving([head(500, "content-length: 0")], SILENCE, engines=2) as place:
            client = await place.client()
            client.send(STREAM)
            asked = await place.script.called(2)
            client.leave()
            await asked.lost.wait()
            await all_gone(place)
            assert place.lines[0]["attempts"] == 2

    @on_sockets
    async def test_those_behind_it_on_the_connection_leave_too(self) -> None:
        async with serving(SILENCE) as place:
            client = await place.client()
            client.send(STREAM + WHOLE + STREAM)
            asked = await place.script.called()
            client.leave()
            await asked.lost.wait()
            await all_gone(place, 3)
            assert len(place.script.asked) == 1


class TestLeavingWhileTheEngineIsSilent:
    """B18: BerriAI/litellm#30244, BerriAI/litellm#30245, majiayu000/litellm-rs#198.

    A client's leaving was noticed only at the next write to it, so a stalled or thinking engine was held for
    ever. The reading side is watched: nothing needs to be written.
    """

    @pytest.mark.parametrize("how", ["reset", "close", "half close"])
    @on_sockets
    async def test_the_engine_is_let_go_without_another_word(self, how: str) -> None:
        async with serving(CHATTY) as place:
            client = await place.client()
            client.send(STREAM)
            await client.heard(b"Hello")
            leave(client, how)
            await place.script.asked[0].lost.wait()
            await all_gone(place)
            assert place.lines[0]["status"] == 200

    @on_sockets
    async def test_within_a_large_answer_that_stalls(self) -> None:
        plan: Plan = [head(200, "content-length: 1000000"), b"x" * 200_000, NEVER()]
        async with serving(plan) as place:
            client = await place.client()
            client.send(WHOLE)
            await client.heard(b"xxxx")
            client.leave()
            await place.script.asked[0].lost.wait()
            await all_gone(place)

    @on_sockets
    async def test_its_place_is_free_for_the_next(self) -> None:
        async with serving(
            CHATTY, stream(ROLE, word("next"), b"data: [DONE]\n\n"), model={"cap": 1}
        ) as place:
            first, second = await place.client(), await place.client()
            first.send(STREAM)
            await first.heard(b"Hello")
            second.send(STREAM)
            await place.until(lambda: place.waiting == 1)
            first.leave()
            await second.heard(b"next")
            assert (await second.answer()).status == 200

    @on_sockets
    async def test_who_stays_is_not_disturbed(self) -> None:
        """Two streams at one engine; only the one whose client left ends."""
        rest = asyncio.Event()
        plan: Plan = [*stream(word("Hello"), end=()), rest, chunk(b"data: [DONE]\n\n"), LAST]
        async with serving(plan) as place:
            one, other = await place.client(), await place.client()
            for client in (one, other):
                client.send(STREAM)
                await client.heard(b"Hello")
            one.leave()
            await place.script.asked[0].lost.wait()
            assert not place.script.asked[1].lost.is_set()
            rest.set()
            assert (await other.answer()).body == word("Hello") + b"data: [DONE]\n\n"
