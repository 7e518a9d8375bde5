"""The beat: regular work, and the honest figure of how late it came."""

from __future__ import annotations

import asyncio

import pytest

from maitred.control.beat import PERIOD_S, beat
from maitred.net import virtual


def test_work_is_done_each_period_and_lateness_is_told() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        done: list[float] = []
        late: list[float] = []
        oversleep = iter([0.0, 0.25, 0.0])

        async def sleep(period_s: float) -> None:
            await asyncio.sleep(period_s + next(oversleep, 1e9))

        task = asyncio.create_task(beat(loop.time, lambda: done.append(loop.time()), late.append, sleep))
        began = loop.time()
        await asyncio.sleep(1)
        task.cancel()
        assert [at - began for at in done] == pytest.approx(
            [PERIOD_S, 2 * PERIOD_S + 0.25, 3 * PERIOD_S + 0.25]
        )
        assert late == pytest.approx([0, 0.25, 0])

    virtual.run(main())
