"""The tokeniser and the texts: counts that agree with themselves, and prefixes that stay prefixes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maitred.twin import tokens
from maitred.twin.book import Book

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@given(TEXTS)
def test_ids_give_the_text_back(text: str) -> None:
    packed = tokens.encode(text)
    assert tokens.decode(packed) == text
    assert tokens.pack(tokens.ids(packed)) == packed
    assert tokens.count(packed) == len(tokens.ids(packed)) == -(-len(text.encode()) // 4)


@given(TEXTS, TEXTS)
def test_a_conversation_goes_on_from_its_prompt_and_answer(asked: str, more: str) -> None:
    prompt = tokens.conversation([("user", asked)])
    plan = Book(seed=1, mean_tokens=20).plan(prompt, 0, 50)
    turn = [("user", asked), ("assistant", plan.text.decode()), ("user", more)]
    assert tokens.conversation(turn).startswith(prompt + plan.text)


@given(TEXTS, TEXTS, st.integers(1, 8))
def test_equal_keys_mean_equal_text_up_to_there(one: str, other: str, block: int) -> None:
    a, b = tokens.encode(one * 9), tokens.encode(other * 9)
    keys_a, keys_b = tokens.block_keys(a, block), tokens.block_keys(b, block)
    assert len(keys_a) == tokens.count(a) // block
    for n, (key_a, key_b) in enumerate(zip(keys_a, keys_b, strict=False), 1):
        assert (key_a == key_b) == (a[: 4 * block * n] == b[: 4 * block * n])


def test_salts_share_no_keys() -> None:
    packed = tokens.encode("word " * 100)
    sets = [set(tokens.block_keys(packed, 16, root)) for root in ("", "a", "b")]
    assert all(len(keys) == 7 for keys in sets)
    assert len(set.union(*sets)) == 21


def test_a_root_is_no_key_of_numbers_beyond_64_bits() -> None:
    assert all(0 <= key < 2**64 for key in tokens.block_keys(tokens.encode("word " * 400), 1, "salt"))


@given(st.binary(), st.integers(), st.integers(1, 500))
def test_answers_are_as_long_as_they_say(prompt: bytes, nth: int, most: int) -> None:
    book = Book(seed=3, mean_tokens=100)
    plan = book.plan(prompt, nth, most)
    assert plan == book.plan(prompt, nth, most)
    assert len(plan.text) == 4 * plan.tokens
    assert tokens.encode(plan.text.decode()) == plan.text
    assert 1 <= plan.tokens <= most
    assert plan.finish == ("stop" if 50 <= plan.tokens <= 150 and plan.tokens < most else plan.finish)
    endless = book.plan(prompt, nth, most, endless=True)
    assert (endless.tokens, endless.finish) == (most, "length")


def test_answers_may_be_longer_than_the_page() -> None:
    plan = Book(seed=3, mean_tokens=100).plan(b"x", 0, 100_000, endless=True)
    assert len(plan.text) == 400_000


@pytest.mark.parametrize("ids", [[-1], [2**32]])
def test_ids_out_of_range_are_refused(ids: list[int]) -> None:
    with pytest.raises(struct.error):
        tokens.pack(ids)
