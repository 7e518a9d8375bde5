"""The assembled gateway: what one part sees reaches whoever tells of it."""

from __future__ import annotations

import asyncio
import logging
import os
from unittest.mock import patch

import pytest
from msgspec import structs

from maitred.config.flow import Budget as BudgetSettings
from maitred.config.flow import Price, Tenant
from maitred.control.watch import LOOKS, PERIOD_S
from maitred.net.virtual import VirtualLoop
from maitred.observe.budgets import Budget
from maitred.observe.exposition import render
from tests.net.http import post
from tests.proxy.place import CHAT, Place, chat, in_virtual_time, serving
from tests.proxy.upstream import MODEL

MINUTE_S = (LOOKS + 1) * PERIOD_S


async def live(seconds: float, held_s: float) -> None:
    """Let so much time pass in which something holds the loop again and again."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    until = loop.time() + seconds
    while loop.time() < until:
        await asyncio.sleep(0.01)
        loop._clock.now += held_s


def found(place: Place) -> set[str]:
    return {finding.kind for finding in place.app.findings.current()}


@in_virtual_time(300.0)
async def test_a_gateway_whose_loop_is_held_all_the_time_says_that_it_is_the_bottleneck() -> None:
    async with serving() as place:
        await live(MINUTE_S, 0.001)
        assert "loop_lag" not in found(place)
        await live(MINUTE_S, 0.05)
        assert "loop_lag" in found(place)
        assert place.app.metrics.loop_lag_max_s > 0.01
        await live(MINUTE_S, 0.0)
        assert "loop_lag" not in found(place)


@in_virtual_time()
async def test_what_a_tenants_budget_in_money_leaves_out_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "maitred")
    async with serving() as place:
        config = place.app.config
        tenants = {"t": Tenant(budget=BudgetSettings(usd_per_day=5))}
        (free,) = config.models
        priced = structs.replace(free, name="priced", price=Price(output=1))
        for models in ((priced,), (free, priced)):
            assert not caplog.messages
            place.app.apply(structs.replace(config, models=models, tenants=tenants))
        assert [message.partition(";")[0] for message in caplog.messages] == [
            f"a tenant's budget in money counts as free what has no price: {free.name}"
        ]
        caplog.clear()
        place.app.apply(config)
        assert not caplog.messages


@in_virtual_time()
async def test_what_requests_spend_of_a_budget_is_in_the_metrics() -> None:
    async with serving(tenants={"anonymous": Tenant(budget=BudgetSettings(tokens_per_day=1000))}) as place:
        assert (await place.ask()).status == 200
        metrics = place.app.metrics
        used = metrics.tenants["anonymous"].prompt_tokens + metrics.tenants["anonymous"].output_tokens
        assert list(metrics.budgets()) == [Budget("tenant", "anonymous", "tokens_per_day", 1000.0, used)]
        assert used > 0


@in_virtual_time()
async def test_a_head_that_is_known_is_held_to_limits_that_came_later() -> None:
    async with serving() as place:
        asked = post(CHAT, chat(), "x-one: 1", "x-two: 2")
        assert [(await place.ask(asked)).status for _ in range(2)] == [200, 200]
        config = place.app.config
        place.app.apply(structs.replace(config, http=structs.replace(config.http, headers_max=3)))
        assert (await place.ask(asked)).status == 431


def written(log_fd: int) -> int:
    """How many lines have left."""
    return os.pread(log_fd, 1 << 20, 0).count(b"\n")


@in_virtual_time()
async def test_a_line_leaves_within_a_moment_and_at_the_end_at_once() -> None:
    async with serving() as place:
        log_fd = place._log_fd
        await place.ask()
        await asyncio.sleep(0.25)
        assert written(log_fd) == 1
        await place.ask()
        assert written(log_fd) == 1
        await place.app.stop()
        assert written(log_fd) == 2


@in_virtual_time()
async def test_who_reads_numbers_has_nothing_counted() -> None:
    """They are read in another thread, while the loop counts."""
    async with serving() as place:
        metrics = place.app.metrics
        with patch.object(place.app.ends, "tell") as tell:
            text = b"".join(render(metrics))
        assert b"background_making" in text
        tell.assert_not_called()


@in_virtual_time()
async def test_numbers_are_those_of_this_moment() -> None:
    async with serving() as place:
        for count in (1, 2):
            await place.ask()
            assert sum(place.app.metrics.models[MODEL].whole.counts) == count
