"""Prompts: what is shared has the same ids, and what is longest is known."""

from __future__ import annotations

from itertools import count, islice, pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maitred.sim.lengths import Fixed, Uniform
from maitred.sim.prompts import Alone, Answers, Conversations, Groups, Prompts, Script

ANSWERS = Answers(Uniform(10, 50))
THINKING = Answers(Uniform(10, 50), Uniform(100, 200))


def scripts(prompts: Prompts, number: int, answers: Answers = ANSWERS, seed: int = 1) -> list[Script]:
    return list(islice(prompts.scripts(answers, Random(seed), count(1)), number))


@given(
    st.sampled_from(
        [
            Alone(Uniform(1, 100)),
            Groups(3, 4, Uniform(100, 200), Uniform(10, 20), "uniform"),
            Conversations(Uniform(1, 5), Uniform(10, 20), Fixed(300), 100),
        ]
    ),
    st.sampled_from([ANSWERS, THINKING]),
    st.integers(0, 2**32),
)
def test_lengths_add_up_and_answers_are_told_apart(prompts: Prompts, answers: Answers, seed: int) -> None:
    found = [turn for script in scripts(prompts, 20, answers, seed) for turn in script]
    for turn in found:
        assert turn.prompt_tokens == sum(tokens for _, tokens in turn.prompt)
        assert turn.prompt_tokens + turn.output_tokens <= prompts.longest_tokens(answers)
        assert 10 <= turn.output_tokens <= answers.tokens_max
    assert len({turn.answer for turn in found}) == len(found)
    assert scripts(prompts, 20, answers, seed) == scripts(prompts, 20, answers, seed)


def test_prompts_alone_share_nothing() -> None:
    ids = [id_ for script in scripts(Alone(Fixed(7)), 50) for turn in script for id_, _ in turn.prompt]
    assert len(set(ids)) == 50


def test_groups_in_turn_take_every_prompt_once_a_round_in_one_shuffled_order() -> None:
    found = [turn.prompt for [turn] in scripts(Groups(6, 4, Fixed(64), Fixed(16)), 48)]
    assert len(set(found[:24])) == 24
    assert all(first is second for first, second in zip(found[:24], found[24:], strict=True))
    shared = [prompt[0] for prompt in found[:24]]
    assert all(shared.count(piece) == 4 for piece in shared)
    assert shared != sorted(shared)


def test_groups_taken_at_random_come_again_before_all_were_there() -> None:
    found = [turn.prompt for [turn] in scripts(Groups(6, 4, Fixed(64), Fixed(16), "uniform"), 24)]
    assert 10 < len(set(found)) < 24


def test_a_turn_brings_back_all_that_was_said() -> None:
    first, second = scripts(Conversations(Fixed(3), Fixed(20), Fixed(500), 1000), 2)
    assert first[0].prompt[0] == second[0].prompt[0]
    assert [tokens for _, tokens in first[0].prompt] == [1000, 500]
    for before, after in pairwise(first):
        answer = (before.answer, before.output_tokens)
        assert after.prompt[:-1] == (*before.prompt, answer)
        assert after.prompt[-1][1] == 20


def test_what_was_thought_is_not_sent_again() -> None:
    [script] = scripts(Conversations(Fixed(2), Fixed(20)), 1, Answers(Fixed(30), Fixed(400)))
    before, after = script
    assert before.output_tokens == 430
    assert [tokens for _, tokens in after.prompt] == [20, 30, 20]
    assert after.prompt[1][0] != before.answer


def test_the_longest_is_reached_where_lengths_are_fixed() -> None:
    prompts = Conversations(Fixed(4), Fixed(20), Fixed(500), 1000)
    answers = Answers(Fixed(30), Fixed(400))
    [script] = scripts(prompts, 1, answers)
    assert script[-1].prompt_tokens + script[-1].output_tokens == prompts.longest_tokens(answers)


def test_bounds() -> None:
    with pytest.raises(ValueError, match=r"^groups x per_group must be at most 1,000,000$"):
        Groups(1001, 1000, Fixed(1), Fixed(1))
    with pytest.raises(ValueError, match=r"^turns must be at most 1,000$"):
        Conversations(Fixed(1001), Fixed(1))
