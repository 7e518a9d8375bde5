"""Running a coroutine without a Task: begun at once, and driven by what it awaits, futures or words.

One is run for every request. A Task would begin it a turn of the loop later and enter it in asyncio's list
of all tasks; the two together cost as much as choosing an endpoint. What needs a Task around it, such as a
timeout, makes one of its own. A word is a future that is heard at once, within the call that says it.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Awaited = Any
"""A Future or a Word."""


class Word(Generic[T]):
    """A result or an exception that one errand waits for. What is said first counts; see asyncio.Future.

    Whoever says it must be done with everything else: the errand goes on before the call returns.
    """

    __slots__ = ("_asyncio_future_blocking", "_exception", "_hear", "_result", "done")

    def __init__(self) -> None:
        self.done = False
        self._hear: Callable[[Any], object] | None = None
        self._exception: BaseException | None = None
        self._result: T

    def __await__(self) -> Generator[Any, None, T]:
        """Wait for it, unless it has been said already."""
        if not self.done:
            yield self
        exception, self._exception = self._exception, None
        if exception is None:
            return self._result
        try:
            raise exception
        finally:
            del exception, self  # its traceback names this frame

    def add_done_callback(self, hear: Callable[[Any], object]) -> None:
        """Call this when it is said; there is one listener."""
        self._hear = hear

    def set_result(self, result: T) -> None:
        """Say it."""
        self._result = result
        self._say()

    def set_exception(self, exception: BaseException) -> None:
        """Have this raised where it is awaited."""
        self._exception = exception
        self._say()

    def cancel(self) -> bool:
        """Have CancelledError raised there; False when something was said before."""
        if not self.done:
            self.set_exception(CancelledError())
            return True
        return False

    def _say(self) -> None:
        self.done = True
        hear, self._hear = self._hear, None
        if hear is not None:
            hear(self)


class Errand:
    """One coroutine under way; it is in `under_way` from its beginning to its end, and must not raise."""

    __slots__ = ("_cancelled", "_coroutine", "_under_way", "_waits")

    def __init__(self, coroutine: Coroutine[Awaited, None, None], under_way: set[Errand]) -> None:
        self._coroutine = coroutine
        self._under_way = under_way
        self._waits: Awaited | None = None
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
