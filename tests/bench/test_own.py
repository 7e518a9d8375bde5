"""How the load generator sees itself."""

from __future__ import annotations

import asyncio
import time
from typing import cast

import pytest

from maitred.bench.own import BEAT_S, Beat
from maitred.bench.shot import Own
from maitred.net.virtual import VirtualLoop
from tests.proxy.place import in_virtual_time


@in_virtual_time()
async def test_a_loop_that_is_busy_with_something_else_is_late() -> None:
    loop = cast("VirtualLoop", asyncio.get_running_loop())

    def stall(seconds: float) -> None:
        loop._clock.now += seconds

    own = Own()
    beat = Beat(own, loop.time, lambda: 0)
    beat.start()
    await asyncio.sleep(5.0)
    assert own.stall_s < 1e-6
    loop.call_later(1.0, stall, 0.4)
    loop.call_later(2.0, stall, 0.1)
    await asyncio.sleep(5.0)
    beat.stop()
    assert own.stall_s == pytest.approx(0.4, abs=2 * BEAT_S)


@in_virtual_time()
async def test_what_waits_in_buffers_is_seen() -> None:
    waiting = [0]
    own = Own()
    beat = Beat(own, asyncio.get_running_loop().time, lambda: waiting[0])
    beat.start()
    await asyncio.sleep(1.05)
    waiting[0] = 5000
    await asyncio.sleep(0.2)
    waiting[0] = 10
    await asyncio.sleep(1.0)
    beat.stop()
    assert own.buffered_bytes == 5000


@in_virtual_time()
async def test_the_cpu_is_seen_and_its_busiest_second(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()

    def cpu_s() -> float:
        """A tenth of the time, and all of it in the fourth second."""
        at = loop.time() - began
        return 0.1 * at + 0.9 * min(max(at - 3.0, 0.0), 1.0)

    monkeypatch.setattr(time, "process_time", cpu_s)
    own = Own()
    beat = Beat(own, loop.time, lambda: 0)
    beat.start()
    await asyncio.sleep(10.0)
    beat.stop()
    beat.stop()
    assert own.cpu_share == pytest.approx(0.19, abs=0.01)
    assert own.cpu_share_max == pytest.approx(1.0, abs=0.1)
