"""Places, queues and quotas: counted from the first byte to the last, bounded, and given back at once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import pytest

from maitred.config.flow import ModelLimits, Rates, Tenant
from maitred.config.tree import Queue
from maitred.door.house import House
from maitred.observe.exposition import render
from tests.net.http import Client, post, turns
from tests.proxy.place import CHAT, STREAM, WHOLE, Place, chat, in_virtual_time, serving, took
from tests.proxy.upstream import (
    DONE,
    EVENTS,
    FINISH,
    GOOD,
    GOOD_STREAM,
    JSON,
    SILENCE,
    USAGE,
    End,
    Plan,
    stream,
    word,
)

ROLE, HELLO = EVENTS[0], EVENTS[1]
FIVE_S: Plan = [*stream(ROLE, HELLO, end=()), 5.0, *stream(word("!"), FINISH, USAGE, DONE)[1:]]
"""A stream whose head and first word come at once, and its last byte after five seconds."""


async def asking(place: Place, *requests: bytes) -> list[Client]:
    """Clients that ask, one after the other."""
    clients = []
    for request in requests:
        clients.append(await place.client())
        clients[-1].send(request)
        await turns()
    return clients


def unlike(count: int, **members: Any) -> list[bytes]:
    """So many requests of which no two are alike."""
    return [post(CHAT, chat(seed=number, **members)) for number in range(count)]


@pytest.fixture
def unread() -> Iterator[int]:
    """Where a log line would wait for ever: a full pipe that nobody reads."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, bytes(4096))
    except BlockingIOError:
        os.set_blocking(writing, True)
    yield writing
    os.close(reading)
    os.close(writing)


class TestTheLease:
    """B22: smg-project/smg#2240, BerriAI/litellm#40846.

    A place given back when the head of a stream had come bounds nothing; one kept until a slow log has been
    written refuses the next request for nothing. It is held from the request to its answer's last byte.
    """

    @in_virtual_time()
    async def test_a_stream_has_its_place_until_its_last_byte_and_no_longer(self) -> None:
        async with serving(FIVE_S, GOOD, model={"cap": 1}) as place:
            (first,) = await asking(place, STREAM)
            await first.heard(b"Hello")
            await asyncio.sleep(1)
            (second,) = await asking(place, WHOLE)
            assert (place.running, place.waiting, len(place.menu.asked)) == ([1], 1, 1)
            assert await took(second.answer()) == 4
            assert (await first.answer()).body.endswith(DONE)

    @in_virtual_time()
    async def test_whoever_may_run_one_is_refused_until_then_and_served_at_once_after(self) -> None:
        tenants = {"anonymous": Tenant(limits=Rates(concurrent=1))}
        async with serving(FIVE_S, GOOD, tenants=tenants) as place:
            (first,) = await asking(place, STREAM)
            await first.heard(b"Hello")
            for _ in range(4):
                await asyncio.sleep(1)
                assert (await place.ask()).outcome == "concurrency_limited"
            await first.answer()
            assert (await place.ask()).body == JSON

    @in_virtual_time()
    async def test_a_log_that_nobody_reads_keeps_no_place(self, unread: int) -> None:
        tenants = {"anonymous": Tenant(limits=Rates(concurrent=1))}
        async with serving(GOOD_STREAM, tenants=tenants, model={"cap": 1}) as place:
            log = place._log_fd
            kept = os.dup(log)
            os.dup2(unread, log)
            for _ in range(3):
                assert (await place.ask(STREAM)).body.endswith(DONE)
                await asyncio.sleep(1)  # the log is written now and then
                assert place.running == [0]
            os.dup2(kept, log)
            os.close(kept)


class TestWhoIsRefusedPaysNothing:
    """B23: BerriAI/litellm#39309.

    Requests were counted before the check of how many may run at once, so refusals ate the quota.
    """

    @pytest.mark.parametrize(
        ("rates", "model", "request_", "outcome"),
        [
            ({"concurrent": 2}, {}, WHOLE, "concurrency_limited"),
            ({}, {"cap": 1, "queue": Queue(requests_max=1)}, WHOLE, "queue_full"),
            ({}, {"limits": ModelLimits(concurrent=2)}, WHOLE, "concurrency_limited"),
            ({"tokens_per_min": 2000}, {}, post(CHAT, chat(padding="x" * 9000)), "rate_limited"),
        ],
    )
    @in_virtual_time()
    async def test_of_three_requests_a_minute_two_run_and_one_is_left(
        self, rates: dict[str, int], model: dict[str, Any], request_: bytes, outcome: str
    ) -> None:
        tenants = {"anonymous": Tenant(limits=Rates(requests_per_min=3, **rates))}
        async with serving([5.0, *GOOD], model=model, tenants=tenants) as place:
            running = await asking(place, WHOLE, WHOLE)
            for _ in range(5):
                refused = await place.ask(request_)
                assert (refused.status, refused.outcome) == (429, outcome)
                assert refused.value(b"x-ratelimit-remaining-requests") == b"1"
            assert [(await client.answer()).status for client in running] == [200, 200]
            assert (await place.ask()).status == 200

    @in_virtual_time()
    async def test_the_quota_itself_still_binds(self) -> None:
        tenants = {"anonymous": Tenant(limits=Rates(requests_per_min=2, concurrent=1))}
        async with serving([5.0, *GOOD], GOOD, tenants=tenants) as place:
            (first,) = await asking(place, WHOLE)
            assert (await place.ask()).outcome == "concurrency_limited"
            await first.answer()
            said = [(await place.ask()).outcome for _ in range(2)]
            assert said == ["", "rate_limited"]


class TestTheBoundOfTheQueue:
    """B24: smg-project/smg#2265, smg-project/smg#1571.

    512 were to wait and 1,288 did; each free place woke everybody, and whoever came last might take it.
    """

    @in_virtual_time(300)
    async def test_two_hundred_at_once_before_one_place_and_ten_chairs(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        woken: list[str] = []
        depths: list[int] = []
        wake, pump = House._wake, House._pump

        def counted(house: House, ticket: Any) -> None:
            woken.append(ticket.request.id)
            wake(house, ticket)

        def sampled(house: House, now: float) -> None:
            pump(house, now)
            depths.append(house.gateway.waiting)

        monkeypatch.setattr(House, "_wake", counted)
        monkeypatch.setattr(House, "_pump", sampled)
        async with serving([2.0, *GOOD], model={"cap": 1, "queue": Queue(requests_max=10)}) as place:
            clients = [await place.client() for _ in range(200)]
            for number, client in enumerate(clients):
                client.send(post(CHAT, chat(seed=number)))
            asked_at = asyncio.get_running_loop().time()
            answers = [asyncio.create_task(client.answer()) for client in clients]
            while len(place.outcomes) < 189:
                await asyncio.sleep(0)
            assert asyncio.get_running_loop().time() == asked_at  # who is refused has not waited
            assert max(depths) == 10
            served = [answer.status for answer in await asyncio.gather(*answers)]
            assert (served.count(200), served.count(429)) == (11, 189)
            assert place.outcomes[:189] == ["queue_full"] * 189
            order = [asked.body for asked in place.menu.asked]
            assert order == [chat(seed=number) for number, status in enumerate(served) if status == 200]
            assert len(woken) == len(set(woken)) == 10  # one for each place that became free

    @in_virtual_time()
    async def test_who_leaves_the_queue_leaves_a_chair_and_is_not_seated(self) -> None:
        async with serving([2.0, *GOOD], model={"cap": 1, "queue": Queue(requests_max=10)}) as place:
            clients = await asking(place, *unlike(11))
            for client in clients[1:6]:
                client.leave()
            await turns()
            assert place.waiting == 5
            late = await asking(place, *unlike(6, user="late"))
            assert (await late[5].answer()).outcome == "queue_full"
            assert place.waiting == 10
            for client in (clients[0], *clients[6:], *late[:5]):
                assert (await client.answer()).status == 200
            bodies = [asked.body for asked in place.menu.asked]
            early = [chat(seed=number) for number in (0, 6, 7, 8, 9, 10)]
            assert bodies == early + [chat(seed=number, user="late") for number in range(5)]

    @in_virtual_time()
    async def test_who_comes_as_a_place_becomes_free_passes_nobody(self) -> None:
        async with serving([5.0, *GOOD], model={"cap": 1}) as place:
            first, second = await asking(place, *unlike(2))
            answer = asyncio.create_task(first.answer())
            barging = await place.client()
            asyncio.get_running_loop().call_later(5.0, barging.send, post(CHAT, chat(user="barging")))
            await answer
            await second.answer()
            await barging.answer()
            assert [asked.body for asked in place.menu.asked][1:] == [chat(seed=1), chat(user="barging")]


class TestTheBytesOfTheQueue:
    """B90: kubernetes-sigs/gateway-api-inference-extension#2103.

    The bytes that waited were never counted, so the bound had no effect.
    """

    @in_virtual_time()
    async def test_fifty_bodies_of_a_tenth_each(self) -> None:
        bodies = [post(CHAT, chat(seed=number, padding="x" * 100_000)) for number in range(50)]
        queue = Queue(bytes_max=1_020_000, requests_max=1000)
        async with serving([20.0, *GOOD], [End.RESET], GOOD, model={"cap": 1, "queue": queue}) as place:
            pool = place.app.house.gateway._pools
            (first,) = await asking(place, WHOLE)
            clients = await asking(place, *bodies)
            assert (place.waiting, place.outcomes) == (10, ["queue_full"] * 40)
            for client in clients[:5]:
                client.leave()
            await turns()
            more = await asking(place, *bodies)
            assert place.waiting == 10
            assert place.outcomes.count("queue_full") == 40 + 45
            for client in (first, *clients[5:10], *more[:5]):
                assert (await client.answer()).status in (200, 502)  # one of them met an engine that died
            assert (pool["m"].queue.waiting, pool["m"].queue.body_bytes) == (0, 0)


class TestARetryInTheQueue:
    """B100: vllm-project/vllm#41951.

    A request that came back went behind those who had come later, or its time to wait began anew.
    """

    @in_virtual_time()
    async def test_it_goes_before_all_who_came_later(self) -> None:
        plans: list[Plan] = [[6.0, *GOOD], [2.0, End.RESET], [60.0, *GOOD], GOOD]
        async with serving(*plans, kitchens=2, model={"cap": 1}) as place:
            clients = await asking(place, *unlike(5))  # 1 fails at 2 s, and 2 takes its place there
            for client in clients:
                client_answer = await client.answer() if client is not clients[2] else None
                assert client_answer is None or client_answer.status == 200
            assert [asked.body for asked in place.menu.asked] == [chat(seed=n) for n in (0, 1, 2, 1, 3, 4)]
            line = next(line for line in place.lines if line["attempts"] == 2)
            assert line["duration_s"] == pytest.approx(6.0)  # since it came first
            assert 'maitred_retries_total{model="m"} 1.0' in b"".join(render(place.app.metrics)).decode()

    @in_virtual_time()
    async def test_its_time_to_wait_is_that_of_its_arrival(self) -> None:
        queue = Queue(wait_s=10.0)
        async with serving(
            SILENCE, [8.0, End.RESET], SILENCE, kitchens=2, model={"cap": 1, "queue": queue}
        ) as place:
            _, failing, _ = await asking(place, *unlike(3))
            assert await took(failing.answer()) == pytest.approx(10.0)
            assert place.outcomes == ["queue_deadline"]
            assert place.lines[0]["attempts"] == 1
