"""Running a coroutine without a Task: begun at once, and driven by the futures it awaits.

One is run for every request. A Task would begin it a turn of the loop later and enter it in asyncio's list
of all tasks; the two together cost as much as choosing an endpoint. What needs a Task around it, such as a
timeout, makes one of its own.
"""

from __future__ import annotations

from asyncio import CancelledError, Future
from collections.abc import Coroutine
from typing import Any


class Errand:
    """One coroutine under way; it is in `under_way` from its beginning to its end, and must not raise."""

    __slots__ = ("_cancelled", "_coroutine", "_under_way", "_waits")

    def __init__(self, coroutine: Coroutine[Future[Any], None, None], under_way: set[Errand]) -> None:
        self._coroutine = coroutine
        self._under_way = under_way
        self._waits: Future[Any] | None = None
        self._cancelled = False
        under_way.add(self)

    def go(self, _waited: object = None) -> None:
        """Take the next step: as far as the coroutine comes without waiting."""
        self._waits = None  # it may name a failure, and that, by its traceback, the coroutine's frame
        try:
            if self._cancelled:
                self._cancelled = False
                waits = self._coroutine.throw(CancelledError())
            else:
                waits = self._coroutine.send(None)
        except StopIteration:
            self._under_way.discard(self)
            return
        except BaseException:
            self._under_way.discard(self)
            raise
        self._waits = waits
        waits._asyncio_future_blocking = False  # as whoever awaits a future has to do
        waits.add_done_callback(self.go)

    def cancel(self) -> None:
        """Have CancelledError raised where the coroutine waits, soon."""
        if self._waits is None or not self._waits.cancel():
            self._cancelled = True
