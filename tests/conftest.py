"""What holds for all tests: none reads or writes what a gateway of the user's or of another test keeps."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

_numbers = count(1)


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
