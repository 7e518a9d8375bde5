"""Policies from other packages: the example's are let in and choose; what cannot be used is said."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from maitred.app import outside
from maitred.config import load as configuration
from maitred.config.raw import ConfigError
from maitred.core.chooser import PREFIXED, ROUTING
from maitred.core.filters import FILTERS
from maitred.core.pickers import PICKERS
from maitred.core.scorers import SCORERS
from tests.core.places import LIMITS, endpoint, ticket

EXAMPLE = Path(__file__).parents[2] / "examples" / "own-policy"


@pytest.fixture(autouse=True)
def families(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The families as they were, after each test."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    with (
        patch.dict(FILTERS),
        patch.dict(SCORERS),
        patch.dict(PICKERS),
        patch.dict(ROUTING),
    ):
        yield


def offered() -> list[EntryPoint]:
    """What the example's package says that it has."""
    groups = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]["entry-points"]
    return [
        EntryPoint(name, value, group) for group, entries in groups.items() for name, value in entries.items()
    ]


def test_the_example_is_let_in_and_chooses(tmp_path: Path) -> None:
    outside.add(offered())
    places = [
        endpoint("a", load={"preemptions": 9}, observed_at=9.0),
        endpoint("b", load={"preemptions": 3}, observed_at=9.0, running=1),
        endpoint("c", load={"preemptions": 0}, observed_at=1.0),
    ]
    found = {name: ROUTING[name](places, ticket(), LIMITS, 10.0) for name in ("calm-first", "first")}
    assert {name: each.name if each else None for name, each in found.items()} == {
        "calm-first": "b",
        "first": "a",
    }
    assert "calm-first" in PREFIXED
    path = tmp_path / "maitred.yaml"
    path.write_text((EXAMPLE / "README.md").read_text().split("```yaml\n")[1].split("```")[0])
    routing = configuration.load(path, environ={}).core_settings().pools["qwen3-32b"].routing
    assert ROUTING[routing](places, ticket(), LIMITS, 10.0) is places[1]


@pytest.mark.parametrize(
    ("group", "name", "value", "why"),
    [
        ("filters", "a", "nowhere:Fresh", "No module named 'nowhere'"),
        ("filters", "a", "own_policy:Nobody", "module 'own_policy' has no attribute 'Nobody'"),
        ("filters", "room", "own_policy:Fresh", "there is one of this name already; give it another"),
        ("filters", "a", "own_policy:Calm", "it has no method keep"),
        ("scorers", "a", "own_policy:first", "it is no msgspec Struct"),
        ("scorers", "a", "maitred.core.words:Usage", "it has no method score"),
        ("pickers", "a", "maitred.core.words:Ticket", "its option request must be a float, int, bool or str"),
        ("profiles", "llm-d", "own_policy:first", "there is one of this name already; give it another"),
        ("profiles", "a", "own_policy:EXAMPLE", "module 'own_policy' has no attribute 'EXAMPLE'"),
        ("profiles", "a", "maitred.core.words:PROGRESS_TOKENS", "it is neither a recipe nor a function"),
        ("profiles", "a", "own_policy:CALM_FIRST", "there is no 'fresh'"),
    ],
)
def test_what_cannot_be_used_is_said(group: str, name: str, value: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        outside.add([EntryPoint(name, value, f"maitred.{group}")])
    assert caught.value.errors == [f"a package: {name!r} of maitred.{group} cannot be used: {why}"]


def test_all_groups_are_looked_for_once_before_the_file_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def found(*, group: str) -> list[EntryPoint]:
        asked.append(group)
        return [EntryPoint("calm", "own_policy:Calm", group)] if group == "maitred.scorers" else []

    outside.find.cache_clear()
    monkeypatch.setattr(outside, "entry_points", found)
    for _ in range(2):
        outside.load(None, {"endpoints": ["http://h"]}, environ={})
    outside.find.cache_clear()
    assert asked == ["maitred.filters", "maitred.scorers", "maitred.pickers", "maitred.profiles"]
    assert "calm" in SCORERS
