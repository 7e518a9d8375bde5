"""Databases for tests: a SQLite file and a real PostgreSQL, with their tables and nothing in them."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from maitred.store import state_tables
from maitred.store.store import Store
from tests.store.postgres import Postgres

KINDS = ["sqlite", "postgresql"]
TABLES = ", ".join(table.name for table in state_tables.responses.metadata.sorted_tables)


def made(url: str) -> str:
    """The same, with its tables."""

    async def make() -> None:
        store = Store.open(url)
        await store.upgrade()
        await store.close()

    asyncio.run(make())
    return url


def empty(request: pytest.FixtureRequest, folder: Path) -> str:
    """One of the kind that a fixture with parameters is asked for; it is made once and emptied each time."""
    if request.param == "sqlite":
        return f"sqlite:///{shutil.copy(request.getfixturevalue('empty_file'), folder / 'maitred.db')}"
    server: Postgres = request.getfixturevalue("server")
    found: str = request.getfixturevalue("database")
    server.run(f"TRUNCATE {TABLES}", "turns")
    return found
