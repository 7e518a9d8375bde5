"""Our keys of engines' blocks: a request's own keys, through whatever an engine tells of its cache."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maitred.wire.kv_events import MEDIUM, Batch, Cleared, Event, Hash, Removed, Stored, decode
from maitred.wire.prefix import blocks_of, root
from maitred.wire.rekey import PLACES_MAX, Delta, Rekey

DATA = Path(__file__).parents[1] / "data" / "kv_events"
POOL = "smollm2"


class Engine:
    """An engine's cache, told of by events; and what was taken from them, told together."""

    def __init__(self, blocks_max: int = 1000) -> None:
        self.rekey = Rekey(POOL, blocks_max)
        self.there: set[int] = set()
        self.deltas: list[Delta] = []

    def tell(self, *events: Event, rank: int = 0) -> Delta | None:
        self.rekey.apply(Batch(events=events), rank)
        return self.take()

    def take(self) -> Delta | None:
        delta = self.rekey.take()
        if delta is not None:
            assert not set(delta.stored) & set(delta.removed)
            self.there = (set() if delta.cleared else self.there - set(delta.removed)) | set(delta.stored)
        assert len(self.rekey) == len(self.there)
        return delta

    def faults(self) -> dict[str, int]:
        return {what: count for what, count in self.rekey.counts.items() if count}


def blocks(names: str, parent: Hash | None = None, size: int = 2, **more: Any) -> Stored:
    """Blocks by names of a letter, each with tokens of its own."""
    tokens = array("I", [ord(name) * 100 + at for name in names for at in range(size)])
    values: dict[str, Any] = {
        "adapter": "",
        "extras": (),
        "medium": MEDIUM,
        "group": 0,
        "windowed": False,
    }
    return Stored(
        hashes=[name.encode() for name in names],
        parent=parent,
        tokens=tokens,
        block_tokens=size,
        **values | more,
    )


def moved(names: str, medium: str) -> Stored:
    """Blocks of which only the place is new."""
    event = blocks(names, medium=medium)
    return Stored(event.hashes, None, array("I"), 2, "", (), medium, 0, windowed=False)


def gone(names: str, medium: str = MEDIUM, group: int = 0) -> Removed:
    return Removed([name.encode() for name in names], medium, group)


def keys(names: str, salt: str = "", adapter: str = "", size: int = 2) -> tuple[int, ...]:
    """Those of a request with the same tokens."""
    return blocks_of(root(POOL, adapter), blocks(names, size=size).tokens, size, salt)


def test_blocks_have_the_keys_of_requests() -> None:
    engine = Engine()
    assert engine.tell(blocks("abc")) == Delta(keys("abc"))
    assert engine.tell(blocks("de", b"c")) == Delta(keys("abcde")[3:])
    assert engine.tell(blocks("x", b"b")) == Delta(keys("abx")[2:])
    assert engine.tell(gone("ec")) == Delta((), (keys("abcde")[4], keys("abc")[2]))
    assert engine.rekey.block_tokens == 2
    assert not engine.faults()


def test_captured_blocks_have_the_keys_of_requests() -> None:
    engine = Engine()
    batches = [decode((DATA / f"live_{number}.bin").read_bytes()) for number in (1, 2, 5)]
    first, second, salted = (
        event for batch in batches for event in batch.events if isinstance(event, Stored)
    )
    engine.rekey.apply(batches[0], 0)
    engine.rekey.apply(batches[1], 0)
    assert engine.take() == Delta(blocks_of(root(POOL), first.tokens + second.tokens, 32), cleared=True)
    engine.rekey.apply(batches[2], 0)
    assert engine.take() == Delta(blocks_of(root(POOL), salted.tokens, 32, "tenant-a"))


def test_a_small_cache_is_followed_all_the_way() -> None:
    engine, there = Engine(), set[Hash]()
    for number in range(1, 7):
        batch = decode((DATA / f"removed_{number}.bin").read_bytes())
        for event in batch.events:
            if isinstance(event, Stored):
                there |= set(event.hashes)
            elif isinstance(event, Removed):
                there -= set(event.hashes)
        engine.rekey.apply(batch, 0)
        engine.take()
    assert len(engine.there) == len(there) > 50
    assert not engine.faults()


def test_who_has_another_salt_or_adapter_shares_nothing() -> None:
    engine = Engine()
    engine.tell(blocks("ab"))
    assert engine.tell(blocks("ab", extras=[b'["s"]', b""])) == Delta(keys("ab", "s"), keys("ab"))
    other = Engine()
    assert other.tell(blocks("ab", adapter="sql")) == Delta(keys("ab", adapter="sql"))
    assert not engine.there & other.there


def test_a_cleared_cache_is_empty() -> None:
    engine = Engine()
    engine.tell(blocks("ab"))
    assert engine.tell(Cleared()) == Delta(cleared=True)
    assert engine.tell(blocks("c", b"b")) is None
    assert engine.faults() == {"orphans": 1}
    assert engine.tell(blocks("ab"), Cleared(), blocks("a")) == Delta(keys("a"), cleared=True)


def test_what_came_and_went_at_once_is_not_told() -> None:
    engine = Engine()
    assert engine.tell(blocks("ab"), gone("ab")) is None
    engine.tell(blocks("ab"))
    assert engine.tell(gone("b"), blocks("b", b"a")) is None


def test_a_block_is_there_as_long_as_any_tier_has_it() -> None:
    engine = Engine()
    engine.tell(blocks("ab"))
    assert engine.tell(moved("ab", "CPU")) is None
    assert engine.tell(gone("ab")) is None
    assert engine.tell(blocks("c", b"b")) == Delta(keys("abc")[2:]), "its parent is known from the CPU"
    assert engine.tell(gone("ab", "CPU")) == Delta((), keys("ab"))
    assert not engine.faults()
    engine.tell(moved("z", "CPU"))
    assert engine.faults() == {"orphans": 1}


def test_ranks_have_caches_of_their_own() -> None:
    engine = Engine()
    engine.tell(blocks("ab"))
    assert engine.tell(blocks("ab"), rank=1) is None
    assert engine.tell(blocks("c", b"b"), rank=2) is None
    assert engine.faults() == {"orphans": 1}
    assert engine.tell(Cleared()) is None
    assert engine.tell(gone("b"), rank=1) == Delta((), keys("ab")[1:])
    assert engine.tell(Cleared(), rank=1) == Delta(cleared=True)


def test_layers_with_a_window_count_only_where_there_are_no_others() -> None:
    engine = Engine()
    assert engine.tell(blocks("ab", windowed=True, group=1)) == Delta(keys("ab"))
    assert engine.tell(blocks("ab", size=4)) == Delta(keys("ab", size=4), cleared=True)
    assert engine.tell(blocks("cd", b"b", windowed=True, group=1)) is None
    assert engine.tell(gone("cd", group=1)) is None
    assert engine.rekey.block_tokens == 4
    assert not engine.faults()


def test_what_goes_and_was_not_known_is_counted() -> None:
    engine = Engine()
    engine.tell(blocks("ab"))
    assert engine.tell(gone("xb")) == Delta((), keys("ab")[1:])
    assert engine.tell(gone("a", "CPU"), gone("a", group=3)) is None
    assert engine.faults() == {"strangers": 3}


def test_a_block_of_another_size_is_not_believed() -> None:
    engine = Engine()
    engine.tell(blocks("ab"))
    assert engine.tell(blocks("cd", b"b", size=3)) is None
    assert engine.faults() == {"odd": 2}
    engine.rekey.forget()
    assert engine.tell(blocks("cd", size=3)) == Delta(keys("cd", size=3), cleared=True)


def test_a_name_used_again_means_the_new_block() -> None:
    engine = Engine()
    engine.tell(blocks("ab"))
    assert engine.tell(blocks("b")) == Delta(keys("b"), keys("ab")[1:])


def test_the_oldest_are_forgotten_where_there_are_too_many() -> None:
    engine = Engine(blocks_max=64)
    names = [chr(1000 + number) for number in range(500)]
    for name in names:
        engine.tell(blocks(name))
        assert len(engine.there) <= 64
    assert engine.faults()["dropped"] == 500 - len(engine.there)
    assert engine.there == {keys(name)[0] for name in names[-len(engine.there) :]}


def test_places_are_bounded() -> None:
    engine = Engine()
    for number in range(PLACES_MAX + 2):
        engine.tell(blocks("a", medium=f"tier {number}"))
    assert engine.faults() == {"odd": 2}


def test_everything_can_be_told_anew() -> None:
    engine = Engine()
    engine.tell(blocks("abc"))
    engine.rekey.tell_all()
    assert engine.tell(gone("c")) == Delta(keys("ab"), cleared=True)


@st.composite
def happenings(draw: st.DrawFn) -> list[tuple[int, Event]]:
    """Chains of the letters of a small alphabet come and go, at two ranks and two tiers."""
    happen: list[tuple[int, Event]] = []
    for _ in range(draw(st.integers(0, 30))):
        names = draw(st.text("abcdef", min_size=1, max_size=4))
        medium = draw(st.sampled_from(["GPU", "CPU"]))
        parent = draw(st.none() | st.sampled_from([b"a", b"b", b"c"]))
        events: list[Event] = [
            blocks(names, parent, medium=medium),
            gone(names, medium),
            moved(names, medium),
            Cleared(),
        ]
        event = draw(st.sampled_from(events))
        happen.append((draw(st.integers(0, 1)), event))
    return happen


@settings(max_examples=200)
@given(happenings(), st.integers(1, 5))
def test_however_it_is_taken_the_same_is_there(happen: list[tuple[int, Event]], each: int) -> None:
    often, seldom = Engine(blocks_max=5), Engine(blocks_max=5)
    for index, (rank, event) in enumerate(happen):
        often.tell(event, rank=rank)
        seldom.rekey.apply(Batch(events=[event]), rank)
        if index % each == 0:
            seldom.take()
    seldom.take()
    assert often.there == seldom.there
    for rank in (0, 1):
        often.tell(Cleared(), rank=rank)
    assert not often.there


@pytest.mark.parametrize("count", [0, 1, 3])
def test_its_length_is_what_is_there(count: int) -> None:
    engine = Engine()
    engine.tell(blocks("abc"[:count]))
    assert len(engine.rekey) == count
