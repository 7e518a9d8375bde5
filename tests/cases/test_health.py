"""Who is well: an engine that is busy is, one that only lists its models is not, and a gateway at work is."""

from __future__ import annotations

import asyncio
from time import thread_time

import pytest

from maitred.config.tree import Health, Queue, Upstream
from maitred.core.words import EndpointState
from tests.cases.place import on_sockets, unhurried
from tests.cases.place import serving as serving_on_sockets
from tests.cases.upstream import stream as stream_of
from tests.net.http import Client, get, post
from tests.proxy.place import CHAT, STREAM, Place, chat, in_virtual_time, serving, took
from tests.proxy.upstream import (
    DONE,
    FINISH,
    GOOD,
    LAST,
    ROLE,
    SILENCE,
    Menu,
    Plan,
    Step,
    chunk,
    head,
    stream,
    word,
)
from tests.proxy.upstream import STREAM as HEAD

READY, EJECTED = EndpointState.READY, EndpointState.EJECTED


def one(seed: int, **members: object) -> bytes:
    """A request like no other."""
    return post(CHAT, chat(seed=seed, **members))


def ticking(count: int, gap_s: float) -> Plan:
    """A stream with a word each so many seconds."""
    words: list[Step] = [step for n in range(count) for step in (gap_s, chunk(word(f"{n} ")))]
    return [HEAD, chunk(ROLE), *words, chunk(FINISH), chunk(DONE), LAST]


async def well_again(place: Place) -> None:
    """Have every engine answer questions, and wait until none is under way."""
    for kitchen in place.kitchens:
        kitchen.lives = True
    await place.until(lambda: place.app.pool.open == place.app.pool.idle)


class TestAnEngineThatIsBusy:
    """B69: rllm-org/rllm#926, sgl-project/sglang#9198, vllm-project/vllm#24910.

    A probe of five seconds failed while an engine compiled or read a long prompt, and the only one there was
    left the rotation.
    """

    @pytest.mark.parametrize("kitchens", [1, 2])
    @in_virtual_time(400)
    async def test_questions_that_hang_are_no_illness_while_work_is_done(self, kitchens: int) -> None:
        async with serving(ticking(150, 1.0), GOOD, kitchens=kitchens) as place:
            busy = await place.client()
            busy.send(STREAM)
            await place.menu.called()
            for kitchen in place.kitchens:
                kitchen.lives = False
            for number in range(120):
                assert (await place.ask(one(number))).status == 200
                assert place.states == [READY] * kitchens
                await asyncio.sleep(1)
            assert (await busy.answer()).body.endswith(DONE)
            assert {line["attempts"] for line in place.lines} == {1}
            await well_again(place)

    @in_virtual_time(400)
    async def test_the_only_one_may_read_a_prompt_for_as_long_as_it_takes(self) -> None:
        long: Plan = [108.0, *stream(ROLE, word("at last"), FINISH, DONE)]
        async with serving(long, GOOD) as place:
            patient = await place.client()
            patient.send(STREAM)
            await place.menu.called()
            place.kitchens[0].lives = False
            for number in range(100):
                assert (await place.ask(one(number))).status == 200
                await asyncio.sleep(1)
            assert b"at last" in (await patient.answer()).body
            assert place.states == [READY]
            await well_again(place)

    @in_virtual_time(400)
    async def test_when_all_seem_ill_some_are_used_all_the_same(self) -> None:
        """Two that owe an answer and are silent: one is left out, the last never."""
        long: Plan = [150.0, *stream(ROLE, word("at last"), FINISH, DONE)]
        async with serving(long, long, GOOD, kitchens=2) as place:
            clients = [await place.client(), await place.client()]
            for client in clients:
                client.send(STREAM)
            await place.menu.called(2)
            for kitchen in place.kitchens:
                kitchen.lives = False
            for number in range(140):
                assert (await place.ask(one(number))).status == 200
                assert READY in place.states
                await asyncio.sleep(1)
            for client in clients:
                assert b"at last" in (await client.answer()).body
            await well_again(place)


class TestAnEngineThatHangs:
    """B70: vllm-project/vllm#39863, vllm-project/vllm#36451, azrtydxb/Fastllm-proxy#19.

    It listed its models for 85 minutes and answered nobody, and each request waited its whole time for it.
    """

    @pytest.mark.parametrize("stalls", [SILENCE, [head(200, "content-length: 100")]])
    @in_virtual_time(1000)
    async def test_it_is_left_out_after_some_and_comes_back_by_a_token(self, stalls: Plan) -> None:
        health = Health(failures_max=3, probe_timeout_s=5.0, slow_start_s=0.0)
        waits = Upstream(first_byte_s=10.0, idle_s=10.0)
        async with serving(GOOD, kitchens=2, health=health, upstream=waits) as place:
            hung, well = place.kitchens
            hung.menu = Menu([*stalls, 1e6])  # its models it still lists, at once
            answers = []
            for number in range(60):
                client = await place.client()
                client.send(one(number))
                answers.append(asyncio.create_task(client.answer()))
                await asyncio.sleep(1)
            await asyncio.wait(answers)
            assert sorted(place.states) == [READY, EJECTED]
            failed = [line for line in place.lines if line["outcome"] != "completed"]
            assert 3 <= len(failed) <= 15  # those that were there before it was known
            lost = len(hung.menu.asked)
            for number in range(60, 120):
                assert await took(place.ask(one(number))) == 0
                await asyncio.sleep(1)
            chats = [asked for asked in hung.menu.asked[lost:] if b"seed" in asked.body]
            assert chats == []  # nothing but questions for a token
            hung.menu = well.menu
            await place.until(lambda: place.states == [READY, READY])
            before = place.app.house.gateway.table.by_name
            seated = [endpoint.seated for endpoint in before.values()]
            for number in range(120, 124):
                await place.ask(one(number))
            assert [e.seated - was for e, was in zip(before.values(), seated, strict=True)] == [2, 2]


async def livez(client: Client) -> int:
    """Ask whether it lives; how many turns of the loop passed before the answer was there."""
    turns = 0
    client.send(get("/livez"))
    answer = asyncio.create_task(client.answer("GET"))
    while not answer.done():
        await asyncio.sleep(0)
        turns += 1
        assert turns < 10_000, "it waits for more than its turn"  # in virtual time that would be for ever
    assert (answer.result().status, answer.result().body) == (200, b"ok\n")
    return turns


class TestTheGatewayAtWork:
    """B99: vllm-project/production-stack#448.

    The router answered its own health check too late under load, and was killed with all its streams. Whether
    it lives is answered where the question is read: nothing is waited for, no queue, no engine, no database.
    """

    @in_virtual_time()
    async def test_as_soon_among_hundreds_of_streams_as_alone(self) -> None:
        async with serving(ticking(40, 0.05), model={"cap": 200, "queue": Queue(requests_max=100)}) as place:
            probe = await place.client()
            alone = await livez(probe)
            clients = [await place.client() for _ in range(400)]
            for number, client in enumerate(clients):
                client.send(one(number, stream=True))
            for _ in range(60):  # while 200 stream, 100 wait and as many are refused
                assert await took(livez(probe)) == 0
                await asyncio.sleep(0.05)
            assert place.running == [200] or place.outcomes
            assert await livez(probe) == alone <= 6
            for client in clients:
                client.leave()

    @in_virtual_time()
    async def test_whatever_else_is_wrong(self) -> None:
        async with serving(SILENCE, model={"cap": 1, "queue": Queue(requests_max=1)}) as place:
            clients = [await place.client() for _ in range(3)]
            for number, client in enumerate(clients):
                client.send(one(number))
            probe = await place.client()
            assert await livez(probe) <= 6  # everything is full, and the engine says nothing
            place.memory.refuse(*place.kitchens[0].address)
            for client in clients:
                client.leave()
            await place.drop_idle()
            await place.ask()
            assert (await place.ask(get("/readyz"))).status == 503
            assert await livez(probe) <= 6

    @on_sockets
    async def test_among_streams_on_sockets_it_is_never_far_from_its_turn(self) -> None:
        """In CPU time of everybody in this process: a platform gives it a second."""
        go = asyncio.Event()
        plan = [*stream_of(ROLE, end=()), go, *[chunk(word(f"{n} ")) for n in range(60)], chunk(DONE), LAST]
        async with serving_on_sockets(plan, model={"cap": 500}) as place:
            clients = [await place.client() for _ in range(150)]
            for client in clients:
                client.send(STREAM)
            await place.script.called(len(clients))
            probe, waits = await place.client(), []
            answers = [asyncio.create_task(client.answer()) for client in clients]
            async with unhurried(0.1):
                go.set()
                while not all(answer.done() for answer in answers):
                    began = thread_time()
                    await livez(probe)
                    waits.append(thread_time() - began)
            assert len(waits) > 10
            assert max(waits) < 0.2
            assert {line["outcome"] for line in place.lines} == {"completed"}
