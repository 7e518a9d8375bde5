"""What requests say: how long it is, what of it is shared, and what was answered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maitred.bench.text import ANSWER_BYTES_MAX, Texts
from maitred.sim.arrival import Arrival
from tests.bench.place import arrival

ids = st.integers(1, 2**50)


def conversation(turn: int, *, system: bool = False) -> Arrival:
    """A turn of a conversation; pieces of 10 tokens: perhaps a system prompt, then questions and answers."""
    pieces = [(90, 10)] if system else []
    for number in range(1, turn):
        pieces += [(10 * number, 10), (10 * number + 1, 10)]
    pieces.append((10 * turn, 10))
    return Arrival(
        turn, 0.0, "m", tuple(pieces), 10 * len(pieces), 10, 10 * turn + 1, conversation=1, turn=turn
    )


@given(ids, st.integers(1, 200_000), st.integers(0, 2**70))
def test_a_piece_has_its_length_and_stands_in_json_as_it_is(segment: int, tokens: int, salt: int) -> None:
    text = Texts(salt=salt).piece(segment, tokens)
    assert len(text) == 4 * tokens
    assert not text.strip(b"abcdefghijklmnopqrstuvwxyz ")


@given(ids, st.integers(1, 100_000), st.integers(1, 100_000))
def test_a_shorter_piece_is_the_begin_of_a_longer_one(segment: int, short: int, long: int) -> None:
    texts = Texts()
    assert texts.piece(segment, short + long).startswith(texts.piece(segment, short))


def test_pieces_differ_from_their_first_words_on() -> None:
    texts, others = Texts(salt=1), Texts(salt=2)
    begins = {texts.piece(segment, 16)[:40] for segment in range(10_000)}
    assert len(begins) == 10_000
    assert not begins & {others.piece(segment, 16)[:40] for segment in range(10_000)}
    assert texts.piece(5, 100) == Texts(salt=1).piece(5, 100)


@pytest.mark.parametrize("bytes_per_token", [1.0, 4.5, 5.9])
def test_a_server_decides_how_many_bytes_a_token_has(bytes_per_token: float) -> None:
    assert len(Texts(bytes_per_token).piece(1, 1000)) == round(1000 * bytes_per_token)


def test_what_a_group_shares_is_the_same_bytes() -> None:
    texts = Texts()
    one, two = (texts.messages(Arrival(n, 0.0, "m", ((7, 100), (100 + n, 20)), 120, 1, 0)) for n in (1, 2))
    assert [role for role, _ in one] == [b"user"]
    assert one[0][1][:400] == two[0][1][:400]
    assert one[0][1][400:] != two[0][1][400:]
    assert texts.prompt(arrival(3, prompt=25)) == texts.piece(3, 25)


@pytest.mark.parametrize("system", [False, True])
def test_a_conversation_is_messages(system: bool) -> None:
    told = [b"system"] if system else []
    texts = Texts()
    for turn in range(1, 4):
        messages = texts.messages(conversation(turn, system=system))
        assert [role for role, _ in messages] == told + [b"user", b"assistant"] * (turn - 1) + [b"user"]
        before = texts.messages(conversation(turn + 1, system=system))
        assert before[: len(messages)] == messages, "each turn begins with all that was said"


def test_what_was_answered_is_sent_back() -> None:
    texts = Texts()
    texts.answered(conversation(1), 'she said "yes"\n')
    messages = texts.messages(conversation(3))
    assert messages[1] == (b"assistant", rb"she said \"yes\"\n")
    assert messages[3] == (b"assistant", texts.piece(21, 10)), "of the second nothing is known"
    texts.forget(1)
    texts.forget(1)
    assert texts.messages(conversation(2))[1] == (b"assistant", texts.piece(11, 10))


@pytest.mark.parametrize("text", ["", "x" * (ANSWER_BYTES_MAX + 1)])
def test_answers_that_cannot_be_sent_back_have_a_stand_in(text: str) -> None:
    texts = Texts()
    texts.answered(conversation(1), text)
    assert texts.messages(conversation(2))[1] == (b"assistant", texts.piece(11, 10))
