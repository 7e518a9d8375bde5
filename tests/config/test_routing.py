"""Policies put together in a file: what is read, what is said of what is wrong, and that it is documented."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from maitred.config.load import load
from maitred.config.options import options_of
from maitred.config.raw import ConfigError
from maitred.core.chooser import ROUTING
from maitred.core.filters import FILTERS
from maitred.core.pickers import PICKERS
from maitred.core.recipe import Piece, Recipe
from maitred.core.scorers import SCORERS
from maitred.core.words import PoolSettings

DOCS = Path(__file__).parents[2] / "docs" / "configuration.md"


def pool(path: Path, routing: str) -> PoolSettings:
    """What the core is told of a model with this `routing`."""
    path.write_text(f"version: 1\nmodels: [{{name: m, endpoints: [http://h], routing: {routing}}}]\n")
    return load(path, environ={}).core_settings().pools["m"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "maitred.yaml"


@pytest.mark.parametrize(
    ("written", "routing"),
    [
        ("llm-d", "llm-d"),
        ("{}", Recipe()),
        (
            "{filters: [room, {name: context-length}], picker: random}",
            Recipe((Piece("room"), Piece("context-length")), (), Piece("random")),
        ),
        (
            "{scorers: [kv-use, {name: token-load, weight: 0.5, tokens_max: 2M}, {weight: 3, name: prefix}]}",
            Recipe(
                scorers=(
                    Piece("kv-use"),
                    Piece("token-load", (("tokens_max", 2_000_000),), 0.5),
                    Piece("prefix", weight=3.0),
                )
            ),
        ),
        (
            "{filters: [{name: prefix-cache-affinity, threshold: 0.9, ttft_penalty_max: 1500ms}]}",
            Recipe((Piece("prefix-cache-affinity", (("threshold", 0.9), ("ttft_penalty_max_s", 1.5))),)),
        ),
    ],
)
def test_what_is_written_is_what_the_core_is_told(path: Path, written: str, routing: str | Recipe) -> None:
    assert pool(path, written).routing == routing
    assert callable(ROUTING[routing])


@pytest.mark.parametrize(
    ("written", "where", "message"),
    [
        ("llmd", "", f"'llmd' is not known; write {' or '.join(ROUTING.names)}"),
        ("[llm-d]", "", "must be a policy's name, or filters, scorers and a picker"),
        ("{filter: [room]}", ".filter", "unknown key; did you mean filters?"),
        (
            "{filters: [rom]}",
            ".filters[0]",
            "'rom' is not known; write room or context-length or prefix-cache-affinity",
        ),
        ("{filters: room}", ".filters", "must be a list, each item behind a dash or all within [ ]"),
        ("{scorers: [{weight: 2}]}", ".scorers[0]", "name is missing; write name: least-requests"),
        ("{scorers: [{name: lora, weigth: 2}]}", ".scorers[0].weigth", "unknown key; did you mean weight?"),
        (
            "{scorers: [{name: lora, weight: -1}]}",
            ".scorers[0].weight",
            "'-1' is no number; write one such as 2 or 0.8",
        ),
        ("{scorers: [{name: lora, weight: [1]}]}", ".scorers[0].weight", "must be one value, such as 0.8"),
        ("{scorers: [{name: session, slack: 1}]}", ".scorers[0].slack", "1 has no unit; write 1s"),
        ("{scorers: [{name: lora, load_factor: 0}]}", ".scorers[0]", "load_factor is 0; write at least 1"),
        ("{picker: {name: random, weight: 1}}", ".picker.weight", "unknown key; known here: name"),
        ("{picker: [random]}", ".picker", "must be one value, such as max-score"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(path: Path, written: str, where: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        pool(path, written)
    assert caught.value.errors == [f"{path}:2 models[0].routing{where}: {message}"]


def test_every_policy_piece_and_option_is_documented() -> None:
    (text,) = re.findall(r"#### Routing\n(.*?)\n### ", DOCS.read_text(), re.DOTALL)
    listed = {}
    for title, rows in re.findall(r"\n(\w+)[^\n]*:\n\n((?:- .*\n(?:  .*\n)*)+)", text):
        listed[title] = dict(re.findall(r"- `([a-z0-9-]+)`: ((?:.*\n)(?:  .*\n)*)", rows))
    assert list(listed["Policies"]) == ROUTING.names
    for title, family in (("Filters", FILTERS), ("Scorers", SCORERS), ("Pickers", PICKERS)):
        assert list(listed[title]) == list(family)
        for name, piece in family.items():
            for key, option in options_of(piece).items():
                default = option.kind.write(option.default)
                assert f"`{key}`" in listed[title][name]
                assert str(default) in listed[title][name]
