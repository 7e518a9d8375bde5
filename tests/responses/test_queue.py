"""How many jobs may wait: counted a moment ago, and what was added and taken since."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from maitred.responses.queue import COUNT_S, Queue
from maitred.store.rows import StoreError
from maitred.store.state_rows import Locked, QueueFull
from tests.responses.place import in_real_time


class Counted:
    """A store in which so many wait, and how often they were counted."""

    def __init__(self, **tenants: int) -> None:
        self.tenants = Counter(tenants)
        self.times = 0

    async def waiting(self) -> Counter[str]:
        self.times += 1
        await asyncio.sleep(0)
        return self.tenants.copy()


async def counted(queue: Queue, store: Any, now: float) -> None:
    await asyncio.gather(*(queue.count(store, now) for _ in range(3)))


@in_real_time
async def test_no_more_wait_than_may_in_all_and_of_a_tenant() -> None:
    queue = Queue()
    await counted(queue, Counted(a=1, b=2), 0)
    for most, own_most in ((3, 9), (9, 1)):
        with pytest.raises(QueueFull), queue.place("a", most, own_most):
            pass
    with queue.place("a", 4, 2):
        assert queue.waiting == 4
    assert queue.waiting == 4
    with pytest.raises(QueueFull), queue.place("a", 9, 2):
        pass
    queue.left("aab")
    assert queue.waiting == 1
    with queue.place("a", 2, 1):
        pass


@in_real_time
async def test_what_is_not_queued_takes_no_place() -> None:
    queue = Queue()
    with pytest.raises(Locked), queue.place("a", 1, 1):
        raise Locked
    assert queue.waiting == 0
    with queue.place("a", 1, 1):
        pass


@in_real_time
async def test_they_are_counted_once_in_a_while() -> None:
    queue, store = Queue(), Counted(a=1)
    await counted(queue, store, 100)
    assert (store.times, queue.waiting) == (1, 1)
    store.tenants["a"] = 7
    await counted(queue, store, 100 + COUNT_S / 2)
    assert (store.times, queue.waiting) == (1, 1)
    await counted(queue, store, 100 + COUNT_S)
    assert (store.times, queue.waiting) == (2, 7)


@in_real_time
async def test_who_is_being_queued_has_his_place_whatever_is_counted_meanwhile() -> None:
    queue, store = Queue(), Counted()
    await counted(queue, store, 0)
    with suppress(Locked), queue.place("a", 2, 2), queue.place("a", 2, 2):
        await counted(queue, store, COUNT_S)
        with pytest.raises(QueueFull), queue.place("a", 2, 2):
            pass
        raise Locked
    await counted(queue, store, 2 * COUNT_S)
    assert queue.waiting == 0


@in_real_time
async def test_all_who_wait_are_told_at_once_that_they_cannot_be_counted() -> None:
    class Away(Counted):
        async def waiting(self) -> Counter[str]:
            await super().waiting()
            raise StoreError("no answer in 10 s")

    queue, store = Queue(), Away()
    away: Any = store
    wrong = await asyncio.gather(*(queue.count(away, 0) for _ in range(9)), return_exceptions=True)
    assert [str(each) for each in wrong] == ["no answer in 10 s"] * 9
    assert store.times == 1
    await counted(queue, Counted(a=1), 0)
    assert queue.waiting == 1
