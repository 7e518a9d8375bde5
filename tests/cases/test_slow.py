"""An engine that is alive, and of no use."""

from __future__ import annotations

import asyncio

from tests.net.http import post
from tests.proxy.place import CHAT, STREAM, Place, chat, in_virtual_time, serving
from tests.proxy.upstream import DONE, FINISH, LAST, ROLE, Menu, Plan, Step, chunk, word
from tests.proxy.upstream import STREAM as HEAD

WORDS = 20


def paced(gap_s: float) -> Plan:
    """A stream that has so long between its tokens."""
    words: list[Step] = [step for n in range(WORDS) for step in (gap_s, chunk(word(f"{n} ")))]
    return [HEAD, chunk(ROLE), *words, chunk(FINISH), chunk(DONE), LAST]


async def ask(place: Place, seed: int) -> None:
    assert (await place.ask(post(CHAT, chat(stream=True, seed=seed)))).body.endswith(DONE)


class TestOneThatIsFarSlowerThanItsPeers:
    """B88: maximhq/bifrost#6472.

    0.8 tokens a second never looked idle, so a slow engine kept its share of the requests.
    """

    @in_virtual_time(3000)
    async def test_it_loses_its_share_and_no_stream_that_has_begun(self) -> None:
        async with serving(paced(0.01), kitchens=2) as place:
            slow = place.kitchens[0]
            slow.menu = Menu(paced(1.0))
            for number in range(0, 24, 2):  # both at work, so that both are measured
                await asyncio.gather(ask(place, number), ask(place, number + 1))
            before = len(slow.menu.asked)
            assert 10 <= before <= 14
            await asyncio.gather(*(ask(place, 100 + number) for number in range(40)))
            assert len(slow.menu.asked) - before <= 1
            assert {line["outcome"] for line in place.lines} == {"completed"}
            assert {line["attempts"] for line in place.lines} == {1}

    @in_virtual_time(3000)
    async def test_alone_it_is_still_used(self) -> None:
        async with serving(paced(0.01), kitchens=2) as place:
            slow, fast = place.kitchens
            slow.menu = Menu(paced(1.0))
            for number in range(0, 24, 2):
                await asyncio.gather(ask(place, number), ask(place, number + 1))
            place.memory.refuse(*fast.address)
            await place.drop_idle()
            for _ in range(3):
                assert (await place.ask(STREAM)).body.endswith(DONE)
            assert place.outcomes[-1] == "completed"
