"""One engine's events in their order: nothing twice, nothing missed that could be had, none of the dead."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

import msgspec
import pytest

from maitred.control import kv_feed
from maitred.control.kv_feed import COOLDOWN_S, HELD_MAX, NOTHING_YET, REPLAY_S, Feed
from maitred.core.words import Endpoint, EndpointState, KvEvents
from maitred.net import virtual
from maitred.wire.prefix import block_key, root

Message = tuple[int, bytes]


def payload(*names: int, parent: int | None = None, at: float = 100.0, gone: bool = False) -> bytes:
    """A message of blocks, each named by its one token, or of blocks that are gone."""
    event: Any = ["BlockStored", names, parent, names, 1]
    return msgspec.msgpack.encode([at, [["BlockRemoved", names] if gone else event], 0])


def key(name: int, *more: int) -> int:
    """The key of the last of these blocks."""
    known = root("q")
    for token in (name, *more):
        known = block_key(known, token.to_bytes(4, "little"))
    return known


class Scene:
    """A feed, what was asked of the engine, and what was told of it."""

    def __init__(self, *, replays: bool = True, places: int = 8) -> None:
        self.endpoint = Endpoint("q/a:1", "q", "http://a:1", EndpointState.READY)
        self.told: list[KvEvents] = []
        self.asked: list[tuple[int, int, float]] = []
        self.buffer: list[Message] = []
        self.delay_s = 0.0
        self.silent = False
        self.loop = asyncio.get_running_loop()
        self.feed = Feed(
            self.endpoint,
            self.replay if replays else None,
            asyncio.Semaphore(places),
            self.told.append,
            self.loop.time,
            lambda: 100.5,
        )

    async def replay(self, rank: int, first: int) -> AsyncGenerator[Message, None]:
        self.asked.append((rank, first, self.loop.time()))
        await asyncio.sleep(self.delay_s)
        if self.silent:
            raise TimeoutError
        for message in [message for message in self.buffer if message[0] >= first]:
            yield message

    def hear(self, number: int, *names: int, rank: int = 0, **more: Any) -> None:
        self.feed.hear(rank, number, payload(*(names or (number + 1,)), **more))
        self.feed.settle()

    @property
    def there(self) -> set[int]:
        """What the core thinks is there."""
        there = set[int]()
        for change in self.told:
            there = (set() if change.cleared else there - set(change.removed)) | set(change.stored)
        return there

    @property
    def lost(self) -> bool:
        return any(change.lost for change in self.told)

    def counts(self, *names: str) -> list[int]:
        return [self.feed.figures.counts[name] for name in names]


async def settled() -> None:
    await asyncio.sleep(0.001)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    virtual.run(test())


def test_messages_in_order_are_taken_in() -> None:
    async def test() -> None:
        scene = Scene(replays=False)
        assert scene.feed.figures.why == NOTHING_YET
        scene.hear(0)
        scene.hear(1)
        scene.hear(2, 1, gone=True)
        assert scene.told == [
            KvEvents("q/a:1", (key(1),), cleared=True),
            KvEvents("q/a:1", (key(2),)),
            KvEvents("q/a:1", (), (key(1),)),
        ]
        figures = scene.feed.figures
        assert (figures.why, figures.blocks, figures.block_tokens) == ("", 1, 1)
        assert (figures.heard_at, figures.lag_s) == (scene.loop.time(), 0.5)
        assert scene.counts("messages", "stored", "removed", "gaps") == [3, 2, 1, 0]

    run(test)


def test_what_was_told_before_anybody_listened_is_asked_for() -> None:
    async def test() -> None:
        scene = Scene()
        scene.buffer = [(0, payload(1)), (1, payload(2)), (2, payload(3))]
        scene.delay_s = 1.0
        scene.feed.begin(1)
        await settled()
        scene.hear(2)
        scene.hear(3)
        assert not scene.told
        await asyncio.sleep(2)
        assert [asked[:2] for asked in scene.asked] == [(0, 0)]
        assert scene.there == {key(1), key(2), key(3), key(4)}
        assert scene.counts("messages", "replays", "gaps", "restarts") == [4, 1, 0, 0]
        assert not scene.lost
        scene.hear(4)
        assert scene.counts("messages", "gaps", "restarts") == [5, 0, 0]

    run(test)


def test_a_gap_is_filled_in_order() -> None:
    async def test() -> None:
        scene = Scene()
        scene.hear(0)
        scene.buffer = [(0, payload(1)), (1, payload(2)), (2, payload(2, gone=True)), (3, payload(9))]
        scene.hear(3, 9)
        scene.hear(4, 2)
        await settled()
        assert [asked[:2] for asked in scene.asked] == [(0, 1)]
        assert scene.there == {key(1), key(2), key(9)}
        assert scene.counts("messages", "gaps", "replays", "restarts") == [5, 1, 1, 0]
        assert not scene.lost

    run(test)


def test_a_gap_that_cannot_be_filled_is_told() -> None:
    async def test() -> None:
        scene = Scene()
        scene.hear(0)
        scene.silent = True
        scene.hear(3)
        await settled()
        assert scene.there == {key(1), key(4)}
        assert scene.told[-1].lost
        assert scene.counts("gaps", "replays", "replays_failed") == [1, 1, 1]

    run(test)


def test_an_engine_that_remembers_too_little_has_lost_it() -> None:
    async def test() -> None:
        scene = Scene()
        scene.hear(0)
        scene.buffer = [(2, payload(3))]
        scene.hear(3)
        await settled()
        assert scene.there == {key(1), key(3), key(4)}
        assert scene.lost
        assert scene.counts("replays_failed") == [0]

    run(test)


def test_without_a_replay_what_is_missing_is_lost_at_once() -> None:
    async def test() -> None:
        scene = Scene(replays=False)
        scene.hear(7)
        assert not scene.lost, "nothing was known before"
        scene.hear(9)
        assert scene.told[-1].lost
        assert scene.counts("gaps") == [1]
        scene.hear(11, 8)
        assert scene.told[-1] == KvEvents("q/a:1", lost=True), "also where nothing has changed"

    run(test)


def test_replays_rest_between_each_other() -> None:
    async def test() -> None:
        scene = Scene()
        scene.hear(0)
        scene.hear(2)
        await settled()
        scene.hear(4)
        assert len(scene.asked) == 1
        assert scene.told[-1].lost
        await asyncio.sleep(COOLDOWN_S)
        scene.hear(6)
        await settled()
        assert [asked[:2] for asked in scene.asked] == [(0, 1), (0, 5)]

    run(test)


def test_the_first_replay_may_be_followed_at_once() -> None:
    async def test() -> None:
        scene = Scene()
        scene.buffer = [(0, payload(1))]
        scene.feed.begin(1)
        await settled()
        scene.buffer += [(1, payload(2)), (2, payload(3))]
        scene.hear(2)
        await settled()
        assert scene.there == {key(1), key(2), key(3)}
        assert not scene.lost

    run(test)


def test_what_is_told_between_the_first_replay_and_the_subscription_is_asked_for() -> None:
    async def test() -> None:
        scene = Scene()
        scene.buffer = [(0, payload(1))]
        scene.delay_s = 1.0
        scene.feed.begin(1)
        await asyncio.sleep(0.5)
        scene.hear(2)  # and 1 went by unheard
        await asyncio.sleep(1.0)
        scene.buffer += [(1, payload(2)), (2, payload(3))]
        scene.hear(3)
        await asyncio.sleep(1.0)
        assert [asked[:2] for asked in scene.asked] == [(0, 0), (0, 1)]
        assert scene.there == {key(1), key(2), key(3), key(4)}
        assert not scene.lost
        assert scene.counts("messages", "replays", "gaps") == [4, 2, 0]

    run(test)


def test_a_replay_ends_some_time() -> None:
    async def test() -> None:
        scene = Scene()
        scene.delay_s = 10 * REPLAY_S
        scene.hear(0)
        scene.hear(2)
        await asyncio.sleep(REPLAY_S + 1)
        assert scene.counts("replays_failed") == [1]
        assert scene.there == {key(1), key(3)}

    run(test)


def test_only_so_many_are_asked_at_once() -> None:
    async def test() -> None:
        scene, begun_at = Scene(places=2), asyncio.get_running_loop().time()
        scene.delay_s = 1.0
        scene.feed.begin(5)
        await asyncio.sleep(10)
        assert [round(at - begun_at) for _, _, at in scene.asked] == [0, 0, 1, 1, 2]

    run(test)


def test_what_waits_for_a_replay_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_feed, "HELD_BYTES_MAX", 1000)

    async def test() -> None:
        scene = Scene()
        scene.delay_s = 1.0
        scene.feed.begin(2)
        for number in range(HELD_MAX + 10):
            scene.feed.hear(0, number, b"")
        size = len(payload(1))
        for number in range(1000 // size + 10):
            scene.hear(number, rank=1)
        await asyncio.sleep(2)
        held = HELD_MAX + 1000 // size + 1
        assert scene.counts("messages", "malformed") == [held, HELD_MAX]

    run(test)


def test_numbers_that_begin_anew_are_another_process() -> None:
    async def test() -> None:
        scene = Scene(replays=False)
        for number in range(3):
            scene.hear(number)
        scene.hear(0, 9)
        assert scene.told[-1] == KvEvents("q/a:1", (key(9),), cleared=True)
        assert scene.counts("restarts", "gaps") == [1, 0]
        scene.hear(1)
        assert scene.there == {key(9), key(2)}

    run(test)


def test_another_process_that_has_told_more_is_asked_for_it() -> None:
    async def test() -> None:
        scene = Scene()
        for number in range(5):
            scene.hear(number)
        scene.buffer = [(0, payload(7)), (1, payload(8)), (2, payload(9))]
        scene.hear(2, 9)
        await settled()
        assert scene.there == {key(7), key(8), key(9)}
        assert scene.counts("restarts", "gaps", "replays") == [1, 0, 1]

    run(test)


def test_a_new_incarnation_begins_anew() -> None:
    async def test() -> None:
        scene = Scene()
        scene.hear(0)
        scene.endpoint.incarnation += 1
        scene.buffer = [(0, payload(5))]
        scene.feed.renew()
        assert scene.there == set()
        assert scene.feed.figures.why == NOTHING_YET
        await settled()
        assert scene.there == {key(5)}
        scene.hear(1, 6)
        assert scene.there == {key(5), key(6)}
        assert scene.counts("restarts") == [0]

    run(test)


def test_a_replay_of_an_incarnation_before_is_given_up() -> None:
    async def test() -> None:
        scene = Scene()
        scene.hear(0)
        scene.delay_s, scene.buffer = 1.0, [(1, payload(2)), (2, payload(3))]
        scene.hear(2)
        await settled()
        scene.endpoint.incarnation += 1
        scene.buffer = [(0, payload(7))]
        scene.hear(1, 8)
        await asyncio.sleep(2)
        assert scene.there == {key(7), key(8)}
        assert [asked[:2] for asked in scene.asked] == [(0, 1), (0, 0)]

    run(test)


def test_ranks_count_for_themselves() -> None:
    async def test() -> None:
        scene = Scene(replays=False)
        scene.hear(0)
        scene.hear(0, 2, rank=1)
        scene.hear(1, 3, rank=1)
        assert scene.there == {key(1), key(2), key(3)}
        scene.hear(1, 3, gone=True)
        assert scene.there == {key(1), key(2), key(3)}, "it is in the cache of another rank"
        assert scene.counts("restarts", "gaps", "strangers") == [0, 0, 1]

    run(test)


def test_while_there_is_a_reason_nothing_is_told() -> None:
    async def test() -> None:
        scene = Scene(replays=False)
        scene.hear(0)
        scene.feed.judge("its blocks have 3 tokens")
        assert scene.told[-1] == KvEvents("q/a:1", cleared=True, lost=True)
        scene.hear(1)
        scene.hear(3)
        assert len(scene.told) == 2
        scene.feed.judge("")
        scene.feed.settle()
        assert scene.told[2:] == [KvEvents("q/a:1", (key(1), key(2), key(4)), cleared=True)]

    run(test)


def test_a_fault_is_logged_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        scene = Scene(replays=False)
        for number in range(3):
            scene.feed.hear(0, number, b"\xc1")
        scene.hear(3, 5, parent=4)
        scene.hear(4, 5, gone=True)
        scene.feed.hear(0, 5, msgspec.msgpack.encode([1.0, [["BlockMoved", 1]]]))
        assert scene.counts("malformed", "orphans", "strangers", "unknown") == [3, 1, 1, 1]

    run(test)
    assert [record.getMessage().split("; ")[0] for record in caplog.records] == [
        "q/a:1: KV events: messages or events that make no sense",
        "q/a:1: KV events: blocks whose beginning is not known",
        "q/a:1: KV events: blocks went that were not known",
        "q/a:1: KV events: events or fields that nobody knows here",
    ]


def test_large_replays_let_others_have_the_loop() -> None:
    async def test() -> None:
        scene = Scene()
        many = list(range(1, 5000))
        scene.buffer = [(number, payload(*many, at=number)) for number in range(20)]
        scene.feed.begin(1)
        turns = 0
        while scene.counts("messages") != [20]:
            await asyncio.sleep(0)
            turns += 1
        assert turns > 3
        assert scene.told, "and what was heard so far is told meanwhile"

    run(test)
