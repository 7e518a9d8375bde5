"""The end of a gateway: what runs may finish, what is new is refused, and nothing is left."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

import pytest

from maitred.config.tree import Drain
from maitred.net.exchange import HttpExchange
from tests.net.http import Broken, get, turns
from tests.proxy.faults import spoken
from tests.proxy.place import STREAM, WHOLE, Place, in_virtual_time, serving, took
from tests.proxy.upstream import DONE, EVENTS, JSON, ROLE, SEEN, SILENCE, Plan, stream, whole, word

FIVE_SECONDS: Plan = [*stream(*EVENTS[:2], end=()), 5.0, *stream(*EVENTS[2:])[1:]]
FOR_EVER: Plan = [*stream(ROLE, word("Hello"), ROLE[:50], end=()), 1e6]


def draining(place: Place) -> asyncio.Task[int]:
    """Begin to drain."""
    return asyncio.create_task(place.app.drain())


@in_virtual_time()
async def test_what_runs_may_come_to_its_end() -> None:
    async with serving(FIVE_SECONDS) as place:
        client = await place.client()
        client.send(STREAM)
        await client.heard(b"Hello")
        drain = draining(place)
        assert (await client.answer()).body == SEEN
        assert await drain == 0
        assert place.outcomes == ["completed"]


@in_virtual_time()
async def test_draining_an_idle_gateway_takes_no_time() -> None:
    async with serving() as place:
        await place.ask()
        assert await took(place.app.drain()) == 0


@in_virtual_time()
async def test_idle_connections_are_closed_and_new_ones_told() -> None:
    async with serving(FIVE_SECONDS) as place:
        idle, busy = await place.client(), await place.client()
        idle.send(get("/livez"))
        await idle.answer()
        busy.send(STREAM)
        await busy.heard(b"Hello")
        drain = draining(place)
        assert await took(idle.closed()) == 0
        answer = await place.ask(get("/readyz"))
        assert (answer.status, answer.value(b"connection")) == (503, b"close")
        assert (await place.ask(get("/livez"))).status == 200
        answer = await place.ask()
        assert (answer.status, answer.outcome) == (503, "draining")
        assert answer.value(b"connection") == b"close"
        assert answer.value(b"x-should-retry") == b"true"
        assert int(answer.value(b"retry-after")) >= 1
        await busy.answer()
        assert await took(busy.closed()) == 0  # though its head, long gone, did not say so
        await drain
        assert place.outcomes == ["draining", "completed"]


@in_virtual_time()
async def test_during_the_notice_requests_are_served_as_usual() -> None:
    async with serving(drain=Drain(notice_s=5.0)) as place:
        drain = draining(place)
        await turns()
        assert (await place.ask(get("/readyz"))).status == 503
        answer = await place.ask()
        assert (answer.body, answer.value(b"connection")) == (JSON, b"close")
        assert await took(drain) == 5.0
        assert (await place.ask()).outcome == "draining"


@pytest.mark.parametrize("notice_s", [0.0, 5.0])
@in_virtual_time()
async def test_a_request_that_is_just_arriving_gets_an_answer(notice_s: float) -> None:
    async with serving(drain=Drain(notice_s=notice_s)) as place:
        client = await place.client()
        client.send(WHOLE[:-5])
        await turns()
        drain = draining(place)
        await turns()
        client.send(WHOLE[-5:])
        answer = await client.answer()
        assert answer.status == (200 if notice_s else 503)
        assert answer.value(b"connection") == b"close"
        await drain


@in_virtual_time()
async def test_what_does_not_end_in_time_is_cut_and_told_so() -> None:
    async with serving(FOR_EVER, SILENCE, model={"cap": 2}, drain=Drain(limit_s=20.0)) as place:
        spoke, silent, waiting = [await place.client() for _ in range(3)]
        spoke.send(STREAM)
        await spoke.heard(b"Hello")
        silent.send(WHOLE)
        await place.menu.called(2)
        waiting.send(WHOLE)
        await turns()
        assert (place.running, place.waiting) == ([2], 1)
        drain = draining(place)
        assert 20.0 <= await took(drain) <= 20.2
        assert drain.result() == 3
        answer = await spoke.answer()
        assert answer.body.startswith(ROLE + word("Hello"))
        assert spoken(answer)[-1]["error"]["code"] == "draining"
        assert DONE not in answer.body
        for client in (silent, waiting):
            answer = await client.answer()
            assert (answer.status, answer.outcome) == (503, "draining")
            assert answer.value(b"connection") == b"close"
        assert place.outcomes == ["draining"] * 3
        assert all(asked.lost.is_set() for asked in place.menu.asked)


@in_virtual_time()
async def test_a_whole_answer_that_has_begun_is_broken_off_at_the_limit() -> None:
    large = whole(b'{"x":"' + b"y" * 200_000 + b'"}')
    async with serving([large[:150_000], 1e6], drain=Drain(limit_s=1.0)) as place:
        client = await place.client()
        client.send(WHOLE)
        await client.heard(b"yyy")
        drain = draining(place)
        with pytest.raises(Broken):
            await client.answer()
        await drain
        assert place.outcomes == ["draining"]


@in_virtual_time()
async def test_who_is_connecting_at_the_limit_is_told_too() -> None:
    async with serving(drain=Drain(limit_s=0.5)) as place:
        await place.drop_idle()
        place.memory.hang(*place.kitchens[0].address)
        client = await place.client()
        client.send(WHOLE)
        await turns()
        drain = draining(place)
        answer = await client.answer()
        assert (answer.status, answer.outcome) == (503, "draining")
        await drain
        assert place.outcomes == ["draining"]


@in_virtual_time()
async def test_stopping_breaks_everything_off() -> None:
    """What is left is looked at where the place closes."""
    async with serving(FOR_EVER, SILENCE, model={"cap": 2}) as place:
        clients = [await place.client() for _ in range(4)]
        for client, request in zip(clients, (STREAM, WHOLE, STREAM, WHOLE[:-1]), strict=True):
            client.send(request)
            await turns()
        await place.app.stop()
        await turns()
        assert all(client.over for client in clients)
        assert all(asked.lost.is_set() for asked in place.menu.asked)
        assert sorted(place.outcomes) == ["client_gone"] + ["draining"] * 3
        assert place.memory.open_transports == 0


@in_virtual_time()
async def test_whose_request_has_not_begun_at_the_stop_has_his_line_too() -> None:
    async with serving() as place:
        serve, stops = place.app.front.serve, list[asyncio.Task[None]]()

        def stop_and_serve(exchange: HttpExchange) -> None:
            stops.append(asyncio.create_task(place.app.stop()))
            serve(exchange)

        client = await place.client()
        with patch.object(place.app.front, "serve", stop_and_serve):
            client.send(WHOLE)
            await turns()
        (stop,) = stops
        await stop
        await turns()
        assert place.outcomes == ["client_gone"]


@in_virtual_time()
async def test_after_the_stop_nobody_is_let_in() -> None:
    async with serving() as place:
        await place.app.stop()
        with pytest.raises(ConnectionRefusedError):
            await place.client()
