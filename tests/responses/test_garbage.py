"""What a turn had in hand is let go with it: what only the collector could free would stay for hours."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from maitred.net.exchange import HttpExchange
from maitred.responses.asked import Asked
from maitred.responses.turn import Turn
from tests.responses.place import (
    CONVERSATIONS,
    RESPONSES,
    call,
    in_real_time,
    remembering,
    says,
    streams,
    turn,
)
from tests.responses.test_background import QUICK, ended, submitted

OURS = (Asked, HttpExchange, Turn)


def left() -> list[Any]:
    return [each for each in gc.get_objects() if isinstance(each, OURS)]


@contextmanager
def uncollected() -> Iterator[None]:
    gc.collect()
    gc.freeze()  # what is there already need not be looked through again and again
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@in_real_time
async def test_nothing_waits_for_the_collector(url: str) -> None:
    async with remembering(url, says("hello"), streams("a", "b"), says("hello"), **QUICK) as it:
        first = (await it.turn())["id"]
        with uncollected():
            for asked in (
                turn(previous_response_id=first, stream=True),
                turn(previous_response_id=first),
                turn(store=False, stream=True),
                turn(previous_response_id="resp_0"),
                turn(tools=[{"type": "nonsense"}]),
                turn(model="nobody"),
                call("POST", CONVERSATIONS, {}),
                call("GET", f"{RESPONSES}/{first}"),
                call("GET", f"{RESPONSES}/resp_0"),
                call("DELETE", f"{RESPONSES}/{first}"),
            ):
                await it.ask(asked)
                await it.place.until(lambda: not left())
            await ended(it, (await submitted(it))["id"])
            await it.place.until(lambda: not left())
