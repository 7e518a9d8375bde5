"""Virtual time: the clock jumps, never waits, and tells a hang."""

from __future__ import annotations

import asyncio
import signal
import time

import pytest

from maitred.net.virtual import START_S, Hang, VirtualLoop, run


def test_timers_fire_in_order_at_their_instants_without_wall_time() -> None:
    async def main() -> list[tuple[str, float]]:
        loop = asyncio.get_running_loop()
        seen: list[tuple[str, float]] = []

        def fire(name: str) -> None:
            seen.append((name, loop.time() - START_S))

        for name, delay_s in (("late", 3000.0), ("soon", 0.5), ("middle", 60.0)):
            loop.call_later(delay_s, fire, name)
        await asyncio.sleep(3500)
        return seen

    started = time.monotonic()
    assert run(main()) == [("soon", 0.5), ("middle", 60.0), ("late", 3000.0)]
    assert time.monotonic() - started < 1000


def test_timeouts_are_virtual() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1800):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time()

    assert run(main()) == START_S + 1800


def test_waiting_for_nothing_is_a_hang_and_names_who_waits() -> None:
    async def main() -> None:
        task = asyncio.create_task(asyncio.Event().wait(), name="forgotten")
        await task

    with pytest.raises(Hang, match="nothing is scheduled") as caught:
        run(main())
    assert any("forgotten" in note for note in caught.value.__notes__)


def test_a_ticking_loop_does_not_hide_a_hang() -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(1)
            ticks += 1

    async def main() -> None:
        ticking = asyncio.create_task(tick())
        await asyncio.Event().wait()
        ticking.cancel()

    with pytest.raises(Hang, match="ran out at 1010 s"):
        run(main(), timeout_s=10)
    assert ticks == 10


def test_leftovers_are_cancelled_and_the_loop_is_closed() -> None:
    ended: list[str] = []

    async def leftover() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("leftover")

    async def main() -> asyncio.AbstractEventLoop:
        kept = asyncio.create_task(leftover())
        await asyncio.sleep(0)
        assert not kept.done()
        return asyncio.get_running_loop()

    loop = run(main())
    assert isinstance(loop, VirtualLoop)
    assert loop.is_closed()
    assert ended == ["leftover"]


def test_the_self_pipe_is_served_before_time_passes() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        told = asyncio.Event()
        loop.add_signal_handler(signal.SIGUSR1, told.set)  # signals come in by the self-pipe
        signal.raise_signal(signal.SIGUSR1)
        async with asyncio.timeout(60):
            await told.wait()
        loop.remove_signal_handler(signal.SIGUSR1)
        return loop.time()

    assert run(main()) == START_S
