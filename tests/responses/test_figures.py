"""What is counted of turns."""

from __future__ import annotations

from maitred.core.outcome import Outcome
from tests.responses.place import in_real_time, remembering, says, streams, turn
from tests.responses.test_background import QUICK, ended, submitted


@in_real_time
async def test_each_turn_is_counted_once_by_how_it_ended(url: str) -> None:
    async with remembering(url, says("x"), streams("y"), says("z"), **QUICK) as it:
        figures = it.place.app.metrics.turns
        await it.turn("hi", "idempotency-key: k")
        await it.turn("hi", "idempotency-key: k")  # which is no turn
        await it.ask(turn(stream=True))
        await it.ask(turn(previous_response_id="resp_0"))
        assert figures.ended[Outcome.COMPLETED.index] == 2
        assert figures.ended[Outcome.PREVIOUS_NOT_FOUND.index] == 1
        await ended(it, (await submitted(it))["id"])
        await it.place.until(lambda: figures.making == 0)
        assert figures.ended[Outcome.COMPLETED.index] == 3
        assert sum(figures.ended) == 4
        await it.place.until(lambda: "waiting" in figures.store)
        assert figures.waiting == 0
        assert {"begin", "finish", "submit", "take"} <= figures.store.keys()
