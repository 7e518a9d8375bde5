"""Limits: check all, then take; settled by what was used; each refusal says which limit and how long."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maitred.core import limiter
from maitred.core.buckets import Level
from maitred.core.holders import Hold, Party, tightest
from maitred.core.limiter import Limiter
from maitred.core.limits import (
    FREE,
    UNLIMITED,
    Accounts,
    Charge,
    Charges,
    Levels,
    Limits,
    Periods,
    Price,
    Spent,
)
from maitred.core.outcome import Outcome, Refusal
from maitred.core.words import Usage

NAME = "tenant team-a"
DAY = Periods(day=100, month=10, day_ends_at=1000.0, month_ends_at=87_400.0)
PRICE = Price(prompt=150_000, cached=15_000, output=600_000)
"""0.15, 0.015 and 0.60 USD for a million."""


def take(
    book: Limiter,
    limits: Limits,
    prompt: int = 0,
    output: int = 0,
    now: float = 0.0,
    price: Price = FREE,
    name: str = NAME,
) -> Hold:
    return book.take(Party([(name, limits)]), prompt, output, price, now)


def refused(
    book: Limiter,
    limits: Limits,
    prompt: int = 0,
    output: int = 0,
    now: float = 0.0,
    price: Price = FREE,
) -> Refusal:
    with pytest.raises(Refusal) as caught:
        book.take(Party([(NAME, limits)]), prompt, output, price, now)
    return caught.value


def left(book: Limiter, now: float = 0.0) -> list[int | None]:
    levels = tightest([book._holders[NAME]], now)
    assert levels is not None
    each = (levels.requests, levels.tokens, levels.prompt_tokens, levels.output_tokens)
    return [None if level is None else level.remaining for level in each]


def test_a_burst_of_a_minute_s_requests_and_then_their_rate() -> None:
    book, limits = Limiter(), Limits(requests_per_min=3)
    for _ in range(3):
        take(book, limits)
    refusal = refused(book, limits)
    assert (refusal.outcome, refusal.retry_after_s, refusal.wait_s) == (Outcome.RATE_LIMITED, 20.0, 20.0)
    assert refusal.message == "this tenant has 0 left of 3 requests a minute"
    refused(book, limits, now=19.9)
    take(book, limits, now=20.0)


def test_the_wait_is_exact_at_any_instant() -> None:
    book, limits, now = Limiter(), Limits(requests_per_min=1), 86_400.1
    take(book, limits, now=now)
    refusal = refused(book, limits, now=now)
    assert (refusal.retry_after_s, refusal.retryable) == (60.0, True)
    take(book, limits, now=now + 60.0)


@pytest.mark.parametrize("now", [99.7, 86_400.1, 123_456.789])
@pytest.mark.parametrize("rate", range(1, 60))
def test_sums_of_floats_are_not_taken_for_a_wait(rate: int, now: float) -> None:
    book, limits = Limiter(), Limits(requests_per_min=rate)
    for _ in range(rate):
        take(book, limits, now=now)
    wait_s = refused(book, limits, now=now).retry_after_s
    assert wait_s == math.ceil(60_000 / rate) / 1000
    take(book, limits, now=now + wait_s)


def test_tokens_of_three_kinds() -> None:
    limits = Limits(tokens_per_min=100, prompt_tokens_per_min=80, output_tokens_per_min=40)
    for prompt, output, kind in [(70, 31, "tokens"), (81, 0, "prompt tokens"), (0, 41, "output tokens")]:
        refusal = refused(Limiter(), limits, prompt, output)
        assert refusal.outcome is Outcome.RATE_LIMITED
        assert f" {kind} a minute" in refusal.message
    book = Limiter()
    take(book, limits, 60, 40)
    assert left(book) == [None, 0, 20, 0]


def test_a_refusal_names_the_estimate() -> None:  # case B96
    limits = Limits(tokens_per_min=50_000)
    refusal = refused(Limiter(), limits, 629_000, 1_000)
    assert refusal.message == (
        "this tenant has 50000 left of 50000 tokens a minute; "
        "the request is estimated at 629000 prompt and 1000 output tokens"
    )
    assert not refusal.retryable  # it will never fit, however long its client waits


def test_a_debt_stops_only_what_takes_of_it() -> None:
    book, limits = Limiter(), Limits(output_tokens_per_min=10, prompt_tokens_per_min=100)
    book.settle(take(book, limits, 5, 5), Usage(5, 0, 500), now=0.0)
    refused(book, limits, 5, 1)
    assert " prompt tokens a minute" in refused(book, limits, 101, 0).message
    take(book, limits, 5, 0)


def test_requests_at_once() -> None:
    book, limits = Limiter(), Limits(concurrent=2)
    take(book, limits)
    hold = take(book, limits)
    refusal = refused(book, limits)
    assert (refusal.outcome, refusal.wait_s) == (Outcome.CONCURRENCY_LIMITED, 1.0)
    assert refusal.message == "this tenant has 2 of 2 requests running or waiting"
    book.settle(hold, Usage(0, 0, 0), now=0.0)
    take(book, limits)


def test_a_refused_request_costs_nothing() -> None:  # case B23
    book, limits = Limiter(), Limits(requests_per_min=2, tokens_per_min=100, concurrent=1)
    running = take(book, limits, 10)
    assert refused(book, limits, 10).outcome is Outcome.CONCURRENCY_LIMITED
    book.settle(running, Usage(10, 0, 0), now=0.0)
    assert left(book)[:2] == [1, 90]
    take(book, limits, 10)


def test_a_holder_that_could_takes_nothing_when_another_cannot() -> None:  # case B23
    book, roomy = Limiter(), Limits(requests_per_min=5, tokens_per_day=1000)
    holders = [(NAME, roomy), ("key k", Limits(requests_per_min=1)), ("model m", UNLIMITED)]
    hold = book.take(Party(holders), 10, 0, FREE, 0.0)
    with pytest.raises(Refusal, match="this key has 0 left of 1 requests a minute") as caught:
        book.take(Party(holders), 10, 0, FREE, 0.0)
    assert left(book)[0] == 4
    assert hold.levels(0.0) == caught.value.levels == Levels(requests=Level(1, 0, 60.0))
    assert caught.value.whose == "key"


def test_what_lasts_longest_is_named() -> None:
    book, limits = Limiter(), Limits(requests_per_min=2, tokens_per_min=60, concurrent=2, tokens_per_day=80)
    hold = take(book, limits, 20)
    assert refused(book, limits, 59).retry_after_s == 19.0
    take(book, limits, 20)
    assert refused(book, limits, 20).retry_after_s == 30.0
    assert refused(book, limits, 60).retry_after_s == 40.0
    assert refused(book, limits, 81).outcome is Outcome.QUOTA_SPENT
    book.settle(hold, Usage(20, 0, 0), now=0.0)


def test_settling_replaces_the_estimate() -> None:
    book, limits = Limiter(), Limits(tokens_per_min=100, tokens_per_day=1000)
    hold = take(book, limits, 10, 90)
    assert left(book)[1] == 0
    book.settle(hold, Usage(12, 0, 8), now=0.0)
    assert left(book)[1] == 80
    book.settle(take(book, limits, 10, 10), Usage(10, 0, 170), now=0.0)
    assert refused(book, limits, 1).retry_after_s == pytest.approx(101 * 0.6)
    assert book.spent(NAME).tokens_per_day == 200


def test_nothing_is_saved_up_beyond_a_minute() -> None:
    book, limits = Limiter(), Limits(tokens_per_min=600)
    hold = take(book, limits, 600)
    book.settle(hold, Usage(0, 0, 0), now=300.0)
    take(book, limits, 600, now=300.0)
    assert left(book, 300.0)[1] == 0


def test_what_was_used_beyond_the_estimate_is_taken_when_it_is_known() -> None:
    book, limits = Limiter(), Limits(tokens_per_min=600)
    hold = take(book, limits, 10)
    book.settle(hold, Usage(100, 0, 0), now=300.0)
    assert left(book, 300.0)[1] == 510


def test_who_leaves_pays_what_was_generated_and_the_prompt() -> None:  # case B86
    book, limits = Limiter(), Limits(tokens_per_day=5000)
    book.settle(take(book, limits, 100, 4000), Usage(0, 0, 16, exact=False), now=0.0)
    assert book.spent(NAME).tokens_per_day == 116
    take(book, limits, 100, 4000)


def test_leaving_again_and_again_spends_the_budget() -> None:  # case B86
    book, limits = Limiter(), Limits(tokens_per_day=5000)
    for _ in range(19):
        book.settle(take(book, limits, 100, 200), Usage(0, 0, 150, exact=False), now=0.0)
    assert refused(book, limits, 100, 200).outcome is Outcome.QUOTA_SPENT
    assert book.spent(NAME).tokens_per_day == 19 * 250


def test_what_never_ran_is_given_back_whole() -> None:
    book, limits = Limiter(), Limits(2, 100, 100, 100, 1, 1000, 1000, 1000, 1000)
    hold = take(book, limits, 10, 20, price=PRICE)
    book.settle(hold, None, 0.0)
    book.settle(hold, None, 0.0)
    book.settle(hold, Usage(10, 0, 20), now=0.0)
    assert left(book) == [2, 100, 100, 100]
    assert book.spent(NAME) == Spent()
    assert book.charged() == []
    take(book, limits, 100, price=PRICE)


def test_budgets_of_money() -> None:
    book, limits = Limiter(), Limits(money_per_day=2_000_000, money_per_month=3_000_000)
    refusal = refused(book, limits, 14_000_000, 0, price=PRICE)
    assert refusal.message == (
        "this tenant has 2.00 USD left of 2.00 USD a day; "
        "the request is estimated at 14000000 prompt and 0 output tokens, 2.10 USD"
    )
    hold = take(book, limits, 1_000_000, 1_000_000, price=PRICE)
    book.settle(hold, Usage(1_000_000, 500_000, 1_000_001), now=0.0)
    assert book.spent(NAME).money_per_day == 75_000 + 7_500 + 600_001


def test_a_budget_counts_what_still_runs() -> None:
    book, limits = Limiter(), Limits(tokens_per_month=100)
    hold = take(book, limits, 30, 30)
    refusal = refused(book, limits, 30, 30)  # for the moment: it would fit, did the other come to nothing
    assert (refusal.outcome, refusal.wait_s) == (Outcome.RATE_LIMITED, 2.0)
    assert refusal.message == (
        "this tenant has 40 tokens left of 100 tokens a month; "
        "the request is estimated at 30 prompt and 30 output tokens; "
        "what still runs has its estimate set aside, and may turn out to need less"
    )
    book.settle(hold, Usage(30, 0, 0), now=0.0)
    take(book, limits, 30, 30)


def test_what_would_not_fit_beside_nothing_is_out_of_quota() -> None:
    book, limits = Limiter(), Limits(tokens_per_month=100, tokens_per_day=90)
    book.settle(take(book, limits, 50), Usage(50, 0, 0), now=0.0)
    take(book, limits, 30)
    assert refused(book, limits, 40).outcome is Outcome.RATE_LIMITED
    assert refused(book, limits, 41).outcome is Outcome.QUOTA_SPENT
    holders = [(NAME, limits), ("key k", Limits(tokens_per_day=39))]
    with pytest.raises(Refusal, match="this key has 39 tokens left of 39 tokens a day") as caught:
        book.take(Party(holders), 40, 0, FREE, 0.0)
    assert caught.value.outcome is Outcome.QUOTA_SPENT


def test_a_spent_budget_refuses_what_costs_nothing() -> None:
    book, limits = Limiter(), Limits(tokens_per_day=10)
    book.settle(take(book, limits, 10), Usage(10, 0, 0), now=0.0)
    refused(book, limits)


def test_a_day_and_a_month_end_by_themselves() -> None:
    book, limits = Limiter(), Limits(tokens_per_day=100, tokens_per_month=300)
    book.follow(DAY)
    for now in (0.0, 1000.0):
        book.settle(take(book, limits, 100, now=now), Usage(100, 0, 0), now=now)
        refused(book, limits, 1, now=now)
    assert book.spent(NAME) == Spent(tokens_per_day=100, tokens_per_month=200)
    book.settle(take(book, limits, 100, now=87_400.0), Usage(100, 0, 0), now=87_400.0)
    book.settle(take(book, limits, 50, now=173_800.0), Usage(50, 0, 0), now=173_800.0)
    assert book.spent(NAME) == Spent(tokens_per_day=50, tokens_per_month=150)


def test_who_tells_the_day_late_changes_nothing() -> None:
    book, limits = Limiter(), Limits(tokens_per_day=100)
    book.follow(DAY)
    book.settle(take(book, limits, 60, now=1000.5), Usage(60, 0, 0), now=1000.5)
    book.follow(Periods(101, 10, 87_400.0, 87_400.0))
    book.follow(DAY)  # nor does a clock that was put back
    assert book.spent(NAME).tokens_per_day == 60
    book.follow(Periods(102, 11, 200_000.0, 300_000.0))
    assert book.spent(NAME) == Spent()


def test_charges_are_told_once_and_by_day() -> None:
    book, limits = Limiter(), Limits(tokens_per_day=1000)
    book.follow(DAY)
    for now in (0.0, 1.0, 1001.0):
        book.settle(take(book, limits, 10, now=now, price=PRICE), Usage(10, 0, 5), now=now)
    assert book.charged() == [
        Charges(100, 10, {NAME: Charge(30, 10)}),
        Charges(101, 10, {NAME: Charge(15, 5)}),
    ]
    assert book.charged() == []


def test_what_was_spent_elsewhere_counts_in_its_period() -> None:
    book, limits = Limiter(), Limits(tokens_per_day=100, tokens_per_month=1000)
    book.follow(DAY)
    more = {NAME: Spent(10, 20, 30, 40)}
    book.add(Accounts(100, 10, more), 0.0)
    book.add(Accounts(99, 10, more), 0.0)
    book.add(Accounts(69, 9, more), 0.0)
    assert book.spent(NAME) == Spent(10, 40, 30, 80)
    refused(book, limits, 91)
    assert book.charged() == []


def test_new_limits_hold_at_once_and_a_bucket_keeps_its_level() -> None:
    book = Limiter()
    hold = take(book, Limits(tokens_per_min=100, concurrent=5), 60)
    lower = Limits(tokens_per_min=50, requests_per_min=10, concurrent=1)
    assert refused(book, lower, 1).outcome is Outcome.CONCURRENCY_LIMITED
    assert left(book) == [10, 40, None, None]
    book.settle(hold, Usage(50, 0, 0), now=0.0)
    assert left(book) == [10, 50, None, None]


def test_the_same_limits_read_anew_change_nothing() -> None:  # as in a replay, where all are
    book = Limiter()
    (holder,) = take(book, Limits(requests_per_min=7, tokens_per_day=9)).holders
    buckets = holder.buckets
    take(book, Limits(requests_per_min=7, tokens_per_day=9))
    assert holder.buckets is buckets
    take(book, Limits(requests_per_min=8))
    assert holder.buckets is not buckets


def test_holders_that_are_idle_and_full_are_forgotten() -> None:
    book, limits = Limiter(), Limits(requests_per_min=60, concurrent=9)
    running = take(book, limits, name="tenant busy")
    hold = take(book, Limits(tokens_per_day=9), 9, name="tenant with a budget")
    book.settle(hold, Usage(9, 0, 0), now=0.0)
    for number in range(10_000):
        hold = take(book, limits, now=float(number), name=f"tenant {number}")
        book.settle(hold, Usage(0, 0, 0), now=float(number))
    assert len(book._holders) <= limiter.IDLE_MAX + 2
    assert book._holders.keys() > {"tenant busy", "tenant with a budget"}
    book.settle(running, Usage(0, 0, 0), now=0.0)


def test_who_was_forgotten_is_found_anew_and_so_are_those_who_live_by_other_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limiter, "IDLE_MAX", 2)
    book, limits = Limiter(), Limits(requests_per_min=60)
    party = Party([(NAME, limits)])
    book.settle(book.take(party, 0, 0, FREE, 0.0), None, 0.0)
    (holder,) = party.holders
    for name in ("tenant b", "tenant c"):
        book.settle(take(book, limits, now=1.0, name=name), None, 1.0)
    assert NAME not in book._holders
    hold = book.take(party, 0, 0, FREE, 2.0)
    assert hold.holders == [book._holders[NAME]] != [holder]
    take(book, Limits(requests_per_min=2), now=2.0)
    book.take(party, 0, 0, FREE, 2.0)
    assert book._holders[NAME].limits is limits


def test_who_shares_a_crowd_s_holder_leaves_it_once_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limiter, "HOLDERS_MAX", 2)
    monkeypatch.setattr(limiter, "IDLE_MAX", 2)
    book, limits = Limiter(), Limits(requests_per_min=60)
    for name in ("guest a", "guest b"):
        book.settle(take(book, limits, name=name), Usage(0, 0, 0), 0.0)
    late = Party([("guest late", limits)])
    assert book.take(late, 0, 0, FREE, 0.0).holders[0].name == limiter.CROWD
    assert book.take(late, 0, 0, FREE, 9.0).holders[0].name == "guest late"


def test_a_crowd_of_guests_shares_one_holder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limiter, "HOLDERS_MAX", 10)
    book, limits = Limiter(), Limits(requests_per_min=5, tokens_per_day=100)
    for number in range(10):
        book.settle(take(book, limits, 1, name=f"guest {number}"), Usage(1, 0, 0), now=0.0)
    for number in range(5):
        take(book, limits, 1, name=f"guest late-{number}")
    with pytest.raises(Refusal, match="this tenant has 0 left"):
        take(book, limits, 1, name="guest later still")
    take(book, limits, 1, name="guest 3")
    assert len(book._holders) == 11


def test_whom_the_settings_name_a_crowd_never_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limiter, "HOLDERS_MAX", 10)
    book, limits = Limiter(), Limits(tokens_per_day=10)
    for number in range(11):
        book.settle(take(book, limits, 10, name=f"guest {number}"), Usage(10, 0, 0), now=0.0)
    for kind in ("tenant", "key", "model"):
        for name in (f"{kind} a", f"{kind} b"):
            book.settle(take(book, limits, 10, name=name), Usage(10, 0, 0), now=0.0)
    assert len(book._holders) == 17


Steps = list[tuple[str, int, int, int, float]]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["take", "take", "settle", "give_back", "limits"]),
        st.integers(0, 3),
        st.integers(0, 60),
        st.integers(0, 60),
        st.floats(0.0, 20.0),
    ),
    max_size=60,
)
CHOICE = [
    Limits(6, 200, 150, 150, 3, 900, 2000, 900_000, 2_000_000),
    Limits(concurrent=2, tokens_per_day=500),
    Limits(requests_per_min=9, output_tokens_per_min=100, money_per_day=10**9),
]


@given(STEPS)
def test_whatever_happens_counters_return_to_zero_and_the_ledger_is_the_usage(steps: Steps) -> None:  # B86
    book, now, day_used, holds = Limiter(), 0.0, dict[str, list[int]](), list[tuple[Hold, str]]()
    bounds = {f"tenant {number}": CHOICE[number % 3] for number in range(4)}

    def end(index: int, verb: str, prompt: int, output: int) -> None:
        hold, name = holds.pop(index)
        if verb == "give_back":
            book.settle(hold, None, now)
            return
        for _ in range(2):
            book.settle(hold, Usage(prompt, prompt // 2, output), now=now)
        used = day_used.setdefault(name, [0, 0])
        used[0] += prompt + output
        used[1] += PRICE.of(prompt, prompt // 2, output)

    for verb, number, prompt, output, pause_s in steps:
        now += pause_s
        name = f"tenant {number}"
        if verb == "limits":
            bounds[name] = CHOICE[prompt % 3]
        elif verb == "take":
            try:
                hold = book.take(Party([(name, bounds[name])]), prompt, output, PRICE, now)
            except Refusal:
                continue
            assert hold is not None
            holds.append((hold, name))
            assert hold.holders[0].running <= (bounds[name].concurrent or 1000)
        elif holds:
            end(number % len(holds), verb, prompt, output)
    while holds:
        end(0, "settle", 1, 1)
    for name in book._holders:
        holder = book.take(Party([(name, Limits(concurrent=9))]), 0, 0, FREE, now + 1e6)
        assert holder is not None
        (state,) = holder.holders
        assert (state.running, state.reserved_tokens, state.reserved_money) == (1, 0, 0)
        spent = [state.spent.tokens_per_day, state.spent.money_per_day]
        assert spent == day_used.get(name, [0, 0])
    charges = {name: [c.tokens, c.money] for each in book.charged() for name, c in each.by_holder.items()}
    assert charges == day_used
