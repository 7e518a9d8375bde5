"""Backpressure: a client that does not read makes the engine wait, and nothing piles up in between."""

from __future__ import annotations

import asyncio

import pytest

from maitred.net.memory import HIGH_WATER_BYTES
from tests.net.http import Client, turns
from tests.proxy.place import STREAM, WHOLE, Place, in_virtual_time, serving, took
from tests.proxy.upstream import DONE, EVENTS, LAST, ROLE, End, Plan, chunk, head, stream, word

WORD = word("x" * 1000)
COUNT = 2000
LONG: Plan = stream(ROLE, *([WORD] * COUNT), DONE)
PIECE = b"y" * 10_000


async def stalled(place: Place, request: bytes) -> Client:
    """A client that has asked and does not read; the engine has been brought to a stop."""
    client = await place.client()
    client.transport.pause_reading()
    client.send(request)
    await place.menu.called()
    await turns(3 * COUNT)
    assert place.kitchens[0].serving[0].paused
    return client


def held(place: Place) -> int:
    """Bytes that the gateway keeps for its clients."""
    transports = [connection.transport for connection in place.app.front.connections.values()]
    return sum(transport.get_write_buffer_size() for transport in transports)


@in_virtual_time()
async def test_a_stream_waits_for_its_client() -> None:
    async with serving(LONG) as place:
        client = await stalled(place, STREAM)
        most = held(place)
        assert HIGH_WATER_BYTES < most < 3 * HIGH_WATER_BYTES
        await asyncio.sleep(50)
        assert held(place) == most
        assert place.outcomes == []
        client.transport.resume_reading()
        answer = await client.answer()
        assert answer.body == b"".join((ROLE, *([WORD] * COUNT), DONE))
        assert place.outcomes == ["completed"]
        assert not place.kitchens[0].serving[0].paused


@pytest.mark.parametrize("framing", ["transfer-encoding: chunked", f"content-length: {COUNT * len(PIECE)}"])
@in_virtual_time()
async def test_a_large_answer_waits_for_its_client(framing: str) -> None:
    piece = chunk(PIECE) if "chunked" in framing else PIECE
    end = [LAST] if "chunked" in framing else []
    async with serving([head(200, framing), *([piece] * COUNT), *end]) as place:
        client = await stalled(place, WHOLE)
        assert held(place) < 4 * HIGH_WATER_BYTES
        client.transport.resume_reading()
        assert (await client.answer()).body == PIECE * COUNT
        assert place.outcomes == ["completed"]


@in_virtual_time()
async def test_a_slow_client_slows_its_engine_and_nobody_else() -> None:
    async with serving(LONG, stream()) as place:
        await stalled(place, STREAM)
        assert await took(place.ask(STREAM)) == 0


@in_virtual_time(400)
async def test_a_client_that_takes_nothing_is_dropped_and_its_engine_let_go() -> None:
    async with serving(LONG) as place:
        await stalled(place, STREAM)
        assert 59.7 <= await took(place.menu.asked[0].lost.wait()) <= 60.3
        await turns()
        assert place.outcomes == ["client_gone"]
        assert place.running == [0]


@in_virtual_time(1000)
async def test_an_engine_that_was_made_to_wait_is_not_called_silent() -> None:
    """The idle limit begins again when the client has caught up."""
    async with serving([*stream(ROLE, *([WORD] * 200), end=()), 250.0, *stream(*EVENTS)[1:]]) as place:
        client = await stalled_early(place)
        await asyncio.sleep(55)
        client.transport.resume_reading()
        answer = await client.answer()
        assert answer.body.endswith(DONE)
        assert place.outcomes == ["completed"]


async def stalled_early(place: Place) -> Client:
    client = await place.client()
    client.transport.pause_reading()
    client.send(STREAM)
    await turns(1000)
    return client


@in_virtual_time()
async def test_an_engine_that_fails_while_its_client_is_slow() -> None:
    async with serving([*stream(ROLE, *([WORD] * 200), end=()), End.CLOSE]) as place:
        client = await stalled_early(place)
        client.transport.resume_reading()
        answer = await client.answer()
        assert answer.body.startswith(ROLE + WORD * 200)
        assert b"stream_truncated" in answer.body
        assert place.outcomes == ["failed_truncated"]


@in_virtual_time()
async def test_leaving_while_the_engine_waits() -> None:
    async with serving(LONG) as place:
        client = await stalled(place, STREAM)
        client.leave()
        await turns()
        assert place.menu.asked[0].lost.is_set()
        assert place.outcomes == ["client_gone"]
