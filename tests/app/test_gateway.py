"""The assembled gateway: what one part sees reaches whoever tells of it."""

from __future__ import annotations

import asyncio

from maitred.control.watch import LOOKS, PERIOD_S
from maitred.net.virtual import VirtualLoop
from tests.proxy.place import Place, in_virtual_time, serving

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
