"""What all tests have in common: no other state than their own, and one PostgreSQL."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.store.databases import made
from tests.store.postgres import Postgres, postgres

# A busy machine is no fault of what is tested.
# Where a change is judged the examples are the same each time; everywhere else they are new ones.
settings.register_profile(
    "tests", deadline=None, derandomize="CI" in os.environ, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tests")
_numbers = count(1)


def pytest_collection_finish() -> None:
    """Have the collector leave alone what was collected: some tests call it, and look at all there is."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def states(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Whatever is started for all tests keeps its state here."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("state")
        patch.setenv("XDG_STATE_HOME", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def state_of_its_own(states: Path) -> Iterator[None]:
    """What a test starts keeps it in a folder that is not there yet."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(states / str(next(_numbers))))
        yield


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Token ids are waited for, however busy the machine."""
    for module in ("beside", "theirs"):
        monkeypatch.setattr(f"maitred.door.{module}.TIMEOUT_S", 60.0)


@pytest.fixture(scope="session")
def server() -> Iterator[Postgres]:
    """One server for all tests, each with a database of its own there; who kills it starts it again."""
    with postgres() as running:
        yield running


@pytest.fixture(scope="session")
def database(server: Postgres) -> str:
    """A database of the server, with tables that are emptied for each test."""
    return made(server.make("turns"))


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database in a file, with its tables, to be copied."""
    file = tmp_path_factory.mktemp("empty") / "maitred.db"
    made(f"sqlite:///{file}")
    return file
