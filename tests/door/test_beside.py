"""The thread beside the loop: few wait for it, none for long, and nothing that goes wrong there gets out."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from maitred.core.tokens import NoTokens
from maitred.door import beside
from maitred.door.beside import WAITING_MAX, Beside
from maitred.wire.conversation import Unsupported


@asynccontextmanager
async def thread() -> AsyncIterator[tuple[Beside, threading.Event]]:
    """One, and what a job that holds it up waits for."""
    it, go = Beside(), threading.Event()
    yield it, go
    go.set()
    it.close()


@pytest.mark.usefixtures("patient")
def test_a_job_is_done_in_another_thread() -> None:
    async def main() -> None:
        async with thread() as (it, _):
            assert await it.run(threading.get_ident) not in (NoTokens.FAILED, threading.get_ident())

    asyncio.run(main())


@pytest.mark.usefixtures("patient")
def test_what_goes_wrong_is_a_reason() -> None:
    def fail(error: BaseException) -> None:
        raise error

    async def main() -> None:
        async with thread() as (it, _):
            assert await it.run(lambda: fail(Unsupported())) is NoTokens.UNSUPPORTED
            for error in (ValueError("x"), RecursionError(), KeyError("x")):
                assert await it.run(lambda error=error: fail(error)) is NoTokens.FAILED  # type: ignore[misc]
            assert await it.run(lambda: 1) == 1

    asyncio.run(main())


def test_what_is_late_is_given_up_and_what_waited_too_long_not_begun() -> None:
    begun: list[int] = []

    async def main() -> None:
        async with thread() as (it, go):
            jobs = [it.run(lambda: go.wait() and 1), it.run(lambda: begun.append(1))]
            assert await asyncio.gather(*jobs) == [NoTokens.TIMEOUT, NoTokens.TIMEOUT]
            go.set()
            assert await it.run(lambda: 1) == 1
            assert not begun

    asyncio.run(main())


@pytest.mark.usefixtures("patient")
def test_only_so_many_may_wait() -> None:
    async def main() -> None:
        async with thread() as (it, go):
            jobs = [asyncio.create_task(it.run(lambda: go.wait() and 1)) for _ in range(WAITING_MAX + 1)]
            await asyncio.sleep(0)
            assert await it.run(lambda: 1) is NoTokens.BUSY
            go.set()
            assert await asyncio.gather(*jobs) == [1] * (WAITING_MAX + 1)
            assert await it.run(lambda: 1) == 1

    asyncio.run(main())


@pytest.mark.usefixtures("patient")
def test_those_who_have_gone_keep_nobody_waiting() -> None:
    """Their jobs are in the queue all the same, until the thread comes to them."""

    async def main() -> None:
        async with thread() as (it, go):
            jobs = [asyncio.create_task(it.run(lambda: go.wait() and 1)) for _ in range(WAITING_MAX + 1)]
            await asyncio.sleep(0)
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)
            assert await it.run(lambda: 1) is NoTokens.BUSY
            go.set()
            while (answer := await it.run(lambda: 1)) is NoTokens.BUSY:
                await asyncio.sleep(0)
            assert answer == 1

    asyncio.run(main())


def test_the_bounds_are_those_that_are_documented() -> None:
    assert (WAITING_MAX, beside.TIMEOUT_S) == (32, 0.25)
