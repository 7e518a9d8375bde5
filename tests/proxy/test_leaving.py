"""The client leaves, in every phase: the engine is let go at once, and it is told once."""

from __future__ import annotations

import asyncio

import pytest

from maitred.config.tree import Queue
from maitred.observe.exposition import render
from tests.net.http import Client, post, turns
from tests.proxy.place import CHAT, STREAM, WHOLE, Place, chat, in_virtual_time, serving, took
from tests.proxy.upstream import ERROR, EVENTS, ROLE, SILENCE, Asked, End, Plan, chunk, head, stream, word
from tests.proxy.upstream import STREAM as STREAM_HEAD

MID_STREAM: Plan = [*stream(ROLE, word("Hello"), end=()), 1e6]


async def gone(place: Place, client: Client, asked: Asked | None, requests: int = 1) -> None:
    """Leave, and see within no time that everything of the request is gone."""
    client.leave()
    await turns()
    if asked is not None:
        assert asked.lost.is_set()
    assert place.outcomes == ["client_gone"] * requests
    assert not place.app.journeys
    assert not place.app.house.running
    assert place.running == [0] * len(place.running)
    assert place.waiting == 0
    assert place.app.pool.open == place.app.pool.idle
    assert not place.app.front.connections
    line = place.lines[0]
    assert line["client"] == f"127.0.0.1:{client.transport.get_extra_info('sockname')[1]}"
    await asyncio.sleep(2.0)
    assert place.outcomes == ["client_gone"] * requests
    assert (line["method"], line["path"]) == ("POST", CHAT)


@pytest.mark.parametrize(
    ("plan", "request_", "status"),
    [
        (SILENCE, WHOLE, 499),
        (SILENCE, STREAM, 499),
        ([b"HTTP/1.1 200 O", 1e6], STREAM, 499),
        ([head(100), 1e6], STREAM, 499),
        ([STREAM_HEAD, 1e6], STREAM, 499),
        ([STREAM_HEAD, chunk(ROLE), 1e6], STREAM, 499),
        (MID_STREAM, STREAM, 200),
        ([head(200, "content-length: 100"), b'{"choices":[', 1e6], WHOLE, 499),
        ([head(200, "content-length: 200000"), b'{"choices":["', b"x" * 100_000, 1e6], WHOLE, 200),
        ([head(200), b"{", 1e6], WHOLE, 499),
    ],
    ids=[
        "before the head",
        "before the head of a stream",
        "within the head",
        "after an interim head",
        "after the head",
        "between head and content",
        "within a silent stream",
        "within a whole answer",
        "within a large answer",
        "within an answer until close",
    ],
)
@in_virtual_time()
async def test_leaving_lets_the_engine_go(plan: Plan, request_: bytes, status: int) -> None:
    async with serving(plan) as place:
        client = await place.client()
        client.send(request_)
        asked = await place.menu.called()
        await asyncio.sleep(0.1)
        assert place.running == [1]
        await gone(place, client, asked)
        assert place.lines[0]["status"] == status
        assert place.lines[0]["attempts"] == 1


@in_virtual_time()
async def test_half_closing_is_leaving() -> None:
    async with serving(MID_STREAM) as place:
        client = await place.client()
        client.send(STREAM)
        await client.heard(b"Hello")
        client.transport.write_eof()
        await client.closed()
        await gone(place, client, await place.menu.called())


@in_virtual_time()
async def test_leaving_while_it_connects() -> None:
    async with serving() as place:
        await place.drop_idle()
        place.memory.hang(*place.kitchens[0].address)
        client = await place.client()
        client.send(WHOLE)
        await turns()
        assert place.running == [1]
        await gone(place, client, None)
        assert place.menu.asked == []


@in_virtual_time()
async def test_leaving_while_the_second_seat_is_tried() -> None:
    async with serving([End.RESET], SILENCE, kitchens=2) as place:
        await place.drop_idle()
        client = await place.client()
        client.send(STREAM)
        await gone(place, client, await place.menu.called(2))
        assert place.lines[0]["attempts"] == 2


@in_virtual_time()
async def test_leaving_while_the_body_is_read() -> None:
    async with serving() as place:
        client = await place.client()
        client.send(WHOLE[:-10])
        await turns()
        await gone(place, client, None)
        assert place.menu.asked == []


@in_virtual_time()
async def test_leaving_with_the_very_bytes_of_the_request() -> None:
    async with serving(SILENCE) as place:
        client = await place.client()
        client.send(STREAM)
        await gone(place, client, None)


@in_virtual_time()
async def test_leaving_the_queue() -> None:
    async with serving(MID_STREAM, model={"cap": 1}) as place:
        seated = await place.client()
        seated.send(STREAM)
        await seated.heard(b"Hello")
        waiting = await place.client()
        waiting.send(STREAM)
        await turns()
        assert place.waiting == 1
        waiting.leave()
        await turns()
        assert place.waiting == 0
        assert place.outcomes == ["client_gone"]
        assert "attempts" not in place.lines[0]
        assert place.running == [1]
        assert len(place.menu.asked) == 1
        assert not place.menu.asked[0].lost.is_set()


@in_virtual_time()
async def test_who_leaves_makes_room_for_the_next() -> None:
    async with serving(SILENCE, stream(), model={"cap": 1}) as place:
        first, second = await place.client(), await place.client()
        first.send(STREAM)
        await place.menu.called()
        second.send(STREAM)
        await turns()
        first.leave()
        assert await took(second.answer()) == 0
        assert place.outcomes == ["client_gone", "completed"]


@in_virtual_time()
async def test_leaving_ends_what_was_pipelined_too() -> None:
    async with serving(SILENCE) as place:
        client = await place.client()
        client.send(WHOLE + WHOLE + WHOLE)
        await gone(place, client, await place.menu.called(), requests=3)
        assert len(place.menu.asked) == 1


@in_virtual_time()
async def test_leaving_after_the_end_changes_nothing() -> None:
    async with serving(stream()) as place:
        client = await place.client()
        client.send(STREAM)
        await client.answer()
        client.leave()
        await turns()
        assert place.outcomes == ["completed"]
        assert not place.menu.asked[0].lost.is_set()
        assert place.app.pool.idle == 1


@pytest.mark.parametrize("moment", range(0, 40, 2))
@in_virtual_time()
async def test_leaving_at_any_turn_of_the_loop_is_told_once(moment: int) -> None:
    """Wherever between arrival and answer the client leaves, exactly one end is told."""
    async with serving([End.RESET], stream(*EVENTS), kitchens=2, model={"queue": Queue(wait_s=1.0)}) as place:
        client = await place.client()
        client.send(STREAM)
        await turns(moment)
        client.leave()
        await turns(60)
        assert place.outcomes in (["client_gone"], ["completed"])
        assert not place.app.journeys
        assert place.app.pool.open == place.app.pool.idle


@in_virtual_time()
async def test_a_request_on_a_kept_connection_can_be_left_as_well() -> None:
    async with serving(stream(), SILENCE) as place:
        client = await place.client()
        client.send(STREAM)
        await client.answer()
        client.send(post(CHAT, chat()))
        asked = await place.menu.called(2)
        client.leave()
        await turns()
        assert asked.lost.is_set()
        assert place.outcomes == ["completed", "client_gone"]


@in_virtual_time()
async def test_a_client_that_leaves_because_of_an_error_does_not_hide_it() -> None:
    plan: Plan = [*stream(ROLE, word("Hello"), end=()), chunk(ERROR), 1e6]
    async with serving(plan) as place:
        client = await place.client()
        client.send(STREAM)
        await client.heard(b"on fire")
        client.leave()
        await place.until(lambda: not place.app.journeys)
        assert place.outcomes == ["client_gone"]
        assert b'kind="error_event"} 1.0' in b"".join(render(place.app.metrics))
        (endpoint,) = place.app.house.gateway.table.by_name.values()
        assert endpoint.failures == 1
