"""What of a guess is believed: what was found lately, where anything ever was."""

from __future__ import annotations

from typing import Any

import pytest

from maitred.core.kept import THOUGHT_MIN, learn
from maitred.core.words import Leg, Usage
from tests.core.places import endpoint, ticket

MUCH = int(THOUGHT_MIN)


def leg(**more: Any) -> Leg:
    return Leg(1, ticket(), more.pop("where", None) or endpoint("a"), 0, 1, 0.0, **more)


def believed(one: Leg) -> int:
    """Tokens of its prompt that are reckoned to be there."""
    return int(one.thought * one.endpoint.kept)


def test_half_is_believed_where_half_was_found() -> None:
    one = leg(thought=MUCH)
    assert believed(one) == MUCH
    learn(one, Usage(2 * MUCH, MUCH // 2))
    assert believed(one) == MUCH // 2
    for _ in range(2000):
        learn(one, Usage(2 * MUCH, 2 * MUCH))
    assert believed(one) == pytest.approx(MUCH, abs=2)
    assert one.endpoint.kept <= 1


def test_a_few_tokens_teach_nothing() -> None:
    one = leg(thought=MUCH // 2)
    learn(one, Usage(MUCH, 1))
    assert one.endpoint.kept == 1
    learn(one, Usage(MUCH, 1))
    learn(one, Usage(MUCH, 1))
    assert one.endpoint.kept < 0.01


def test_an_engine_that_reports_nothing_is_not_taken_at_that() -> None:
    one = leg(thought=MUCH)
    for _ in range(9):
        learn(one, Usage(MUCH, 0))
    assert believed(one) == MUCH


def test_what_an_engine_tells_teaches_nothing_of_guesses() -> None:
    one = leg(thought=MUCH, exact=True)
    learn(one, Usage(MUCH, 1))
    assert one.endpoint.thought == 0


def test_an_answer_of_the_engine_before_teaches_nothing() -> None:
    one = leg(thought=MUCH, where=endpoint("a", incarnation=1))
    learn(one, Usage(MUCH, 1))
    assert one.endpoint.thought == 0
