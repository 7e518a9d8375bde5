"""Threads that work on kept connections, one operation after the other; a loop waits for theirs in one hop.

An operation is a plain function of a connection, and one transaction; where each statement is committed by
itself, at most one of its statements writes. It is done again from its beginning when the connection died
under it, even while it was committed, so it must bear that. It is never cancelled half-way: who stops waiting
leaves it to be finished, or undone where it has not begun.
"""

from __future__ import annotations

import asyncio
import queue
from asyncio import AbstractEventLoop, Future
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from maitred.store.rows import StoreError

T = TypeVar("T")
Work = Callable[[Connection], T]
Watch = Callable[[Connection], Callable[[], bool]]

WAITING_MAX = 1000
GROUP_MAX = 32
"""Operations that share one commit where many wait: on a slow disk it is what takes the time."""
TRIES = 2
DURABLE = "durable"
"""In the `info` of a connection to a file, for who begins its transactions: the next is to outlive a loss of
power before anybody hears of its commit."""
REPEATABLE = ("40001", "40P01")
"""What PostgreSQL says of transactions that stood in each other's way."""


class Operation(Generic[T]):
    """One that waits to be done, and who waits for it."""

    __slots__ = ("_future", "_loop", "_work", "durable")

    def __init__(self, work: Work[T], loop: AbstractEventLoop, *, durable: bool) -> None:
        self.durable = durable
        self._work = work
        self._loop = loop
        self._future: Future[T] = loop.create_future()

    @property
    def given_up(self) -> bool:
        """Whether nobody waits for it any more."""
        return self._future.done()

    def do(self, connection: Connection) -> T:
        """Do it, in the transaction that is open."""
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
        with suppress(RuntimeError):  # the loop has ended, and whoever waited with it
            self._loop.call_soon_threadsafe(told, what)

    def _answered(self, result: T) -> None:
        if not self._future.done():
            self._future.set_result(result)

    def _failed(self, error: BaseException) -> None:
        if not self._future.done():
            self._future.set_exception(error)
        del self._future  # it holds the error, whose traceback holds this


class Lane:
    """Some threads with a connection each. `connect` opens one; what `watch` gives for it says whether it may
    still be used, at any time and in any thread.

    `grouped`: what waits is done in one transaction. There must be one thread then, lest two wait for each
    other's rows.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[], Connection],
        watch: Watch,
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
        for thread in self._threads:
            thread.start()

    def submit(self, work: Work[T], *, durable: bool = True) -> Future[T]:
        """Have it done. It is a StoreError where too much waits.

        `durable`: to outlive a loss of power. This goes for files; to a server the statements say it.
        """
        operation = Operation(work, asyncio.get_running_loop(), durable=durable)
        if self._waiting.qsize() < WAITING_MAX:
            self._waiting.put(operation)
        else:
            operation.result().set_exception(StoreError("too many wait for the database"))
        return operation.result()

    @property
    def usable(self) -> bool:
        """Whether all of its connections still are, as far as can be told from here."""
        return all(kept.usable() for kept in self._kept)

    def close(self) -> None:
        """Do what waits, then end. Whoever calls this waits for it."""
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()

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

    def __init__(self, connect: Callable[[], Connection], watch: Watch) -> None:
        self._connect = connect
        self._watch = watch
        self._connection: Connection | None = None
        self.usable: Callable[[], bool] = _nothing_wrong

    def drop(self) -> None:
        """Let go of it."""
        if self._connection is not None:
            self.usable = _nothing_wrong
            self._connection.close()
            self._connection = None

    def do(self, work: Work[T], *, durable: bool = True) -> T:
        """Do this in one transaction, unless the connection is one that commits each statement."""
        for tried in range(1, TRIES + 1):
            if not self.usable():
                self.drop()
            if self._connection is None:
                self._connection = self._connect()
                self.usable = self._watch(self._connection)
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


def _nothing_wrong() -> bool:
    return True


def _serve(kept: Kept, group: list[Operation[Any]]) -> None:
    """Do these together, and if one of them cannot be done each by itself."""
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
