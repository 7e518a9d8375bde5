"""The databases that turns are kept in."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.store.databases import KINDS, empty


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database of each kind with nothing in its tables."""
    return empty(request, tmp_path)


@pytest.fixture
def file(empty_file: Path, tmp_path: Path) -> str:
    """An empty database."""
    return f"sqlite:///{shutil.copy(empty_file, tmp_path / 'maitred.db')}"
