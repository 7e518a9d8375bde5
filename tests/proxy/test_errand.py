"""An errand: begun at once, driven by what it awaits, given up at any time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from maitred.net import virtual
from maitred.proxy.errand import Errand
from tests.net.http import turns

Futures = list[asyncio.Future[None]]


class Road:
    """A coroutine that waits at each of its futures, and what came of it."""

    def __init__(self, count: int) -> None:
        loop = asyncio.get_running_loop()
        self.stops: Futures = [loop.create_future() for _ in range(count)]
        self.passed = 0
        self.end = ""
        self.under_way: set[Errand] = set()

    async def walk(self) -> None:
        try:
            for stop in self.stops:
                await stop
                self.passed += 1
            self.end = "arrived"
        except asyncio.CancelledError:
            self.end = "given up"
        except ZeroDivisionError:
            self.end = "failed"

    def begin(self, coroutine: Coroutine[Any, Any, None] | None = None) -> Errand:
        errand = Errand(coroutine or self.walk(), self.under_way)
        errand.go()
        return errand


def test_it_begins_at_once_and_ends_by_itself() -> None:
    async def main() -> None:
        road = Road(0)
        road.begin()
        assert (road.end, road.under_way) == ("arrived", set())

    virtual.run(main())


def test_it_goes_on_when_what_it_waits_for_is_there() -> None:
    async def main() -> None:
        road = Road(2)
        errand = road.begin()
        for passed, stop in enumerate(road.stops):
            assert (road.passed, road.under_way) == (passed, {errand})
            stop.set_result(None)
            await turns()
        assert (road.end, road.under_way) == ("arrived", set())

    virtual.run(main())


def test_a_failure_is_raised_where_it_waits() -> None:
    async def main() -> None:
        road = Road(2)
        road.begin()
        road.stops[0].set_exception(ZeroDivisionError())
        await turns()
        assert (road.passed, road.end) == (0, "failed")

    virtual.run(main())


@pytest.mark.parametrize("there", [False, True], ids=["waiting", "about to go on"])
def test_giving_up_is_raised_where_it_waits_though_its_wait_may_be_over(there: bool) -> None:
    async def main() -> None:
        road = Road(2)
        errand = road.begin()
        if there:
            road.stops[0].set_result(None)
        errand.cancel()
        assert road.end == ""
        await turns()
        assert (road.passed, road.end, road.under_way) == (0, "given up", set())

    virtual.run(main())


def test_one_given_up_while_it_takes_a_step_is_so_at_its_next_wait() -> None:
    async def main() -> None:
        road, errands = Road(1), list[Errand]()

        async def walk() -> None:
            errands[0].cancel()
            await road.walk()

        errands.append(Errand(walk(), road.under_way))
        errands[0].go()
        road.stops[0].set_result(None)
        await turns()
        assert (road.passed, road.end) == (0, "given up")

    virtual.run(main())


def test_what_it_raises_does_not_keep_it_under_way() -> None:
    async def fall() -> None:
        raise ZeroDivisionError

    async def main() -> None:
        road = Road(0)
        with pytest.raises(ZeroDivisionError):
            road.begin(fall())
        assert road.under_way == set()

    virtual.run(main())
