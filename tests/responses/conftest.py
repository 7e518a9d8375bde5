"""The databases that turns are kept in: a SQLite file and a real PostgreSQL, empty for each test."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from maitred.store import state_tables
from maitred.store.store import Store
from tests.store.postgres import Postgres

TABLES = ", ".join(table.name for table in state_tables.responses.metadata.sorted_tables)


def made(url: str) -> str:
    """The same, with its tables."""

    async def make() -> None:
        store = Store.open(url)
        await store.upgrade()
        await store.close()

    asyncio.run(make())
    return url


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("empty") / "maitred.db"
    made(f"sqlite:///{file}")
    return file


@pytest.fixture(scope="session")
def database(server: Postgres) -> str:
    return made(server.make("turns"))


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        empty: Path = request.getfixturevalue("empty_file")
        return f"sqlite:///{shutil.copy(empty, tmp_path / 'maitred.db')}"
    server: Postgres = request.getfixturevalue("server")
    found: str = request.getfixturevalue("database")
    server.run(f"TRUNCATE {TABLES}", "turns")
    return found


@pytest.fixture
def file(empty_file: Path, tmp_path: Path) -> str:
    """An empty database."""
    return f"sqlite:///{shutil.copy(empty_file, tmp_path / 'maitred.db')}"
