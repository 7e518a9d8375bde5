"""Threads that work on kept connections, one operation after the other; a loop waits for theirs in one hop.

An operation is a plain function of a connection, and one transaction; where each statement is committed by
itself, at most one of its statements writes. It is done again from its beginning when the connection died
under it, even while it was committed, so it must bear that. It is never cancelled half-way: who stops waiting
leaves it to be finished, or undone where it has not begun. But what takes too long is given up, and with it
its connection: a server that stands still may never answer.
"""

from __future__ import annotations

import asyncio
import queue
import time
from asyncio import AbstractEventLoop, Future
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any, Generic, Protocol, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from maitred.store.rows import StoreError

T = TypeVar("T")
Work = Callable[[Connection], T]

CALL_S = 10.0
"""What an operation may take with its waiting, unless something else is said."""
CLOSE_S = 5.0
"""What the end waits for operations that run; a thread that is left behind ends with the process."""
WAITING_MAX = 1000
GROUP_MAX = 32
"""Operations that share one commit where many wait: on a slow disk it is what takes the time."""
TRIES = 2
DURABLE = "durable"
"""In the `info` of a connection to a file, for who begins its transactions: the next is to outlive a loss of
power before anybody hears of its commit."""
REPEATABLE = ("40001", "40P01")
"""What PostgreSQL says of transactions that stood in each other's way."""


class Line(Protocol):
    """What is seen of a connection, and done to it, from any thread."""

    def usable(self) -> bool:
        """Whether it still may be used, as far as can be told from here."""

    def cut(self) -> None:
        """End what waits for an answer on it, if that could wait for ever."""

    def close(self) -> None:
        """The connection is closed now."""


class Operation(Generic[T]):
    """One that waits to be done, and who waits for it. `kept` is where it is done once it is."""

    __slots__ = ("_future", "_late", "_loop", "_told", "_work", "durable", "kept")

    def __init__(self, work: Work[T], loop: AbstractEventLoop, within_s: float, *, durable: bool) -> None:
        self.durable = durable
        self.kept: Kept | None = None
        self._work = work
        self._loop = loop
        self._told = False
        self._future: Future[T] = loop.create_future()
        self._late = loop.call_later(within_s, self._give_up, within_s)

    @property
    def given_up(self) -> bool:
        """Whether nobody waits for it any more."""
        return self._future.done()

    def do(self, connection: Connection) -> T:
        """Do it, in the transaction that is open."""
        if self.given_up:  # since it was taken up, or tried before
            raise StoreError("nobody waits for it any more")
        return self._work(connection)

    def result(self) -> Future[T]:
        """What it gives."""
        return self._future

    def answer(self, result: T) -> None:
        """Say from a thread that it is done."""
        self._tell(self._answered, result)

    def fail(self, error: BaseException) -> None:
        """Say from a thread what went wrong."""
        self._tell(self._failed, error)

    def _tell(self, told: Callable[[Any], None], what: object) -> None:
        self._told = True
        with suppress(RuntimeError):  # the loop has ended, and whoever waited with it
            self._loop.call_soon_threadsafe(told, what)

    def _give_up(self, within_s: float) -> None:
        if self._told:  # the loop was held up, and hears of it next; its connection is another's by now
            return
        if not self._future.done():
            self._future.set_exception(TimeoutError(f"no answer in {within_s:g} s"))
        if self.kept is not None:
            self.kept.cut()

    def _answered(self, result: T) -> None:
        self._late.cancel()
        if not self._future.done():
            self._future.set_result(result)

    def _failed(self, error: BaseException) -> None:
        self._late.cancel()
        if not self._future.done():
            self._future.set_exception(error)
        del self._future  # it holds the error, whose traceback holds this


class Lane:
    """Some threads with a connection each, which begin with the first operation.

    `connect` opens a connection, and `watch` gives what is seen of it.
    `grouped`: what waits is done in one transaction. There must be one thread then, lest two wait for each
    other's rows.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[], Connection],
        watch: Callable[[Connection], Line],
        threads: int = 1,
        *,
        grouped: bool = False,
    ) -> None:
        self._group_max = GROUP_MAX if grouped else 1
        self._waiting: queue.SimpleQueue[Operation[Any] | None] = queue.SimpleQueue()
        self._kept = [Kept(connect, watch) for _ in range(threads)]
        self._threads = [
            Thread(target=self._run, args=(kept,), name=f"{name} {number}", daemon=True)
            for number, kept in enumerate(self._kept)
        ]
        self._started = self._closed = False

    def submit(self, work: Work[T], *, durable: bool = True, within_s: float = CALL_S) -> Future[T]:
        """Have it done. It is a StoreError where too much waits, and a TimeoutError when the time is over.

        `durable`: to outlive a loss of power. This goes for files; to a server the statements say it.
        """
        operation = Operation(work, asyncio.get_running_loop(), within_s, durable=durable)
        if self._closed:
            operation.fail(StoreError("the store is closed"))
        elif self._waiting.qsize() >= WAITING_MAX:
            operation.fail(StoreError("too many wait for the database"))
        else:
            self._start()
            self._waiting.put(operation)
        return operation.result()

    @property
    def usable(self) -> bool:
        """Whether all of its connections still are, as far as can be told from here."""
        return all(kept.usable() for kept in self._kept)

    def close(self) -> None:
        """Do what waits, then end. Whoever calls this waits for it, though not for long."""
        self._closed = True
        if self._started:
            for _ in self._threads:
                self._waiting.put(None)
            until = time.monotonic() + CLOSE_S
            for thread in self._threads:
                thread.join(max(0.0, until - time.monotonic()))

    def _start(self) -> None:
        if not self._started:
            self._started = True
            for thread in self._threads:
                thread.start()

    # -- in the threads ---------------------------------------------------------------------------

    def _run(self, kept: Kept) -> None:
        while self._next(kept):
            pass
        kept.drop()

    def _next(self, kept: Kept) -> bool:
        """Wait for operations and do them; False after the last. What they hold goes with the call."""
        group = [self._waiting.get()]
        while len(group) < self._group_max and not self._waiting.empty():
            group.append(self._waiting.get())
        _serve(kept, [operation for operation in group if operation and not operation.given_up])
        return None not in group


class Kept:
    """A connection that is kept until it is found dead or no longer the right one."""

    def __init__(self, connect: Callable[[], Connection], watch: Callable[[Connection], Line]) -> None:
        self._connect = connect
        self._watch = watch
        self._connection: Connection | None = None
        self._line: Line | None = None

    def usable(self) -> bool:
        """Whether nothing is known to be wrong with it."""
        line = self._line
        return line is None or line.usable()

    def cut(self) -> None:
        """End what waits for an answer on it."""
        if (line := self._line) is not None:
            line.cut()

    def drop(self) -> None:
        """Let go of it."""
        if self._line is not None:
            self._line.close()
        if self._connection is not None:
            self._connection.close()
        self._connection = self._line = None

    def do(self, work: Work[T], *, durable: bool = True) -> T:
        """Do this in one transaction, unless the connection is one that commits each statement."""
        for tried in range(1, TRIES + 1):
            if not self.usable():
                self.drop()
            if self._connection is None:
                connection = self._connect()
                self._line = self._watch(connection)
                self._connection = connection
            self._connection.info[DURABLE] = durable
            try:
                return self._once(self._connection, work)
            except DBAPIError as error:
                self.drop()
                again = error.connection_invalidated or getattr(error.orig, "sqlstate", None) in REPEATABLE
                if not again or tried == TRIES:
                    raise
        raise AssertionError

    @staticmethod
    def _once(connection: Connection, work: Work[T]) -> T:
        with connection.begin():
            return work(connection)


def _serve(kept: Kept, group: list[Operation[Any]]) -> None:
    """Do these together, and if one of them cannot be done each by itself."""
    for operation in group:
        operation.kept = kept
    if len(group) > 1:
        try:
            durable = any(operation.durable for operation in group)
            results = kept.do(lambda c: [operation.do(c) for operation in group], durable=durable)
        except Exception:  # noqa: BLE001, S110 - whose it is shows when each is done by itself
            pass
        else:
            for operation, result in zip(group, results, strict=True):
                operation.answer(result)
            return
    for operation in group:
        try:
            operation.answer(kept.do(operation.do, durable=operation.durable))
        except BaseException as error:  # noqa: BLE001 - who waits is told, as by a future
            operation.fail(error)
