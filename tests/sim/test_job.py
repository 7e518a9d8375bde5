"""Block keys: equal exactly where all the text up to there is equal."""

from __future__ import annotations

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from maitred.sim.job import Chain, Segments, block_keys

SEGMENTS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40)), max_size=5).map(tuple)
BLOCK = 8


def text(segments: Segments) -> list[tuple[int, int]]:
    """The text itself: each token is known by its piece and its place in it."""
    return [(segment, place) for segment, tokens in segments for place in range(tokens)]


@given(SEGMENTS, SEGMENTS)
def test_keys_are_equal_as_long_as_the_texts_are(one: Segments, other: Segments) -> None:
    blocks = [
        (text(one)[: end * BLOCK] == text(other)[: end * BLOCK])
        for end in range(1, 1 + min(len(text(one)), len(text(other))) // BLOCK)
    ]
    keys, others = block_keys(one, BLOCK), block_keys(other, BLOCK)
    assert len(keys) == len(text(one)) // BLOCK
    equal = [key == theirs for key, theirs in zip(keys, others, strict=False)]
    # Equal texts in other pieces may have unequal keys; the reverse never happens.
    assert all(same for same, keys_same in zip(blocks, equal, strict=True) if keys_same)
    if one == other:
        assert all(equal)


def test_what_is_shared_has_the_same_keys_and_no_more() -> None:
    one, other = block_keys(((1, 20), (2, 20)), BLOCK), block_keys(((1, 20), (3, 20)), BLOCK)
    assert one[:2] == other[:2]
    assert not set(one[2:]) & set(other[2:])


def test_another_root_shares_nothing() -> None:
    assert not set(block_keys(((1, 80),), BLOCK)) & set(block_keys(((1, 80),), BLOCK, root=7))


def test_a_copy_goes_on_by_itself() -> None:
    chain = Chain(BLOCK)
    chain.add(1, 12)
    copy = chain.copy()
    copy.add(2, 12)
    chain.add(3, 12)
    assert copy.keys == block_keys(((1, 12), (2, 12)), BLOCK)
    assert chain.keys == block_keys(((1, 12), (3, 12)), BLOCK)


def test_keys_are_the_same_in_every_process() -> None:
    code = "from maitred.sim.job import block_keys; print(block_keys(((1, 20), (2, 30)), 8))"
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert said.stdout.strip() == str(block_keys(((1, 20), (2, 30)), BLOCK))
