"""The cache of blocks: sharing, eviction, and what its listener hears."""

from __future__ import annotations

from maitred.sim.job import Job
from maitred.sim.kv import BlockPool, BlockTable
from tests.sim.kitchen import Mirror


def table(*keys: int) -> BlockTable:
    return BlockTable(Job(1, 1, 1), keys)


def filled(pool: BlockPool, *keys: int, blocks: int | None = None) -> BlockTable:
    """A new sequence that has computed all of its text."""
    made = table(*keys)
    pool.share(made, pool.cached(keys, len(keys)))
    pool.grow(made, blocks or len(keys))
    pool.publish(made, len(keys))
    return made


def test_the_start_of_a_text_is_shared_while_it_is_cached() -> None:
    pool = BlockPool(10)
    first = filled(pool, 1, 2, 3, blocks=4)
    assert (pool.free, pool.cached([1, 2, 9], 3), pool.cached([1, 2, 3], 2)) == (6, 2, 2)
    second = filled(pool, 1, 2, 9)
    assert pool.free == 5
    pool.release(first)
    assert pool.free == 7
    assert pool.cached([1, 2, 3], 3) == 3
    pool.release(second)
    assert pool.free == 10


def test_the_longest_unused_goes_first_and_of_a_chain_its_tail() -> None:
    pool = BlockPool(5)
    old, young = filled(pool, 1, 2), filled(pool, 7, 8)
    pool.release(old)
    pool.release(young)
    pool.grow(table(), 2)  # the blank one, and one of the cache
    assert pool.cached([1, 2], 2) == 1
    assert pool.cached([7, 8], 2) == 2
    pool.grow(table(), 2)
    assert pool.cached([1, 2], 2) == 0
    assert pool.cached([7, 8], 2) == 1


def test_use_makes_a_block_young() -> None:
    pool = BlockPool(2)
    pool.release(filled(pool, 1))
    pool.release(filled(pool, 2))
    pool.release(filled(pool, 1))
    pool.grow(table(), 1)
    assert pool.cached([1], 1) == 1
    assert pool.cached([2], 1) == 0


def test_hits_that_nobody_holds_are_not_free_for_the_rest() -> None:
    pool = BlockPool(4)
    pool.release(filled(pool, 1, 2, 3))
    assert pool.has_room([1, 2, 3, 4], 3, 4)
    blocker = table()
    pool.grow(blocker, 1)
    assert pool.free == 3
    assert not pool.has_room([1, 2, 3, 4], 3, 4)
    held = filled(pool, 1, 2, 3)
    assert pool.free == 0
    assert pool.has_room([1, 2, 3], 3, 3)
    pool.release(held)


def test_a_block_that_two_computed_at_once_is_cached_once() -> None:
    pool = BlockPool(4)
    first, second = table(1, 2), table(1, 2)
    for each in (first, second):
        pool.grow(each, 2)
    for each in (first, second):
        pool.publish(each, 2)
    assert (first.shared, second.shared) == ([1, 2], [])
    pool.release(first)
    pool.release(second)
    assert pool.free == 4
    assert pool.cached([1, 2], 2) == 2


def test_a_listener_knows_what_is_cached_and_in_which_chain() -> None:
    mirror = Mirror()
    pool = BlockPool(3, mirror)
    sequence = filled(pool, 1, 2)
    assert mirror.keys == {1: None, 2: 1}
    sequence.keys = (1, 2, 3)
    pool.grow(sequence, 3)
    pool.publish(sequence, 3)
    assert mirror.keys == {1: None, 2: 1, 3: 2}
    pool.release(sequence)
    pool.grow(table(), 1)
    assert mirror.keys == {1: None, 2: 1}


def test_clearing_forgets_everything() -> None:
    mirror = Mirror()
    pool = BlockPool(3, mirror)
    pool.release(filled(pool, 1, 2))
    pool.clear()
    assert (pool.free, pool.cached([1, 2], 2), mirror.keys) == (3, 0, {})
