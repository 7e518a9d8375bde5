"""What was generated is paid, by whoever asked for it, once; what was set aside comes back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from maitred.config.flow import Budget, Price, Tenant
from maitred.core.holders import Holder
from tests.net.http import post, turns
from tests.proxy.faults import ERROR_BODY
from tests.proxy.place import ASKS_USAGE, CHAT, STREAM, WHOLE, Place, chat, in_virtual_time, serving
from tests.proxy.upstream import (
    ERROR,
    GOOD,
    GOOD_STREAM,
    LAST,
    ROLE,
    SILENCE,
    End,
    Plan,
    stream,
    whole,
    word,
)

WORDS = 50
BUDGET = 2000
LONG: Plan = [*stream(ROLE, *[word(f"w{n} ") for n in range(WORDS)], end=()), 1e6]
"""Fifty tokens, then silence."""


def limited(**budget: Any) -> dict[str, Any]:
    return {"tenants": {"anonymous": Tenant(budget=Budget(**budget))}}


def holder(place: Place) -> Holder:
    return place.app.house.gateway.limiter._holders["tenant anonymous"]


async def cut_off(place: Place, number: int) -> bool:
    """Ask for a long stream and leave it after what there is of it; False when it was refused."""
    client = await place.client()
    client.send(post(CHAT, chat(stream=True, max_tokens=4000, seed=number)))
    while not client.received:
        await asyncio.sleep(0.01)
    if b" 429 " in client.received[:20]:
        assert (await client.answer()).outcome == "quota_spent"
        return False
    await client.heard(b"w%d " % (WORDS - 1))
    client.leave()
    await turns(10)
    return True


class TestWhoLeavesPays:
    """B86: BerriAI/litellm#33736, BerriAI/litellm#13245, BerriAI/litellm#36008, BerriAI/litellm#30522,
    maximhq/bifrost#6972.

    Who left before the last event paid nothing, or what had been set aside for him stayed so for ever.
    """

    @in_virtual_time()
    async def test_leaving_again_and_again_spends_the_budget_and_no_more(self) -> None:
        async with serving(LONG, **limited(tokens_per_day=BUDGET)) as place:
            for number in range(BUDGET):
                if not await cut_off(place, number):
                    break
                assert (holder(place).running, holder(place).reserved_tokens) == (0, 0)
            lines = [line for line in place.lines if line["outcome"] == "client_gone"]
            assert {line["output_tokens"] for line in lines} == {WORDS}
            spent = holder(place).spent.tokens_per_day
            assert spent == sum(line["prompt_tokens"] + line["output_tokens"] for line in lines)
            assert BUDGET - 400 <= spent <= BUDGET  # less than what the next would be thought to take is left

    @pytest.mark.parametrize(
        ("request_", "plans", "tokens"),
        [
            (WHOLE, [GOOD], 7),
            (STREAM, [GOOD_STREAM], 7),
            (ASKS_USAGE, [GOOD_STREAM], 7),
            (WHOLE, [[whole(ERROR_BODY, status=500)], GOOD], 7),
            (WHOLE, [[End.RESET], GOOD], 7),
            (STREAM, [[*stream(ROLE, ERROR, end=()), LAST], GOOD_STREAM], 7),
            (WHOLE, [[whole(ERROR_BODY, status=500)]], 0),
            (WHOLE, [[whole(ERROR_BODY, status=429)]], 0),
            (WHOLE, [[whole(ERROR_BODY, status=400)]], 0),
            (STREAM, [[*stream(ROLE, end=()), LAST]], 0),
        ],
        ids=[
            "whole", "stream", "usage asked for", "second attempt", "second after a reset",
            "second after an event", "failed", "overloaded", "refused", "no content",
        ],
    )  # fmt: skip
    @in_virtual_time()
    async def test_the_account_is_what_the_engine_told_of_the_answer(
        self, request_: bytes, plans: list[Plan], tokens: int
    ) -> None:
        async with serving(*plans, kitchens=2, **limited(tokens_per_day=100_000)) as place:
            await place.drop_idle()
            await place.ask(request_)
            await turns(10)
            assert holder(place).spent.tokens_per_day == holder(place).spent.tokens_per_month == tokens
            assert (holder(place).running, holder(place).reserved_tokens) == (0, 0)

    @pytest.mark.parametrize(
        ("plan", "words"),
        [
            ([*stream(ROLE, *[word("w ")] * 20, end=()), 0.1, End.RESET], 20),
            ([*stream(ROLE, *[word("w ")] * 20, ERROR, end=()), LAST], 21),  # events are counted
            (stream(ROLE, *[word("w ")] * 20), 20),
        ],
        ids=["reset", "error", "truncated"],
    )
    @in_virtual_time()
    async def test_what_came_of_an_answer_that_broke_off_is_paid(self, plan: Plan, words: int) -> None:
        async with serving(plan, **limited(tokens_per_day=100_000)) as place:
            await place.ask(STREAM)
            await turns(10)
            (line,) = place.lines
            assert line["output_tokens"] == words
            prompt = len(chat(stream=True)) // 4  # as it was estimated
            assert holder(place).spent.tokens_per_day == words + prompt
            assert holder(place).reserved_tokens == 0

    @in_virtual_time()
    async def test_many_of_all_kinds_add_up(self) -> None:
        """The account is the sum of what was told of each; nothing is left set aside."""
        ways: list[Plan] = [GOOD_STREAM, LONG, [End.RESET], stream(ROLE, word("w")), SILENCE, GOOD_STREAM]
        async with serving(GOOD, kitchens=2, **limited(tokens_per_day=10_000_000)) as place:
            for number in range(60):
                place.menu.set(ways[number % len(ways)], GOOD_STREAM)
                client = await place.client()
                client.send(post(CHAT, chat(stream=True, seed=number)))
                await asyncio.sleep(0.5)
                client.leave()
                await turns(10)
            told = [line.get("prompt_tokens", 0) + line.get("output_tokens", 0) for line in place.lines]
            silent = [
                line
                for line in place.lines
                if line["outcome"] == "client_gone" and "output_tokens" not in line
            ]
            assert len(told) == 60
            assert len(silent) == 10
            spent = holder(place).spent.tokens_per_day
            assert sum(told) < spent <= sum(told) + 40 * len(silent)  # who left in silence pays the prompt
            assert (holder(place).running, holder(place).reserved_tokens) == (0, 0)

    @in_virtual_time()
    async def test_a_budget_of_money_is_spent_by_who_leaves_as_well(self) -> None:
        model = {"price": Price(output=1_000_000)}  # a micro-unit a token
        async with serving(LONG, model=model, **limited(usd_per_day=1000)) as place:
            for number in range(1000):
                if not await cut_off(place, number):
                    break
            assert 10 <= number < 30
            assert holder(place).spent.money_per_day == WORDS * number
