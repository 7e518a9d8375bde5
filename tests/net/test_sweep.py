"""The sweep: who waited too long is told, within a quarter of a second."""

from __future__ import annotations

import asyncio

import pytest

from maitred.net.sweep import NEVER, PERIOD_S, Sweep
from maitred.net.virtual import START_S, run


class Patient:
    """Writes down when it was told; `wait_s` after that it wants to be told again, if ever."""

    def __init__(self, deadline: float, wait_s: float = NEVER) -> None:
        self.deadline = deadline
        self.told: list[float] = []
        self._wait_s = wait_s

    def expired(self, now: float) -> None:
        self.told.append(now)
        self.deadline = now + self._wait_s


def test_who_has_waited_too_long_is_told_soon_after() -> None:
    async def main() -> None:
        sweep = Sweep(asyncio.get_running_loop().time)
        soon, later, never = (Patient(START_S + 1.1), Patient(START_S + 2.0, 3.0), Patient(NEVER))
        for patient in (soon, later, never):
            sweep.add(patient)
        assert len(sweep) == 3
        sweep.start()
        await asyncio.sleep(10)
        sweep.stop()
        await asyncio.sleep(10)
        assert soon.told == [START_S + 1.25]
        assert later.told == [START_S + 2, START_S + 5, START_S + 8]
        assert never.told == []

    run(main())


def test_who_has_gone_is_not_told() -> None:
    async def main() -> None:
        sweep = Sweep(asyncio.get_running_loop().time)
        gone = Patient(START_S + 1)
        sweep.add(gone)
        sweep.discard(gone)
        sweep.discard(gone)
        assert len(sweep) == 0
        sweep.start()
        await asyncio.sleep(2)
        sweep.stop()
        assert gone.told == []

    run(main())


def test_the_time_of_the_last_look_is_never_older_than_a_period() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        sweep = Sweep(loop.time)
        assert sweep.now == START_S
        await asyncio.sleep(5)
        sweep.start()
        for _ in range(20):
            assert 0 <= loop.time() - sweep.now <= PERIOD_S
            await asyncio.sleep(0.1)
        sweep.stop()

    run(main())


def test_one_that_fails_does_not_stop_the_looking() -> None:
    class Broken(Patient):
        def expired(self, now: float) -> None:
            super().expired(now)
            raise ValueError("a bug")

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        sweep = Sweep(asyncio.get_running_loop().time)
        broken, later = Broken(START_S + 1), Patient(START_S + 2)
        sweep.add(broken)
        sweep.add(later)
        sweep.start()
        await asyncio.sleep(3)
        sweep.stop()
        assert broken.told == [START_S + 1]
        assert later.told == [START_S + 2]

    run(main())


def test_stopping_twice_or_unstarted_is_nothing() -> None:
    sweep = Sweep(lambda: 0.0)
    sweep.stop()
    sweep.stop()
    with pytest.raises(RuntimeError):
        sweep.start()
