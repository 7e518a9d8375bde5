"""Mixed traffic in virtual time: some clients leave, nothing is left, and the cache is as it was told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any, cast

import pytest

from maitred.sim.job import Job, Role
from maitred.twin import tokens
from maitred.twin.kv_events import KvEvents, Source
from maitred.twin.twin import Options
from tests.net.http import Broken, post, turns
from tests.proxy.place import in_virtual_time
from tests.twin.place import CHAT, Place, chat, serving


class Mirror:
    """Hears what a publisher would, and keeps the cache by it: the text behind each key."""

    topic = ""
    source: Source

    def __init__(self) -> None:
        self.texts: dict[int, bytes] = {}

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def restart(self) -> None:
        self.texts.clear()

    def stored(self, keys: Sequence[int], parent: int | None, job: Job) -> None:
        text = self.source.cached(job).text
        first = job.keys.index(keys[0])
        assert list(job.keys[first : first + len(keys)]) == list(keys)
        assert parent == (job.keys[first - 1] if first else None)
        assert parent is None or parent in self.texts
        for nth, key in enumerate(keys, first + 1):
            until = text[: nth * 32 * tokens.TOKEN_BYTES]
            assert self.texts.setdefault(key, until) == until, "told again where two computed it at once"

    def removed(self, keys: Sequence[int]) -> None:
        for key in keys:
            del self.texts[key]

    def cleared(self) -> None:
        self.texts.clear()


async def one(place: Place, rng: Random) -> None:
    """One request of a few kinds; some leave before its end."""
    await asyncio.sleep(rng.uniform(0, 4))
    client = await place.client()
    story = f"story {rng.randrange(4)} " * rng.randrange(1, 60)
    asked: dict[str, Any] = {
        "messages": [{"role": "user", "content": story}],
        "max_tokens": rng.randrange(1, 120),
        "n": rng.choice([1, 1, 1, 3]),
        "stream": rng.random() < 0.6,
    }
    fault = rng.choice(["", "", "", "", "x-twin-fail: reset=20"])
    client.send(post(CHAT, chat(**asked), *filter(None, [fault])))
    leaves = asyncio.get_running_loop().call_later(rng.expovariate(0.7), client.leave)
    try:
        answer = await client.answer()
    except Broken:
        return
    finally:
        leaves.cancel()
        client.leave()
    assert answer.status == 200


@in_virtual_time()
async def test_a_block_may_fill_as_its_client_leaves() -> None:
    mirror = Mirror()
    async with serving(events=cast("KvEvents", mirror)) as place:
        client = await place.client()
        client.send(post(CHAT, chat(max_tokens=90, stream=True, ignore_eos=True)))
        await asyncio.sleep(0.1)
        live = place.twin.service.live
        clock = live._clock
        live._clock = lambda: clock() + 0.5  # the loop is late: many steps have ended meanwhile
        assert not mirror.texts
        client.leave()
        await turns()
        assert mirror.texts
        assert not live.tracks
        assert live.counts.ends["abort"] == 1
        await asyncio.sleep(1)
        engine = live.engine
        assert (engine.running, engine.waiting, engine.kv_use, engine.next_at) == (0, 0, 0.0, None)


@in_virtual_time()
async def test_nobody_fetches_a_prompt_from_an_engine_that_died() -> None:
    mirror, long = Mirror(), [{"role": "user", "content": "word " * 400}]
    slow: dict[str, Any] = {"kv_token_bytes": 1000, "transfer_bytes_per_s": 1e5, "sequences_max": 1}
    async with serving(Options(role=Role.PREFILL), events=cast("KvEvents", mirror), **slow) as place:
        await place.chat(messages=long, max_tokens=1)
        for salt in "ab":
            client = await place.client()
            client.send(post(CHAT, chat(messages=long, max_tokens=1, cache_salt=salt)))
        await asyncio.sleep(0.1)
        assert place.twin.service.live.engine.waiting
        await place.post("/twin/crash")
        await asyncio.sleep(10)
        assert not mirror.texts


@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_left_of_anybody(seed: int) -> None:
    @in_virtual_time(600)
    async def traffic() -> None:
        rng, mirror = Random(seed), Mirror()
        crowd = cast("KvEvents", mirror)
        async with serving(events=crowd, kv_blocks=24, asynchronous=seed % 3 > 0) as place:
            live = place.twin.service.live
            await asyncio.gather(*(one(place, rng) for _ in range(60)))
            await asyncio.sleep(5)
            engine = live.engine
            assert not live.tracks
            assert (engine.running, engine.waiting, engine.kv_use, engine.next_at) == (0, 0, 0.0, None)
            assert sum(live.counts.ends.values()) >= 60
            assert set(mirror.texts) == set(engine._ranks[0].pool._users)
            for key, text in mirror.texts.items():
                assert tokens.block_keys(text, 32)[-1] == key
        assert live.counts.ends["abort"] > 0

    traffic()
