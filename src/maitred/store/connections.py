"""The connections on which conversations are worked: of SQLite one that writes and two that read.

A file that was put in the place of another is noticed before the next operation, and so is a server that
ended.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from pathlib import Path
from sqlite3 import Connection as Driver
from typing import NamedTuple

from sqlalchemy import Connection, Engine, NullPool, create_engine, event
from sqlalchemy.pool import ConnectionPoolEntry

from maitred.store.lane import DURABLE, Lane
from maitred.store.store import Store

READERS = 2
"""Threads that read a file; more would only wait for the interpreter."""

BY_INDEX = " ".join(f"-c enable_{way}=off" for way in ("seqscan", "hashjoin", "mergejoin"))
"""With old statistics PostgreSQL reads half a million items to find two hundred, unless it may not."""


class Lanes(NamedTuple):
    """Threads that read, and threads that write: nobody's turn waits for who reads much.

    `single` does what at most one statement writes.
    """

    reading: Lane
    writing: Lane
    single: Lane


def lanes(store: Store) -> Lanes:
    """Those of this store.

    To a server what only reads, or writes with at most one statement, goes without a transaction around it.
    """
    if store.is_file:
        reading, writing = _file_engine(store, writes=False), _file_engine(store, writes=True)
        writer = Lane("store writes", writing.connect, _of_file, grouped=True)
        return Lanes(Lane("store reads", reading.connect, _of_file, READERS), writer, writer)
    limits = store.limits | {"options": f"{store.limits['options']} {BY_INDEX}"}
    engine = create_engine(store.url, poolclass=NullPool, connect_args=limits)
    plain = engine.execution_options(isolation_level="AUTOCOMMIT")
    part = max(1, store.pool // 3)
    reader = Lane("store reads", plain.connect, _of_server, part)
    writer = Lane("store writes", engine.connect, _of_server, max(1, store.pool - 2 * part))
    return Lanes(reader, writer, Lane("store statements", plain.connect, _of_server, part))


def _file_engine(store: Store, *, writes: bool) -> Engine:
    # The driver would begin transactions by itself, and too late.
    limits = store.limits | {"isolation_level": None}
    engine = create_engine(store.url, poolclass=NullPool, paramstyle="named", connect_args=limits)

    @event.listens_for(engine, "connect")
    def connected(driver: Driver, _entry: ConnectionPoolEntry) -> None:
        driver.execute("PRAGMA journal_mode=WAL").close()
        driver.execute("PRAGMA synchronous=NORMAL").close()

    def begun(connection: Connection) -> None:
        if store.full:
            level = "FULL" if connection.info[DURABLE] else "NORMAL"
            connection.exec_driver_sql(f"PRAGMA synchronous={level}")
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    if writes:  # a statement that reads needs no more than itself, on a PostgreSQL neither
        event.listen(engine, "begin", begun)
    return engine


def _of_file(connection: Connection) -> Callable[[], bool]:
    """Whether the file is still the one that was opened."""
    path = Path(connection.engine.url.database or "")
    opened = _identity(path)
    return lambda: _identity(path) == opened


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        there = path.stat()
    except FileNotFoundError:
        return None
    return there.st_dev, there.st_ino


def _of_server(connection: Connection) -> Callable[[], bool]:
    """Whether there is nothing to read: a server that ends a connection says so, or hangs up."""
    driver = connection.connection.driver_connection
    assert driver is not None  # noqa: S101 - it was opened just now
    number = driver.fileno()

    def silent() -> bool:
        poll = select.poll()
        poll.register(number, select.POLLIN)
        return not poll.poll(0)

    return silent
