"""What is learned: lengths of answers, the pace of a queue, how many repeats may be."""

from __future__ import annotations

from random import Random

import pytest

from maitred.core.predict import (
    MEMORY_S,
    MODELS_MAX,
    OUTPUT_GUESS,
    PREDICTED_MAX,
    RETRY_FLOOR,
    WINDOW_S,
    Answers,
    Outputs,
    Pace,
    RetryBudget,
)

# -- lengths ----------------------------------------------------------------------------------------


def test_an_answer_of_which_nothing_is_known_is_guessed_then_taken_from_the_others() -> None:
    outputs = Outputs()
    assert outputs["t"] == OUTPUT_GUESS
    outputs.seen("t", 50)
    assert outputs["t"] == 50.0
    assert outputs["new"] == pytest.approx(50.0, rel=0.03)


def test_what_is_thought_of_new_tenants_moves_with_the_first_answers_of_others() -> None:
    outputs = Outputs()
    for number in range(200):
        outputs.seen(f"t{number}", 10 if number < 2 else 4000)
    assert outputs["new"] > 3000


def test_three_answers_of_four_are_no_longer_than_predicted() -> None:
    outputs, random = Outputs(), Random(3)
    longer = 0
    for number in range(6000):
        tokens = int(random.lognormvariate(5.0, 1.0))
        longer += number >= 1000 and tokens > outputs["t"]
        outputs.seen("t", tokens)
    assert longer / 5000 == pytest.approx(0.25, abs=0.03)


def test_tenants_are_predicted_apart() -> None:
    outputs = Outputs()
    for _ in range(100):
        outputs.seen("short", 10)
        outputs.seen("long", 4000)
    assert outputs["short"] < 20
    assert outputs["long"] > 2000
    assert outputs["new"] > 500  # three of four of all


def test_what_is_rememberedof_tenants_is_bounded() -> None:
    outputs = Outputs()
    for number in range(2 * PREDICTED_MAX):
        outputs.seen(f"t{number}", 10)
    assert len(outputs) == PREDICTED_MAX


def test_what_is_remembered_of_models_is_bounded() -> None:
    answers = Answers()
    for number in range(2 * MODELS_MAX):
        answers[f"m{number}"].seen("t", number)
    assert list(answers) == [f"m{number}" for number in range(MODELS_MAX, 2 * MODELS_MAX)]


def test_an_empty_answer_predicts_no_nothing() -> None:
    outputs = Outputs()
    for _ in range(1000):
        outputs.seen("t", 0)
    assert 0.9 < outputs["t"] <= 1.0


# -- pace -------------------------------------------------------------------------------------------


def seats(pace: Pace, at: float, count: int, every_s: float) -> float:
    """So many are seated while others wait; when the last one was."""
    pace.begin(at)
    for _ in range(count):
        at += every_s
        pace.seated(at)
    return at


def test_a_pace_is_known_after_some_seats() -> None:
    pace = Pace()
    assert pace.seat_s(0.0) is None
    at = seats(pace, 0.0, 3, 0.5)
    assert pace.seat_s(at) is None  # the first ones have faded a little
    at = seats(pace, at, 1, 0.5)
    assert pace.seat_s(at) == pytest.approx(0.5)


def test_a_pace_follows_within_some_of_its_memory() -> None:
    pace = Pace()
    at = seats(pace, 0.0, 100, 0.1)
    at = seats(pace, at, 60, 0.5)  # three times its memory
    assert at > 3 * MEMORY_S
    assert pace.seat_s(at) == pytest.approx(0.5, rel=0.2)


def test_a_queue_that_stands_still_gets_slower_by_the_second() -> None:
    pace = Pace()
    at = seats(pace, 0.0, 10, 0.1)
    assert pace.seat_s(at + 0.05) == pytest.approx(0.1)
    assert (pace.seat_s(at + 60.0) or 0.0) > 5.0


def test_a_slow_queue_gets_known() -> None:
    pace = Pace()
    at = seats(pace, 0.0, 6, 6 * MEMORY_S)
    assert pace.seat_s(at) == pytest.approx(6 * MEMORY_S)


def test_time_in_which_nobody_waits_is_no_pace() -> None:
    pace = Pace()
    at = seats(pace, 0.0, 10, 0.1)
    at = seats(pace, at + 3600.0, 1, 0.1)
    assert pace.seat_s(at) == pytest.approx(0.1)
    pace.begin(None)
    pace.seated(at + 3600.0)
    assert pace.seat_s(at + 3600.0) == pytest.approx(0.1)


def test_the_wait_of_a_single_one_mends_an_old_pace() -> None:
    pace = Pace()
    at = seats(pace, 0.0, 10, 2.0)
    for _ in range(300):  # never two at once: each is the first and the last
        at += 1.0
        pace.begin(at)
        pace.seated(at + 0.1)
    assert (pace.seat_s(at) or 0.0) < 0.3


# -- repeats ----------------------------------------------------------------------------------------


def taken(budget: RetryBudget, now: float, asked: int = 1000) -> int:
    return sum(budget.take(now) for _ in range(asked))


def asked(budget: RetryBudget, now: float, requests: int) -> None:
    for _ in range(requests):
        budget.request(now)


def test_repeats_are_a_tenth_of_the_requests_and_some_more() -> None:
    budget = RetryBudget()
    asked(budget, 100.0, 500)
    assert taken(budget, 100.0) == RETRY_FLOOR + 50
    asked(budget, 101.0, 100)
    assert taken(budget, 101.0) == 10


def test_a_window_later_there_are_new_repeats() -> None:
    budget = RetryBudget()
    asked(budget, 100.0, 500)
    assert taken(budget, 100.0) == 60
    asked(budget, 105.0, 500)
    assert taken(budget, 105.0) == 50
    asked(budget, 100.0 + WINDOW_S, 300)
    assert taken(budget, 100.0 + WINDOW_S) == 30  # what was taken just before counts yet
    assert taken(budget, 100.0 + 3 * WINDOW_S) == RETRY_FLOOR


def test_requests_of_long_ago_buy_no_repeats() -> None:
    budget = RetryBudget()
    asked(budget, 100.0, 500)
    assert taken(budget, 100.0 + 2 * WINDOW_S) == RETRY_FLOOR


def test_the_requests_of_a_long_peace_buy_no_more_than_those_of_its_last_seconds() -> None:
    budget = RetryBudget()
    for second in range(3600):
        asked(budget, 100.0 + second, 10)
    assert RETRY_FLOOR + 10 <= taken(budget, 3700.0) <= RETRY_FLOOR + 20
