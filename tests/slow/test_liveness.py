"""B99 at its full size: vllm-project/production-stack#448. See tests/cases/test_health.py.

A platform gives a gateway a second to say that it lives. With 2,000 streams of 20 events a second and 500 new
requests a second the answer must wait for nothing but its turn, and no turn may be long.
"""

from __future__ import annotations

import asyncio
from time import thread_time

import pytest

from maitred.config.tree import Queue
from tests.cases.test_health import livez, one, ticking
from tests.proxy.place import Place, in_virtual_time, serving, took
from tests.proxy.upstream import GOOD

STREAMS, EVENTS_PER_S, NEW_PER_S, SPAN_S = 2000, 20, 500, 60
TURNS_MAX = 6
TURN_CPU_S = 0.5
"""Of everybody in this process: the gateway, 2,000 clients and their engine."""


async def arrivals(place: Place) -> None:
    """New requests, evenly, each on a connection of its own."""
    for number in range(NEW_PER_S * SPAN_S):
        answering = asyncio.create_task(place.ask(one(STREAMS + number)))
        await asyncio.sleep(1 / NEW_PER_S)
        assert (await answering).status == 200
        place.clients.pop()


@pytest.mark.slow
@in_virtual_time(10 * SPAN_S)
async def test_among_two_thousand_streams_and_five_hundred_requests_a_second() -> None:
    words = ticking(EVENTS_PER_S * (SPAN_S + 5), 1 / EVENTS_PER_S)
    model = {"cap": 2 * STREAMS, "queue": Queue(requests_max=100)}
    async with serving(words, model=model) as place:
        streams = [await place.client() for _ in range(STREAMS)]
        for number, client in enumerate(streams):
            client.send(one(number, stream=True))
            await asyncio.sleep(1 / STREAMS)
        await place.menu.called(STREAMS)
        place.menu.set(GOOD)
        coming = asyncio.create_task(arrivals(place))
        probe = await place.client()
        for _ in range(SPAN_S):
            began = thread_time()
            assert await took(livez(probe)) == 0
            assert thread_time() - began < TURN_CPU_S
            assert await livez(probe) <= TURNS_MAX
            assert place.running[0] >= STREAMS
            await asyncio.sleep(1)
        await coming
        for client in streams:
            client.leave()
