"""The databases that the tests of the store run on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store.databases import KINDS, empty
from tests.store.postgres import Postgres


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database of each kind with nothing in its tables."""
    return empty(request, tmp_path)


@pytest.fixture(params=KINDS)
def bare(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new database of each kind, without tables."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/maitred.db"
    server: Postgres = request.getfixturevalue("server")
    return server.make(f"of-{tmp_path.name}")
