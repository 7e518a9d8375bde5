"""What engines tell of their KV caches, captured, in both encodings, and whatever else may come."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import msgpack

from maitred.wire.kv_events import (
    BLOCK_TOKENS_MAX,
    GROUPS_MAX,
    NAME_CHARS_MAX,
    Batch,
    Cleared,
    Event,
    Removed,
    Stored,
    decode,
)
from maitred.wire.rekey import Rekey

DATA = Path(__file__).parents[1] / "data" / "kv_events"
CAPTURED = {path.stem: path.read_bytes() for path in sorted(DATA.glob("*.bin"))}

FIELDS = ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name")
STORED: dict[str, Any] = {
    "type": "BlockStored",
    "block_hashes": [11, 12],
    "parent_block_hash": None,
    "token_ids": [1, 2, 3, 4],
    "block_size": 2,
}


def told(*events: Any, rank: Any = 0, at: Any = 5.5) -> Batch:
    return decode(msgpack.encode([at, list(events), rank]))


def the(event: Any) -> Event:
    batch = told(event)
    assert (batch.unknown, batch.malformed) == (0, 0)
    assert len(batch.events) == 1
    return batch.events[0]


def stored(**more: Any) -> Stored:
    event = the(STORED | more)
    assert isinstance(event, Stored)
    return event


@pytest.mark.parametrize("name", CAPTURED)
def test_all_that_was_captured_is_understood(name: str) -> None:
    batch = decode(CAPTURED[name])
    assert (batch.unknown, batch.malformed, batch.rank) == (0, 0, 0)
    assert batch.at > 1.7e9
    assert batch.events


def test_a_captured_message_says_what_it_does() -> None:
    cleared, blocks = decode(CAPTURED["live_1"]).events
    assert isinstance(cleared, Cleared)
    assert isinstance(blocks, Stored)
    assert (len(blocks.hashes), len(blocks.tokens), blocks.block_tokens) == (5, 160, 32)
    assert (blocks.parent, blocks.adapter, blocks.medium, blocks.group, blocks.windowed) == (
        None,
        "",
        "GPU",
        0,
        False,
    )
    assert blocks.extras == ()
    [salted] = decode(CAPTURED["live_5"]).events
    assert isinstance(salted, Stored)
    assert salted.extras == [b'["tenant-a"]', b"", b"", b"", b""]
    removed = decode(CAPTURED["removed_3"]).events[0]
    assert removed == Removed([2999027127183147717], "GPU", 0)


def test_arrays_say_the_same_as_maps() -> None:
    as_array = ["BlockStored", *[STORED.get(name) for name in FIELDS[:4]]]
    assert the(as_array) == stored()
    longer = [*as_array, 7, "CPU", "sql", [["sql", "salt"], ["sql"]], 3, "sliding_window", 128]
    named = stored(
        medium="CPU",
        lora_name="sql",
        extra_keys=[["sql", "salt"], ["sql"]],
        group_idx=3,
        kv_cache_spec_kind="sliding_window",
        kv_cache_spec_sliding_window=128,
    )
    assert the(longer) == named
    assert (named.medium, named.adapter, named.group, named.windowed) == ("CPU", "sql", 3, True)
    assert named.extras == [b'["salt"]', b""], "the adapter's name is no extra"
    assert the(["BlockRemoved", [11]]) == the({"type": "BlockRemoved", "block_hashes": [11]})
    assert the(["AllBlocksCleared"]) == the({"type": "AllBlocksCleared"}) == Cleared()


def test_hashes_may_be_bytes() -> None:
    event = stored(block_hashes=[b"\1" * 32, b"\2" * 32], parent_block_hash=b"\0" * 32)
    assert (event.hashes, event.parent) == ([b"\1" * 32, b"\2" * 32], b"\0" * 32)


def test_media_are_what_a_block_depends_on() -> None:
    assert stored(extra_keys=[None, [["image", 3], "salt"]]).extras == [b"", b'[["image",3],"salt"]']


def test_blocks_that_only_moved_have_no_tokens() -> None:
    assert stored(token_ids=[], block_size=16, medium="CPU").tokens == array("I")


def test_what_is_not_known_is_counted_and_passed_over() -> None:
    later = STORED | {"type": "BlockMoved"}
    batch = told(STORED | {"later": 1, "still_later": None}, later, ["BlockMoved"], ["AllBlocksCleared", 1])
    assert (len(batch.events), batch.unknown, batch.malformed) == (2, 5, 0)


@pytest.mark.parametrize(
    "event",
    [
        STORED | {"block_size": 3},
        STORED | {"block_size": 1},
        STORED | {"block_size": 0},
        STORED | {"block_size": BLOCK_TOKENS_MAX + 1},
        STORED | {"block_size": "2"},
        STORED | {"token_ids": [1, 2, 3, -4]},
        STORED | {"token_ids": [1, 2, 3, 2**32]},
        STORED | {"token_ids": [1, 2, 3, 4.5]},
        STORED | {"token_ids": [[1, 2], [2, 3], [3, 4], [4, 5]]},
        STORED | {"token_ids": b"\0" * 16},
        STORED | {"token_ids": None},
        STORED | {"block_hashes": None},
        STORED | {"block_hashes": b"\1\2"},
        STORED | {"block_hashes": ["11", "12"]},
        STORED | {"parent_block_hash": "10"},
        STORED | {"extra_keys": [None]},
        STORED | {"extra_keys": {"a": 1, "b": 2}},
        STORED | {"extra_keys": [[msgpack.Ext(5, b"")], None]},
        STORED | {"medium": 1},
        STORED | {"medium": "G" * (NAME_CHARS_MAX + 1)},
        STORED | {"group_idx": GROUPS_MAX},
        STORED | {"group_idx": -1},
        ["BlockStored", [11]],
        ["BlockRemoved"],
        [["BlockRemoved"], [11]],
        {"type": ["BlockRemoved"]},
        [],
        None,
        "AllBlocksCleared",
    ],
)
def test_what_makes_no_sense_is_counted_and_the_rest_holds(event: Any) -> None:
    batch = told(["AllBlocksCleared"], event, STORED)
    assert (len(batch.events), batch.unknown, batch.malformed) == (2, 0, 1)


def test_a_window_may_leave_blocks_out() -> None:
    windowed = stored(block_size=3, kv_cache_spec_kind="mamba", extra_keys=[["a"], None])
    assert (windowed.hashes, windowed.extras) == ([], ())


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",
        b"\x91" * 100_000,
        b"\xd7\xff" + b"\xff" * 8,
        msgpack.encode({"ts": 1.0, "events": []}),
        msgpack.encode([1.0]),
        msgpack.encode([1.0, {"type": "AllBlocksCleared"}]),
    ],
    ids=len,
)
def test_a_message_that_is_none_is_counted(payload: bytes) -> None:
    assert decode(payload) == Batch(malformed=1)


@pytest.mark.parametrize("at", [float("nan"), float("inf"), -1.0, "now", None, 2**63, True])
def test_a_time_that_makes_no_sense_is_none(at: Any) -> None:
    assert told(at=at).at in {0.0, 1.0}


def test_the_rank_is_told_or_is_the_first() -> None:
    assert told(rank=3).rank == 3
    assert told(rank=None).rank == 0


bent = st.tuples(
    st.sampled_from(sorted(CAPTURED)),
    st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), max_size=8),
    st.integers(0, 2**16),
)
plain = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary()
anything = st.recursive(plain, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
word = st.sampled_from(["BlockStored", "BlockRemoved", "AllBlocksCleared", "type", *FIELDS]) | st.text()
event = (
    anything
    | st.lists(anything | word).map(lambda said: ["BlockStored", *said])
    | st.dictionaries(word, anything | word).map(lambda said: {"type": "BlockStored", **said})
)


@settings(max_examples=300)
@given(bent)
def test_no_bent_message_breaks_anything(how: tuple[str, list[tuple[int, int]], int]) -> None:
    name, places, cut = how
    payload = bytearray(CAPTURED[name])
    for place, value in places:
        payload[place % len(payload)] = value
    sound(decode(bytes(payload[: cut + 1])))
    sound(decode(bytes(payload)))


@settings(max_examples=300)
@given(st.lists(event, max_size=4))
@example([{"type": "BlockStored", "block_hashes": [], "token_ids": [], "block_size": 1}])
def test_no_event_breaks_anything(events: list[Any]) -> None:
    sound(told(*events))


def sound(batch: Batch) -> None:
    """What the rest of the house may rely on."""
    rekey = Rekey("q")
    rekey.apply(batch, 0)
    rekey.take()
    assert len(rekey) <= sum(len(one.hashes) for one in batch.events if isinstance(one, Stored))
    for one in batch.events:
        if isinstance(one, Stored):
            assert 0 < one.block_tokens <= BLOCK_TOKENS_MAX
            assert not one.tokens or len(one.tokens) == len(one.hashes) * one.block_tokens or one.windowed
            assert not one.extras or len(one.extras) == len(one.hashes)
        if isinstance(one, Stored | Removed):
            assert all(isinstance(name, int | bytes) for name in one.hashes)
            assert 0 <= one.group < GROUPS_MAX
            assert len(one.medium) <= NAME_CHARS_MAX
