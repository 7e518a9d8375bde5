"""The threads that work on a database, and their connections: to a file one writes, and one or two read.

A file that was put in the place of another is noticed before the next operation, and so is a server that
ended.
"""

from __future__ import annotations

import asyncio
import os
import select
import sqlite3
import time
from asyncio import Future
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from socket import SHUT_RDWR, socket
from sqlite3 import Connection as Driver
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection, Engine, NullPool, create_engine, event
from sqlalchemy.pool import ConnectionPoolEntry

from maitred.store.lane import CALL_S, DURABLE, Lane, Work
from maitred.store.place import WRONG, Place

T = TypeVar("T")

READERS_MAX = 2
"""Threads that read a file; more would only wait for the interpreter."""

AGAIN_S = 0.01
"""Between two attempts at a new file that others open too, in a thread of its own."""

BY_INDEX = " ".join(f"-c enable_{way}=off" for way in ("seqscan", "hashjoin", "mergejoin"))
"""With old statistics PostgreSQL reads half a million items to find two hundred, unless it may not."""


class Lanes(NamedTuple):
    """Threads that read, and threads that write: nobody's turn waits for who reads much.

    `single` does what at most one statement writes.

    What they are asked for begins at once, to be awaited then or later. It raises StoreError where it cannot
    be done in time.
    """

    place: Place
    reading: Lane
    writing: Lane
    single: Lane

    def read(self, work: Work[T], within_s: float = CALL_S) -> Coroutine[Any, Any, T]:
        """Have something done that only reads: no transaction is around it."""
        return self._done(self.reading.submit(work, within_s=within_s))

    def write(
        self, work: Work[T], within_s: float = CALL_S, *, durable: bool = True, single: bool = False
    ) -> Coroutine[Any, Any, T]:
        """Have one transaction done. `single`: at most one of its statements writes, whatever others read."""
        lane = self.single if single else self.writing
        return self._done(lane.submit(work, durable=durable, within_s=within_s))

    @property
    def usable(self) -> bool:
        """Whether all connections still are, as far as can be told from here."""
        return self.reading.usable and self.writing.usable and self.single.usable

    async def close(self) -> None:
        """Do what waits, and let go of the connections; what hangs is not waited for."""
        lanes = {self.reading, self.writing, self.single}
        await asyncio.gather(*[asyncio.to_thread(lane.close) for lane in lanes])

    async def _done(self, doing: Future[T]) -> T:
        try:
            return await doing
        except WRONG as error:
            raise self.place.wrong(error) from None
        finally:
            del doing  # it holds the error, whose traceback holds this


def lanes(place: Place, name: str, connections: int, *, by_index: bool = False) -> Lanes:
    """Threads for this database: so many connections to a server (three at least), or up to three to a file.

    To a server what only reads, or writes with at most one statement, goes without a transaction around it.
    """
    part = max(1, connections // 3)
    if place.is_file:
        reading, writing = _file_engine(place, writes=False), _file_engine(place, writes=True)
        reader = Lane(f"{name} reads", reading.connect, _File, min(part, READERS_MAX))
        writer = Lane(f"{name} writes", writing.connect, _File, grouped=True)
        return Lanes(place, reader, writer, writer)
    limits = place.limits | ({"options": f"{place.limits['options']} {BY_INDEX}"} if by_index else {})
    engine = create_engine(place.url, poolclass=NullPool, connect_args=limits)
    plain = engine.execution_options(isolation_level="AUTOCOMMIT")
    reader = Lane(f"{name} reads", plain.connect, _Server, part)
    writer = Lane(f"{name} writes", engine.connect, _Server, max(1, connections - 2 * part))
    return Lanes(place, reader, writer, Lane(f"{name} statements", plain.connect, _Server, part))


def _file_engine(place: Place, *, writes: bool) -> Engine:
    # The driver would begin transactions by itself, and too late.
    limits = place.limits | {"isolation_level": None}
    engine = create_engine(place.url, poolclass=NullPool, paramstyle="named", connect_args=limits)

    @event.listens_for(engine, "connect")
    def connected(driver: Driver, _entry: ConnectionPoolEntry) -> None:
        _log_ahead(driver, place.limits["timeout"])
        driver.execute("PRAGMA synchronous=NORMAL").close()

    def begun(connection: Connection) -> None:
        if place.full:
            level = "FULL" if connection.info[DURABLE] else "NORMAL"
            connection.exec_driver_sql(f"PRAGMA synchronous={level}")
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    if writes:  # a statement that reads needs no more than itself, on a PostgreSQL neither
        event.listen(engine, "begin", begun)
    return engine


def _log_ahead(driver: Driver, within_s: float) -> None:
    """Have readers and the writer of this file not wait for each other.

    A new file is brought to that by whoever opens it first. Where another begins to write to it meanwhile,
    SQLite says at once that it is locked, whatever its timeout is.
    """
    until = time.monotonic() + within_s
    while True:
        try:
            driver.execute("PRAGMA journal_mode=WAL").close()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
            time.sleep(AGAIN_S)
        else:
            return


class _File:
    """Usable while the file is still the one that was opened. Its driver waits for nobody for ever."""

    def __init__(self, connection: Connection) -> None:
        self._path = Path(connection.engine.url.database or "")
        self._opened = self._identity()

    def usable(self) -> bool:
        return self._identity() == self._opened

    def cut(self) -> None:
        pass

    def close(self) -> None:
        pass

    def _identity(self) -> tuple[int, int] | None:
        try:
            there = self._path.stat()
        except OSError:
            return None
        return there.st_dev, there.st_ino


class _Server:
    """Usable while there is nothing to read: a server that ends a connection says so, or hangs up."""

    def __init__(self, connection: Connection) -> None:
        driver = connection.connection.driver_connection
        assert driver is not None  # noqa: S101 - it was opened just now
        # A descriptor of its own: by now the driver's may be another socket's, which is nobody's to shut.
        self._socket = socket(fileno=os.dup(driver.fileno()))

    def usable(self) -> bool:
        poll = select.poll()
        with suppress(ValueError):  # it is closed already
            poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def cut(self) -> None:
        with suppress(OSError):  # the same, or it hung up by itself
            self._socket.shutdown(SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()
