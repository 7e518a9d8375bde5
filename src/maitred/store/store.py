"""The database: SQLite unless a PostgreSQL is named. Imported only by who uses one; it takes a while.

Nobody on a request's path waits for it: `control/keys.py` reads it beside the requests. Every call is over
within CALL_S, and raises StoreError when the database cannot be reached or used.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Self, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import NoSuchModuleError

from maitred.store import accounts, connections, keys, schema
from maitred.store.keys import Mark
from maitred.store.place import CONNECTIONS, Place
from maitred.store.rows import Account, KeyRow, SchemaError, StoreError

T = TypeVar("T")

log = logging.getLogger("maitred.store")

UPGRADE_S = 60.0
OWN = 2
"""Connections for keys and accounts, which so wait neither for conversations nor for one another."""


class Store:
    """Its keys and accounts. Made by `open`, which does not touch it yet."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._lanes = connections.lanes(place, "keys", OWN)

    @classmethod
    def open(
        cls, url: str, pool: int = CONNECTIONS, statement_s: float | None = None, *, full: bool = True
    ) -> Self:
        """The database of this URL; all else is as in Place. Raises StoreError."""
        try:
            return cls(Place.at(url, pool, statement_s, full=full))
        except (ImportError, NoSuchModuleError):
            raise StoreError("PostgreSQL needs another package; pip install 'maitred[postgres]'") from None

    async def prepare(self) -> None:
        """See that the tables are this program's; those in a file are brought to it.

        Raises SchemaError where somebody has to see to it.
        """
        version = await self._lanes.read(schema.current)
        if version == schema.newest():
            return
        if self.place.is_file:
            await self.upgrade()
            return
        self._check_known(version)
        what = "of an older maitred" if version else "not made yet"
        raise SchemaError(f"the tables ({self.place}) are {what}; run maitred db upgrade")

    async def upgrade(self) -> str:
        """Bring the tables to this program's version, which is returned."""
        await self._lanes.write(self._upgrade, within_s=UPGRADE_S)
        return schema.newest()

    def _upgrade(self, connection: Connection) -> None:
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
        """Do what waits, and let go of every connection."""
        await self._lanes.close()

    # -- keys -------------------------------------------------------------------------------------

    async def mark(self) -> Mark:
        """Changes whenever a key is added, revoked or deleted; cheap to ask."""
        return await self._lanes.read(keys.mark)

    async def keys(self) -> list[KeyRow]:
        """All keys, revoked ones included, the oldest first."""
        return await self._lanes.read(keys.every)

    async def add_key(self, key: KeyRow) -> None:
        """Keep a new key. Raises StoreError also where another has its id or its digest."""
        await self._lanes.write(lambda c: keys.add(c, key))

    async def revoke_key(self, id_: str, at_ms: int) -> bool:
        """Take a key back; False where none of this id is in force."""
        return await self._lanes.write(lambda c: keys.revoke(c, id_, at_ms))

    # -- accounts ---------------------------------------------------------------------------------

    async def accounts(self, month: str) -> list[Account]:
        """What everybody has spent in this month, and in the last day of it that he spent in."""
        return await self._lanes.read(lambda c: accounts.spent(c, month))

    async def charge(self, charges: Sequence[Account]) -> list[Account]:
        """Add these to what is there, all or none, and tell what is there now. No holder may be twice."""
        return await self._lanes.write(lambda c: accounts.charge(c, charges))

    async def prune(self, before: str) -> bool:
        """Delete accounts of months before this one, some at a time; whether there may be more of them."""
        return await self._lanes.write(lambda c: accounts.prune(c, before))
