"""Making, listing and revoking keys, and upgrading the store: for the commands, on the store itself.

A running gateway sees what is done here when it next reads its keys.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from msgspec import structs

from maitred.app.identity import open_store
from maitred.app.memory import place_of
from maitred.config.auth import Auth, Store
from maitred.config.prices import any_priced, bounds_money, unpriced, usable
from maitred.config.secret import checked
from maitred.config.tree import Config
from maitred.config.units import quote
from maitred.control.keys import digest, mint
from maitred.store.rows import KeyRow, StoreError
from maitred.store.state import STATS_S, StateStore
from maitred.store.state_rows import TableStats
from maitred.store.store import Store as Database

T = TypeVar("T")


class NoKeys(Exception):  # noqa: N818 - names what is the case
    """The configuration keeps no keys; its text says what to write."""


def add(config: Config, key: KeyRow, imported: str | None = None) -> tuple[str, str]:
    """Keep a key like this one, whose id, digest and time are filled in; its id, and the key itself.

    `imported` is a key that is in use elsewhere. Raises NoKeys, StoreError; ValueError for a bad key, and a
    band that the configuration does not name.
    """
    auth = config.auth
    if not isinstance(auth, Auth) or not auth.keys or auth.pepper is None:
        raise NoKeys("no keys are kept; write auth: {keys: store, pepper: {env: MAITRED_AUTH_PEPPER}}")
    known = [band.name for band in config.bands]
    if known and (strange := next((band for band in key.bands if band not in known), None)):
        raise ValueError(f"no band is named {quote(strange)}; there are {', '.join(known)}")
    if (said := left_out(config, key)) and not any_priced(usable(config, key.models)):
        raise ValueError(said)
    id_, token = mint()
    if imported is not None:
        token = checked(imported, "standard input")
    pepper = auth.pepper.reveal(os.environ).encode()
    row = structs.replace(key, id=id_, digest=digest(pepper, token.encode()), created_ms=now_ms())
    _with_store(config.store, lambda store: store.add_key(row))
    return id_, token


def left_out(config: Config, key: KeyRow) -> str:
    """What the key's budget in money does not count, and what to do; "" for nothing."""
    said = unpriced(usable(config, key.models)) if bounds_money(key.limits) else ""
    return f"a budget in money {said}" if said else ""


def listed(config: Config) -> list[KeyRow]:
    """All keys, the oldest first. Raises StoreError."""
    return _with_store(config.store, Database.keys)


def revoke(config: Config, id_: str) -> bool:
    """Take a key back; False where none of this id is in force. Raises StoreError."""
    return _with_store(config.store, lambda store: store.revoke_key(id_, now_ms()))


def upgrade(config: Config) -> str:
    """Bring the store's tables to this program's version, which is returned. Raises StoreError."""
    return _with_store(config.store, Database.upgrade, prepared=False)


def stats(config: Config) -> tuple[str, list[TableStats]]:
    """Where conversations are kept, and how much of them of each tenant. Raises StoreError."""
    keys_kept = isinstance(config.auth, Auth) and config.auth.keys
    settings = config.store if keys_kept else place_of(config.store)
    store = open_store(structs.replace(settings, statement_s=STATS_S))
    if store.place.is_file and not Path(store.place.url.database or "").exists():
        raise StoreError(f"{store.place}: nothing is kept there yet")
    return asyncio.run(_stats(store))


async def _stats(store: Database) -> tuple[str, list[TableStats]]:
    state = StateStore(store)
    try:
        await state.start()
        return str(store.place), await state.stats()
    finally:
        await state.close()
        await store.close()


def now_ms() -> int:
    """The time, UTC, in ms since 1970."""
    return int(time.time() * 1000)


def _with_store(settings: Store, work: Callable[[Database], Awaitable[T]], *, prepared: bool = True) -> T:
    async def main() -> T:
        store = open_store(settings)
        try:
            if prepared:
                await store.prepare()
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(main())
