"""Waiting for a seat, as clients see it: in order, for a time, in bounded numbers."""

from __future__ import annotations

import asyncio

import pytest

from maitred.config.tree import Queue
from tests.net.http import Client, post, turns
from tests.proxy.place import CHAT, WHOLE, Place, chat, in_virtual_time, serving, took
from tests.proxy.upstream import GOOD, JSON, SILENCE, End, Plan, whole

SLOW: Plan = [10.0, whole(JSON)]


async def asking(place: Place, count: int) -> list[Client]:
    """So many clients that ask, one after the other."""
    clients = []
    for number in range(count):
        clients.append(await place.client())
        clients[-1].send(post(CHAT, chat(seed=number)))
        await turns()
    return clients


@in_virtual_time()
async def test_who_finds_no_seat_waits_and_is_served_in_order() -> None:
    async with serving(SLOW, model={"cap": 1}) as place:
        first, second, third = await asking(place, 3)
        assert (place.running, place.waiting) == ([1], 2)
        assert await took(first.answer()) == 10
        assert await took(second.answer()) == pytest.approx(10)
        assert await took(third.answer()) == pytest.approx(10)
        assert [asked.body for asked in place.menu.asked] == [chat(seed=n) for n in range(3)]
        assert place.outcomes == ["completed"] * 3
        assert [line["queue_s"] for line in place.lines] == pytest.approx([0, 10, 20])


@in_virtual_time()
async def test_the_cap_holds_for_each_endpoint() -> None:
    async with serving(SLOW, kitchens=2, model={"cap": 2}) as place:
        clients = await asking(place, 6)
        assert (place.running, place.waiting) == ([2, 2], 2)
        assert await took(asyncio.gather(*(c.answer() for c in clients))) == 20


@in_virtual_time()
async def test_more_than_may_wait_are_refused_at_once() -> None:
    async with serving(SLOW, model={"cap": 1, "queue": Queue(requests_max=2)}) as place:
        clients = await asking(place, 4)
        answer = await clients[3].answer()
        assert (answer.status, answer.outcome) == (429, "queue_full")
        assert answer.json["error"]["code"] == answer.json["error"]["type"] == "server_overloaded"
        assert 1 <= int(answer.value(b"retry-after")) <= 60
        assert answer.value(b"x-should-retry") == b"true"
        assert place.outcomes == ["queue_full"]
        for client in clients[:3]:
            assert (await client.answer()).status == 200


@in_virtual_time()
async def test_the_bodies_that_may_wait_are_bounded_in_bytes() -> None:
    async with serving(SLOW, model={"cap": 1, "queue": Queue(bytes_max=100_000)}) as place:
        await asking(place, 2)
        large = await place.ask(post(CHAT, chat(padding="x" * 100_000)))
        assert (large.status, large.outcome) == (429, "queue_full")
        assert place.waiting == 1


@in_virtual_time()
async def test_nobody_waits_longer_than_the_deadline() -> None:
    async with serving(SILENCE, model={"cap": 1}) as place:
        await asking(place, 1)
        late = await place.client()
        late.send(WHOLE)
        start = asyncio.get_running_loop().time()
        answer = await late.answer()
        assert asyncio.get_running_loop().time() - start == pytest.approx(30)
        assert (answer.status, answer.outcome) == (429, "queue_deadline")
        assert 1 <= int(answer.value(b"retry-after")) <= 60
        assert "attempts" not in place.lines[0]
        late.send(WHOLE)  # the connection is kept
        assert (await late.answer()).outcome == "queue_deadline"


@in_virtual_time()
async def test_a_failed_seat_goes_back_to_the_head_of_the_queue() -> None:
    broken: list[Plan] = [[1.0, End.RESET], [End.RESET]]  # the pooled connection, then the fresh one
    plans: list[Plan] = [[5.0, *GOOD], [10.0, *GOOD], *broken, [10.0, *GOOD], GOOD]
    async with serving(*plans, kitchens=2, model={"cap": 1}) as place:
        first, second, failing, long, last = await asking(place, 5)
        await first.answer()  # after 5 s: `failing` takes its place, and fails after one more
        assert place.waiting == 2
        assert await took(asyncio.gather(second.answer(), failing.answer(), last.answer())) == pytest.approx(
            5
        )
        assert [asked.body for asked in place.menu.asked] == [chat(seed=n) for n in (0, 1, 2, 2, 3, 2, 4)]
        await long.answer()  # which took the place that `failing` may not have again
        assert place.outcomes == ["completed"] * 5


@in_virtual_time()
async def test_room_comes_when_an_endpoint_comes_back() -> None:
    async with serving(SILENCE, GOOD, kitchens=2, model={"cap": 1}) as place:
        back = place.kitchens[1]
        place.memory.refuse(*back.address)
        await place.drop_idle()
        await asking(place, 2)  # one is at the first endpoint, the other has failed at the second
        (third,) = await asking(place, 1)
        assert (place.running, place.waiting) == ([1, 0], 2)
        place.memory.heal(*back.address)
        assert await took(third.answer()) <= 1.1
