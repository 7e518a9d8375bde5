"""One thread beside the loop, for what would hold it up: a few jobs, each in time or not at all."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from maitred.core.tokens import NoTokens
from maitred.wire.conversation import Unsupported

log = logging.getLogger("maitred.tokens")

WAITING_MAX = 32
"""Jobs that may wait for the thread."""
TIMEOUT_S = 0.25
"""How long a job may take, its wait included; a request waits for it."""

T = TypeVar("T")


class Beside:
    """Does one job after the other. `close` it at the end."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tokens")
        self._given = 0  # by the loop alone
        self._done = 0  # by the thread alone

    async def run(self, job: Callable[[], T]) -> T | NoTokens:
        """What the job returns, or why it did not. One that is late goes on, but nobody hears of it."""
        if self._given - self._done > WAITING_MAX:
            return NoTokens.BUSY
        self._given += 1
        work = self._thread.submit(self._work, job, time.monotonic() + TIMEOUT_S)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await asyncio.shield(asyncio.wrap_future(work))
        except TimeoutError:
            return NoTokens.TIMEOUT

    def prepare(self, job: Callable[[], None]) -> None:
        """Do this, however long it takes, before anything that is asked for from now on."""
        self._thread.submit(job)

    def _work(self, job: Callable[[], T], until: float) -> T | NoTokens:
        try:
            return job() if time.monotonic() < until else NoTokens.TIMEOUT
        except Unsupported:
            return NoTokens.UNSUPPORTED
        except Exception as error:  # noqa: BLE001 - a template is a program that came with a model
            log.debug("token ids were not found: %s", type(error).__name__)
            return NoTokens.FAILED
        finally:
            self._done += 1

    def close(self) -> None:
        """Begin nothing more; the thread ends with what it has in hand."""
        self._thread.shutdown(wait=False, cancel_futures=True)
