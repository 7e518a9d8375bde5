"""The databases that the tests of the store run on: a new SQLite file, and a real PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store.postgres import Postgres


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/maitred.db"
    server: Postgres = request.getfixturevalue("server")
    return server.make(f"of-{tmp_path.name}")
