"""Timing and leaving, in virtual time: tokens come when the engine model says, and end with the client."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from maitred.net.memory import MemoryNetwork
from maitred.sim.engine import Engine
from maitred.sim.job import Job, Role
from maitred.twin.twin import Options
from tests.net.http import Client, post, turns
from tests.proxy.place import in_virtual_time, took
from tests.twin.place import CHAT, PROFILE, STEP_S, Place, captured, chat, events, serving, shape

PROMPT_TOKENS = 13
"""Of the captured prompt."""


class Watch(Client):
    """A client that notes when each piece of a stream came."""

    def __init__(self) -> None:
        super().__init__()
        self.at: list[float] = []

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.at += [asyncio.get_running_loop().time()] * data.count(b'"content":"')


async def stamps(place: Place, **members: Any) -> list[float]:
    """When the tokens of a stream come, in seconds after it was asked for."""
    client = await place.network.connect(Watch, *place.address)
    start = asyncio.get_running_loop().time()
    client.send(post(CHAT, chat(stream=True, **members)))
    await client.answer()
    client.leave()
    assert client.at[0] == client.at[1], "the role comes with the first token"
    return [at - start for at in client.at[1:]]


def modelled(output_tokens: int, *arrivals: float, **engine: Any) -> list[list[float]]:
    """When the engine model, without any network, has the tokens of jobs out, after each arrived."""
    model = Engine(PROFILE, progress_tokens=0, lazy=False, **engine)
    jobs = [Job(number, PROMPT_TOKENS, output_tokens) for number in range(len(arrivals))]
    out: list[list[float]] = [[] for _ in jobs]
    coming = list(zip(arrivals, jobs, strict=True))
    while coming or model.next_at is not None:
        at = model.next_at
        if coming and (at is None or coming[0][0] <= at):
            arrived_at, job = coming.pop(0)
            model.submit(job, arrived_at)
            continue
        assert at is not None
        model.advance(at)
        for job, arrived_at, seen in zip(jobs, arrivals, out, strict=True):
            seen.extend([at - arrived_at] * (model.made(job) - len(seen)))
    return out


@in_virtual_time()
async def test_tokens_come_when_the_engine_has_them() -> None:
    async with serving(prefix_caching=False) as place:
        assert (await place.chat(max_tokens=1)).json["usage"]["prompt_tokens"] == PROMPT_TOKENS
        seen = await stamps(place, max_tokens=30)
    assert seen == pytest.approx(modelled(30, 0.0)[0], abs=1e-6)
    gaps = [later - sooner for sooner, later in pairwise(seen)]
    assert gaps == pytest.approx([STEP_S] * 29, abs=1e-6)


@in_virtual_time()
async def test_who_comes_later_is_in_the_same_steps() -> None:
    async with serving(prefix_caching=False) as place:
        first = asyncio.create_task(stamps(place, max_tokens=30))
        await asyncio.sleep(0.105)
        second = await stamps(place, max_tokens=30)
        expected = modelled(30, 0.0, 0.105)
        assert await first == pytest.approx(expected[0], abs=1e-6)
        assert second == pytest.approx(expected[1], abs=1e-6)


@in_virtual_time()
async def test_a_network_only_adds_its_latency() -> None:
    async with serving(network=None) as place:
        assert isinstance(place.network, MemoryNetwork)
        at_once = await stamps(place, max_tokens=3)
        place.network.latency_s = 0.002
        later = await stamps(place, max_tokens=3)
    assert later == pytest.approx([at + 0.004 for at in at_once], abs=1e-6)


@in_virtual_time()
async def test_a_whole_answer_comes_with_its_last_token() -> None:
    async with serving(prefix_caching=False) as place:
        assert await took(place.chat(max_tokens=30)) == pytest.approx(modelled(30, 0.0)[0][-1], abs=1e-6)


@in_virtual_time()
async def test_what_was_said_before_is_in_the_cache() -> None:
    words = "a long story " * 100
    async with serving() as place:
        turn = [{"role": "user", "content": words}]
        first = (await place.chat(messages=turn, max_tokens=100)).json
        said = first["choices"][0]["message"]
        turn += [{"role": "assistant", "content": said["content"]}, {"role": "user", "content": "and then?"}]
        second = (await place.chat(messages=turn, max_tokens=4)).json
        salted = (await place.chat(messages=turn, max_tokens=4, cache_salt="tenant-a")).json
    details = first["usage"]["prompt_tokens_details"]
    full = first["usage"]["prompt_tokens"] // 32 * 32
    assert (details["cached_tokens"], details["created_cache_tokens"]) == (0, full)
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached == (first["usage"]["prompt_tokens"] + 99) // 32 * 32, (
        "the answer's blocks are found as well"
    )
    assert salted["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


@in_virtual_time()
async def test_priority_counts_where_the_engine_schedules_by_it() -> None:
    async def order(**profile: Any) -> list[str]:
        over: list[str] = []

        async def one(name: str, priority: int) -> None:
            await place.chat(max_tokens=20, priority=priority, ignore_eos=True)
            over.append(name)

        async with serving(sequences_max=1, **profile) as place:
            running = asyncio.create_task(one("running", 0))
            await asyncio.sleep(0.05)
            await asyncio.gather(one("unimportant", 5), one("important", -5))
            await running
        return over

    assert await order(by_priority=True) == ["running", "important", "unimportant"]
    assert await order() == ["running", "unimportant", "important"]


# -- leaving ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("after_s", [0.0, 0.001, 0.25, 2.2])
def test_who_leaves_is_forgotten_at_once(stream: bool, after_s: float) -> None:
    """While it waits to be seen, in its prompt, at the first tokens, in the middle."""

    @in_virtual_time()
    async def leave() -> None:
        async with serving() as place:
            client = await place.client()
            content = "a long story " * 600
            messages = [{"role": "user", "content": content}]
            client.send(post(CHAT, chat(stream=stream, messages=messages, max_tokens=90, ignore_eos=True)))
            await turns()
            await asyncio.sleep(after_s)
            live = place.twin.service.live
            assert len(live.tracks) == 1
            client.leave()
            await turns()
            assert not live.tracks
            await asyncio.sleep(2.1)  # the step in flight may hold the whole prompt
            engine = live.engine
            assert (engine.running, engine.waiting, engine.kv_use) == (0, 0, 0.0)
            assert engine.next_at is None
            assert live.counts.ends["abort"] == 1

    leave()


@in_virtual_time()
async def test_who_leaves_the_queue_is_forgotten_too() -> None:
    async with serving(sequences_max=1) as place:
        stays = asyncio.create_task(place.chat(max_tokens=50, ignore_eos=True))
        await asyncio.sleep(0.1)
        client = await place.client()
        client.send(post(CHAT, chat(max_tokens=50, n=3)))
        await asyncio.sleep(0.1)
        assert place.twin.service.live.engine.waiting == 3
        client.leave()
        await turns()
        assert place.twin.service.live.engine.waiting == 0
        assert (await stays).json["usage"]["completion_tokens"] == 50


@in_virtual_time()
async def test_an_answer_that_is_over_needs_no_leaving() -> None:
    async with serving() as place:
        client = await place.client()
        client.send(post(CHAT, chat(max_tokens=3)), post(CHAT, chat(max_tokens=4, stream=True)))
        assert (await client.answer()).json["usage"]["completion_tokens"] == 3
        assert len(events((await client.answer()).body)) == 6
        client.leave()
        await turns()
        assert place.twin.service.live.counts.ends["abort"] == 0


# -- slow clients --------------------------------------------------------------------------------------


def told(body: bytes, index: int) -> list[Any]:
    """What the events of a stream say of one choice."""
    choices = [event["choices"] for event in events(body) if event != "[DONE]"]
    return [choice for said in choices for choice in said if choice["index"] == index]


@in_virtual_time()
async def test_what_nobody_reads_waits_as_a_number() -> None:
    asked = {"n": 2, "max_tokens": 900, "stream": True, "ignore_eos": True}
    async with serving() as place:
        expected = (await place.chat(**asked)).body
        client = await place.client()
        client.transport.pause_reading()
        client.send(post(CHAT, chat(**asked)))
        await asyncio.sleep(20)
        assert not place.twin.service.live.tracks, "the engine does not wait"
        (connection,) = place.twin.site.connections.values()
        unsent = [connection.unsent]
        client.transport.resume_reading()
        answer = asyncio.create_task(client.answer())
        while not answer.done():
            unsent.append(connection.unsent)
            await asyncio.sleep(0)
        body = (await answer).body
        assert (await place.ask(post(CHAT, chat(max_tokens=1)))).status == 200
        client.leave()
    assert max(unsent) < 150_000 < len(body) / 2
    assert [told(body, index) for index in (0, 1)] == [told(expected, index) for index in (0, 1)]
    assert body.endswith(b"data: [DONE]\n\n")


@in_virtual_time()
async def test_who_leaves_without_having_read_is_forgotten() -> None:
    async with serving() as place:
        client = await place.client()
        client.transport.pause_reading()
        client.send(post(CHAT, chat(max_tokens=1900, stream=True, ignore_eos=True)))
        await asyncio.sleep(10)
        assert len(place.twin.service.live.tracks) == 1
        client.leave()
        await turns()
        assert not place.twin.service.live.tracks


# -- standing still -----------------------------------------------------------------------------------


@in_virtual_time()
async def test_a_sleeping_engine_goes_on_as_if_no_time_had_passed() -> None:
    async with serving(prefix_caching=False) as place:
        asked = asyncio.create_task(stamps(place, max_tokens=30))
        await asyncio.sleep(0.105)
        assert (await place.post("/sleep")).json == {"status": "sleeping", "level": 1}
        assert (await place.get("/is_sleeping")).json == {"is_sleeping": True}
        await asyncio.sleep(5.0)
        await place.post("/wake_up")
        seen = await asked
    expected = modelled(30, 0.0)[0]
    awake = [at for at in expected if at <= 0.105]
    assert seen[: len(awake)] == pytest.approx(awake, abs=1e-6)
    assert seen[len(awake) :] == pytest.approx([at + 5.0 for at in expected[len(awake) :]], abs=1e-6)


@in_virtual_time()
async def test_a_stopped_twin_arms_no_timer() -> None:
    async with serving() as place:
        client = await place.client()
        client.send(post(CHAT, chat(max_tokens=500, stream=True)))
        await client.heard(b'"content":"')
    assert client.over


# -- prefill and decode -------------------------------------------------------------------------------


@in_virtual_time()
async def test_a_decode_does_not_compute_what_a_prefill_has() -> None:
    prompt = {"messages": [{"role": "user", "content": "a long story " * 300}]}
    asks = {"do_remote_decode": True, "do_remote_prefill": False}
    async with serving(Options(role=Role.PREFILL), kv_token_bytes=1000, transfer_bytes_per_s=1e7) as place:
        prefilled = (await place.chat(max_tokens=1, kv_transfer_params=asks, **prompt)).json
        engine = place.twin.service.live.engine
        assert engine.kv_use > 0.2, "kept until it is fetched"
        longer = (await place.chat(max_tokens=50, cache_salt="other", **prompt)).json
        assert longer["usage"]["completion_tokens"] == 1, "a prefill engine makes one token"
        await asyncio.sleep(0.2)
        assert engine.kv_use == 0
    params = prefilled["kv_transfer_params"]
    assert shape(params) == shape(captured("pd_prefill.txt")["kv_transfer_params"])
    assert params["remote_num_tokens"] == prefilled["usage"]["prompt_tokens"]
    async with serving(kv_token_bytes=1000, transfer_bytes_per_s=1e7) as place:
        fetched_s = await took(place.chat(max_tokens=4, kv_transfer_params=params, **prompt))
        computed_s = await took(place.chat(max_tokens=4, cache_salt="other", **prompt))
    assert fetched_s < computed_s / 3
