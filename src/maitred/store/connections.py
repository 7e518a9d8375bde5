"""The connections on which conversations are worked: of SQLite one that writes and two that read.

A file that was put in the place of another is noticed before the next operation.
"""

from __future__ import annotations

from pathlib import Path
from sqlite3 import Connection as Driver

from sqlalchemy import Connection, Engine, NullPool, create_engine, event
from sqlalchemy.pool import ConnectionPoolEntry

from maitred.store.lane import Lane
from maitred.store.store import Store

READERS = 2
"""Threads that read a file; more would only wait for the interpreter."""
_FILE = "file"
"""What a connection keeps in mind of its file: the device and number of the one that it opened."""


def lanes(store: Store) -> tuple[Lane, Lane]:
    """Threads that read, and threads that write."""
    if store.is_file:
        reading, writing = (_file_engine(store, begin) for begin in ("BEGIN", "BEGIN IMMEDIATE"))
        return (
            Lane("store reads", reading.connect, _same_file, READERS),
            Lane("store writes", writing.connect, _same_file, grouped=True),
        )
    engine = create_engine(store.url, poolclass=NullPool, connect_args=store.limits)
    readers = max(1, store.pool // 2)
    reading = engine.execution_options(isolation_level="AUTOCOMMIT")
    return (
        Lane("store reads", reading.connect, _always, readers),
        Lane("store writes", engine.connect, _always, max(1, store.pool - readers)),
    )


def _file_engine(store: Store, begin: str) -> Engine:
    # The driver would begin transactions by itself, and too late.
    engine = create_engine(
        store.url, poolclass=NullPool, connect_args=store.limits | {"isolation_level": None}
    )

    @event.listens_for(engine, "connect")
    def connected(driver: Driver, entry: ConnectionPoolEntry) -> None:
        driver.execute("PRAGMA journal_mode=WAL").close()
        driver.execute(f"PRAGMA synchronous={'FULL' if store.full else 'NORMAL'}").close()
        entry.info[_FILE] = _identity(store.url.database)

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine


def _same_file(connection: Connection) -> bool:
    return bool(connection.info[_FILE] == _identity(connection.engine.url.database))


def _identity(path: str | None) -> tuple[int, int] | None:
    try:
        there = Path(path or "").stat()
    except FileNotFoundError:
        return None
    return there.st_dev, there.st_ino


def _always(_connection: Connection) -> bool:
    return True
