"""KV events over real ZMQ sockets, beside frames of a real vLLM, in both encodings, live and replayed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec
import pytest
import uvloop
import zmq
import zmq.asyncio

from maitred.net.seams import Sockets
from maitred.twin import tokens
from maitred.twin.kv_events import END_SEQUENCE, KvEvents, binds
from tests.ports import free_port
from tests.twin.place import DATA, MODEL, Place, serving, shape

TOPIC = "kv@127.0.0.1:8101@smollm2"
LONG = {"messages": [{"role": "user", "content": "a long story " * 40}], "max_tokens": 1}
"""A prompt of 4 full blocks."""
PATIENCE_S = 60.0
"""Only a failing test ever waits this long."""

Message = tuple[bytes, int, Any]


class Subscriber:
    """A SUB socket, and the DEALER that asks for a replay."""

    def __init__(self, context: zmq.asyncio.Context) -> None:
        self.live = context.socket(zmq.SUB)
        self.live.subscribe(b"")
        self.replay = context.socket(zmq.DEALER)

    async def next(self) -> Message:
        """The next message: topic, number, payload decoded."""
        frames = await asyncio.wait_for(self.live.recv_multipart(), PATIENCE_S)
        assert len(frames) == 3
        assert len(frames[1]) == 8
        return frames[0], int.from_bytes(frames[1]), msgspec.msgpack.decode(frames[2])

    async def replayed(self, first: int) -> list[list[bytes]]:
        """All frames that come when messages from this one on are asked for again."""
        await self.replay.send_multipart([b"", first.to_bytes(8)])
        got = []
        while True:
            got.append(await asyncio.wait_for(self.replay.recv_multipart(), PATIENCE_S))
            if got[-1][2] == END_SEQUENCE:
                return got


@contextmanager
def sockets() -> Iterator[Subscriber]:
    context = zmq.asyncio.Context()
    subscriber = Subscriber(context)
    try:
        yield subscriber
    finally:
        context.destroy(linger=0)


@asynccontextmanager
async def publishing(form: Any = "map", **profile: Any) -> AsyncIterator[tuple[Place, Subscriber]]:
    """A twin on real sockets that connects to a subscriber, as vLLM does to an address without a star."""
    with sockets() as subscriber:
        port = subscriber.live.bind_to_random_port("tcp://127.0.0.1")
        replay = f"tcp://127.0.0.1:{free_port()}"
        subscriber.replay.connect(replay)
        events = KvEvents(f"tcp://127.0.0.1:{port}", 32, lambda: 1.8e9, replay, TOPIC, form)
        async with serving(None, Sockets(), events, **profile) as place:
            await subscribed(events, subscriber)
            yield place, subscriber


async def subscribed(events: KvEvents, subscriber: Subscriber) -> None:
    """Publish until it is heard, as what is published before is lost; then begin anew."""
    while not await subscriber.live.poll(5):
        events.cleared()
    await asyncio.sleep(0)
    events.cleared()
    while (await subscriber.next())[1] < events.next - 1:
        pass
    events.restart()


def run(test: Any) -> None:
    uvloop.run(test)


def real(name: str) -> Any:
    return msgspec.msgpack.decode((DATA / name).read_bytes())


def test_stars_are_bound_and_addresses_connected() -> None:
    assert binds("tcp://*:5557")
    assert binds("ipc:///tmp/x")
    assert not binds("tcp://127.0.0.1:5557")


def test_blocks_are_told_as_vllm_tells_them() -> None:
    async def publish() -> None:
        async with publishing() as (place, subscriber):
            answer = await place.chat(**LONG)
            topic, number, payload = await subscriber.next()
            await place.chat(**LONG | {"cache_salt": "tenant-a"})
            salted = (await subscriber.next())[2]
            prompt = (await place.post("/tokenize", {"messages": LONG["messages"]})).json["tokens"]
        assert answer.json["usage"]["prompt_tokens"] == len(prompt)
        assert (topic.decode(), number) == (TOPIC, 0)
        captured = real("kv_events/msg001.part2.bin")[1][1]
        (stored,) = payload[1]
        assert list(stored) == list(captured)
        assert shape(stored) == shape(captured)
        assert (payload[0], payload[2]) == (1.8e9, 0)
        assert stored["token_ids"] == prompt[: 4 * 32]
        assert stored["block_hashes"] == tokens.block_keys(tokens.pack(prompt), 32)
        assert stored["parent_block_hash"] is None
        assert stored["block_size"] == 32
        assert salted[1][0]["extra_keys"] == [["tenant-a"], None, None, None]
        assert real("kv_events/msg005.part2.bin")[1][0]["extra_keys"][0] == ["tenant-a"]
        assert not set(salted[1][0]["block_hashes"]) & set(stored["block_hashes"])

    run(publish())


def test_answers_and_later_turns_name_the_block_before() -> None:
    async def publish() -> None:
        async with publishing() as (place, subscriber):
            longer = {"max_tokens": 40, "ignore_eos": True, "return_token_ids": True, "cache_salt": "a"}
            answer = (await place.chat(**LONG | longer)).json
            first = (await subscriber.next())[2][1][0]
            second = (await subscriber.next())[2][1][0]
        assert second["parent_block_hash"] == first["block_hashes"][-1]
        all_ids = answer["prompt_token_ids"] + answer["choices"][0]["token_ids"]
        assert second["token_ids"] == all_ids[4 * 32 : 5 * 32]
        assert second["extra_keys"] == [None], "the salt is told once, with the first block"

    run(publish())


def test_blocks_that_go_are_told_and_so_is_a_cleared_cache() -> None:
    async def publish() -> None:
        async with publishing(kv_blocks=6) as (place, subscriber):
            await place.chat(**LONG)
            first = (await subscriber.next())[2][1][0]["block_hashes"]
            await place.chat(**LONG | {"cache_salt": "other"})
            told = (await subscriber.next())[2][1]
            await place.post("/reset_prefix_cache")
            cleared = (await subscriber.next())[2][1]
        removed = [event for event in told if event["type"] == "BlockRemoved"]
        captured = next(
            it for it in real("kv_events_removed/msg003.part2.bin")[1] if it["type"] == "BlockRemoved"
        )
        assert shape(removed[0]) == shape(captured)
        gone = [key for event in removed for key in event["block_hashes"]]
        assert gone == first[::-1][: len(gone)], "a chain goes tail first"
        assert cleared == [{"type": "AllBlocksCleared"}]

    run(publish())


def test_arrays_are_as_older_versions_have_them() -> None:
    async def publish() -> None:
        async with publishing(form="array", kv_blocks=6) as (place, subscriber):
            await place.chat(**LONG)
            stored = (await subscriber.next())[2][1]
            await place.chat(**LONG | {"cache_salt": "other"})
            removed = (await subscriber.next())[2][1]
            await place.post("/reset_prefix_cache")
            cleared = (await subscriber.next())[2][1]
        older = {event[0]: event for event in real("kv_events_array/payload.bin")[1]}
        assert shape_of_each(stored[0]) == shape_of_each(older["BlockStored"])
        assert shape_of_each(removed[0]) == shape_of_each(older["BlockRemoved"])
        assert cleared == [older["AllBlocksCleared"]]

    run(publish())


def shape_of_each(values: list[Any]) -> list[Any]:
    return [shape(value) for value in values]


def test_what_was_missed_comes_again() -> None:
    async def publish() -> None:
        async with publishing() as (place, subscriber):
            for salt in "abc":
                await place.chat(**LONG | {"cache_salt": salt})
            live = [await subscriber.next() for _ in range(3)]
            again = await subscriber.replayed(1)
            nothing = await subscriber.replayed(99)
            await place.post("/twin/crash")
            await asyncio.sleep(0)
            after = await subscriber.replayed(0)
        assert [frames[:3] for frames in again[:-1]] == [
            [b"", TOPIC.encode(), number.to_bytes(8)] for number in (1, 2)
        ]
        assert [msgspec.msgpack.decode(frames[3]) for frames in again[:-1]] == [it[2] for it in live[1:]]
        end = [(DATA / "kv_replay" / f"msg016.part{part}.bin").read_bytes() for part in range(4)]
        assert [again[-1]] == nothing == after == [end]

    run(publish())


def test_a_bound_publisher_can_be_connected_to() -> None:
    async def publish() -> None:
        port = free_port()
        events = KvEvents(f"tcp://*:{port}", 32, lambda: 1.8e9)
        with sockets() as subscriber:
            subscriber.live.connect(f"tcp://127.0.0.1:{port}")
            async with serving(None, Sockets(), events) as place:
                await subscribed(events, subscriber)
                await place.chat(**LONG)
                topic, number, _ = await subscriber.next()
                assert (topic.decode(), number) == (f"kv@127.0.0.1:{place.address[1]}@{MODEL}", 0)

    run(publish())


def test_a_taken_endpoint_is_an_error_that_leaves_nothing_open() -> None:
    port = free_port()
    with zmq.Context() as context, context.socket(zmq.PUB) as socket:
        socket.bind(f"tcp://*:{port}")
        with pytest.raises(zmq.ZMQError, match="in use"):
            KvEvents(f"tcp://*:{port}", 32, lambda: 1.8e9)
