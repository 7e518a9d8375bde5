"""The database: SQLite unless a PostgreSQL is named. Imported only by who uses one; it takes a while.

Nobody on a request's path waits for it: `control/keys.py` reads it beside the requests. Every call is over
within CALL_S, and raises StoreError when the database cannot be reached or used. The timeouts of the driver
are shorter: what is given up there leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

from msgspec import json, structs
from sqlalchemy import Engine, NullPool, RowMapping, create_engine, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, IntegrityError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from maitred.core.limits import UNLIMITED, Limits
from maitred.store import schema, tables
from maitred.store.accounts import charging
from maitred.store.rows import Account, KeyRow, SchemaError, StoreError

log = logging.getLogger("maitred.store")

CONNECT_S = 3
STATEMENT_S = 5
CALL_S = 10.0
UPGRADE_S = 60.0
CONNECTIONS_MAX = 4
POOL = 6
VANISHED = {
    "keepalives_idle": 3,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 9_000,
}
"""A server whose machine is gone says nothing. Else the system would wait for it for a quarter of an hour."""
ROWS_AT_ONCE = 250
"""Rows that are turned to values without letting anybody else run: about a millisecond's work."""
REASON_CHARS_MAX = 200

DRIVERS = {
    "sqlite": ("sqlite", "sqlite+aiosqlite"),
    "postgresql": ("postgresql+psycopg", "postgresql+psycopg"),
    "postgres": ("postgresql+psycopg", "postgresql+psycopg"),
}
"""Schemes that may be written, each with the driver for upgrades and the one for a loop."""

NOT_KEPT = (None, "", ":memory:")
WRONG = (SQLAlchemyError, OSError, StoreError)
"""What a database that cannot be used shows itself by."""

Mark = tuple[int | None, ...]


class Store:
    """One database. Made by `open`, which does not touch it yet."""

    def __init__(self, url: URL, pool: int, statement_s: float, *, full: bool) -> None:
        self.pool = pool
        self.full = full
        waiting, looping = (url.set(drivername=name) for name in DRIVERS[url.drivername])
        self._password = url.password
        self.is_file = url.drivername == "sqlite"
        self.place = (
            f"sqlite:///{url.database}" if self.is_file else f"postgresql at {url.host or 'a socket'}"
        )
        self.limits = limits = _limits(self.is_file, statement_s)
        self.url = waiting
        # Migrations begin their transactions themselves, as the driver of SQLite would not before CREATE.
        begun = {"isolation_level": None} if self.is_file else {}
        self._waiting: Engine = create_engine(waiting, poolclass=NullPool, connect_args=limits | begun)
        self._engine: AsyncEngine = create_async_engine(looping, connect_args=limits, **_pool(self.is_file))

    @classmethod
    def open(cls, url: str, pool: int = POOL, statement_s: float | None = None, *, full: bool = True) -> Self:
        """The database at `sqlite:///PATH` or `postgresql://…`. Raises StoreError.

        `pool` is how many connections to a PostgreSQL are kept for conversations; nothing else uses them.
        `statement_s` is the most that one statement may take, STATEMENT_S unless given. `full`: what is
        committed to a file is on the disk.
        """
        try:
            parsed = make_url(url)
        except (ArgumentError, ValueError):
            parsed = None
        if parsed is None or parsed.drivername not in DRIVERS or parsed.database in NOT_KEPT:
            raise StoreError(
                "it is no URL of a database; write sqlite:///PATH or postgresql://USER:PASSWORD@HOST/NAME"
            )
        try:
            return cls(parsed, pool, STATEMENT_S if statement_s is None else statement_s, full=full)
        except (ImportError, NoSuchModuleError):
            raise StoreError("PostgreSQL needs another package; pip install 'maitred[postgres]'") from None

    async def prepare(self) -> None:
        """See that the tables are this program's; those in a file are brought to it.

        Raises SchemaError where somebody has to see to it.
        """
        if self.is_file:
            await self.upgrade()
            return
        async with self.call(), self._engine.connect() as connection:
            version = await connection.run_sync(schema.current)
        if version != schema.newest():
            self._check_known(version)
            what = "of an older maitred" if version else "not made yet"
            raise SchemaError(f"the tables ({self.place}) are {what}; run maitred db upgrade")

    async def upgrade(self) -> str:
        """Bring the tables to this program's version, which is returned."""
        async with self.call(UPGRADE_S):
            await asyncio.to_thread(self._upgrade)
        return schema.newest()

    def _upgrade(self) -> None:
        with self._waiting.begin() as connection:
            version = schema.current(connection)
            self._check_known(version)
            if version != schema.newest():
                schema.upgrade(connection)
            if version is None:
                log.info("%s is new: there are no keys and no accounts in it", self.place)

    def _check_known(self, version: str | None) -> None:
        if version is not None and not schema.knows(version):
            raise SchemaError(f"the tables ({self.place}) are of a later maitred; use that one or a copy")

    async def close(self) -> None:
        """Let go of every connection."""
        await self._engine.dispose()
        self._waiting.dispose()

    # -- keys -------------------------------------------------------------------------------------

    async def mark(self) -> Mark:
        """Changes whenever a key is added, revoked or deleted; cheap to ask."""
        columns = tables.keys.c
        asked = select(
            func.count(),
            func.count(columns.revoked_ms),
            func.max(columns.created_ms),
            func.max(columns.revoked_ms),
        ).select_from(tables.keys)
        async with self.call(), self._engine.connect() as connection:
            return tuple((await connection.execute(asked)).one())

    async def keys(self) -> list[KeyRow]:
        """All keys, revoked ones included, the oldest first."""
        asked = select(tables.keys).order_by(tables.keys.c.created_ms, tables.keys.c.id)
        found: list[KeyRow] = []
        async with self.call(), self._engine.connect() as connection:
            rows = await connection.stream(asked)
            async for part in rows.mappings().partitions(ROWS_AT_ONCE):
                found += [_key(row) for row in part]
        return found

    async def add_key(self, key: KeyRow) -> None:
        """Keep a new key. Raises StoreError also when it is there already."""
        values = {
            "id": key.id,
            "digest": key.digest,
            "tenant": key.tenant,
            "models": _json(key.models),
            "bands": _json(key.bands),
            "may_set": _json(key.may_set),
            "limits": _json(key.limits),
            "created_ms": key.created_ms,
            "expires_ms": key.expires_ms,
            "revoked_ms": key.revoked_ms,
            "note": key.note,
        }
        async with self.call():
            try:
                async with self._engine.begin() as connection:
                    await connection.execute(tables.keys.insert().values(values))
            except IntegrityError:
                raise StoreError("this key is there already") from None

    async def revoke_key(self, id_: str, at_ms: int) -> bool:
        """Take a key back; False where none of this id is in force."""
        columns = tables.keys.c
        revoked = (
            update(tables.keys)
            .where(columns.id == id_, columns.revoked_ms.is_(None))
            .values(revoked_ms=at_ms)
        )
        async with self.call(), self._engine.begin() as connection:
            return bool((await connection.execute(revoked)).rowcount)

    # -- accounts ---------------------------------------------------------------------------------

    async def accounts(self, month: str) -> list[Account]:
        """What everybody has spent in this month, and in the last day of it that he spent in."""
        asked = select(tables.accounts).where(tables.accounts.c.month == month)
        found: list[Account] = []
        async with self.call(), self._engine.connect() as connection:
            rows = await connection.stream(asked)
            async for part in rows.mappings().partitions(ROWS_AT_ONCE):
                found += [Account(**row) for row in part]
        return found

    async def charge(self, charges: Sequence[Account]) -> list[Account]:
        """Add these to what is there, all or none, and tell what is there now. No holder may be twice."""
        added = charging((sqlite.insert if self.is_file else postgresql.insert)(tables.accounts))
        found: list[Account] = []
        async with self.call(), self._engine.begin() as connection:
            for start in range(0, len(charges), ROWS_AT_ONCE):
                rows = [structs.asdict(charge) for charge in charges[start : start + ROWS_AT_ONCE]]
                found += [Account(**row) for row in (await connection.execute(added, rows)).mappings()]
        return found

    async def prune(self, before: str) -> bool:
        """Delete accounts of months before this one, some at a time; whether there may be more of them.

        Rows that somebody is charging are passed by: so neither waits for the other's.
        """
        old = tables.accounts.alias()
        found = select(old.c.holder).where(old.c.month < before).limit(ROWS_AT_ONCE)
        pruned = delete(tables.accounts).where(
            tables.accounts.c.holder.in_(found.with_for_update(skip_locked=True))
        )
        async with self.call(), self._engine.begin() as connection:
            return (await connection.execute(pruned)).rowcount >= ROWS_AT_ONCE

    @asynccontextmanager
    async def call(self, within_s: float = CALL_S) -> AsyncIterator[None]:
        """What is done within is over in time, and whatever goes wrong with it is a StoreError."""
        try:
            async with asyncio.timeout(within_s):
                yield
        except WRONG as error:
            raise self.wrong(error, within_s) from None

    def wrong(self, error: Exception, within_s: float) -> StoreError:
        """What goes wrong with a call that was to be done within."""
        if isinstance(error, StoreError):
            return error
        late = isinstance(error, TimeoutError)
        return StoreError(f"{self.place}: {f'no answer in {within_s:g} s' if late else self._reason(error)}")

    def _reason(self, error: Exception) -> str:
        """One line of what the driver says; some say the URL, and so the password."""
        said = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
        if self._password:
            said = said.replace(self._password, "…")
        return said[:REASON_CHARS_MAX] or type(error).__name__


def _pool(is_file: bool) -> dict[str, Any]:
    """How connections are kept. One to a file would go on with what was there when it was opened."""
    if is_file:
        return {"poolclass": NullPool}
    return {
        "pool_size": CONNECTIONS_MAX,
        "max_overflow": 0,
        "pool_timeout": CONNECT_S,
        "pool_pre_ping": True,
    }


def _limits(is_file: bool, statement_s: float) -> dict[str, Any]:
    """What the driver is told of waiting."""
    if is_file:
        return {"timeout": statement_s}
    return {
        "connect_timeout": CONNECT_S,
        "options": f"-c statement_timeout={statement_s * 1000:.0f}",
        **VANISHED,
    }


def _json(value: object) -> str:
    return json.encode(value).decode()


def _key(row: RowMapping) -> KeyRow:
    return KeyRow(
        id=row["id"],
        digest=bytes(row["digest"]),
        tenant=row["tenant"],
        created_ms=row["created_ms"],
        models=_names(row["models"]),
        bands=_names(row["bands"]),
        may_set=_names(row["may_set"]),
        limits=limits if (limits := _limits_in(row["limits"])) != UNLIMITED else UNLIMITED,
        expires_ms=row["expires_ms"],
        revoked_ms=row["revoked_ms"],
        note=row["note"],
    )


_names = json.Decoder(tuple[str, ...]).decode
_limits_in = json.Decoder(Limits).decode
