"""The documentation of workload files says every setting, and its examples load."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from msgspec import Struct

from maitred.config.load import load
from maitred.config.setting import fields_of
from maitred.config.show import default_words
from maitred.sim.ladder import Ladder
from maitred.sim.prompts import Alone, Conversations, Groups
from maitred.sim.simulate import nodes_of
from maitred.sim.stages import Arrivals, Between, Bursts, Gamma, RateStage, UserStage
from maitred.sim.traces import TraceFile
from maitred.sim.traffic import Generated, Sent
from maitred.sim.workload import File, load_workload

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "simulator.md").read_text()
EXAMPLES = sorted((ROOT / "examples").glob("*/fleet.yaml"))


def documented(heading: str) -> list[str]:
    """The rows of the table under a heading."""
    under = PAGE.split(f"#### {heading}\n", 1)[1].split("\n#", 1)[0]
    return [line for line in under.splitlines() if line.startswith("| `")]


@pytest.mark.parametrize(
    ("heading", "section", "elsewhere"),
    [
        ("A workload", File, ()),
        ("Every class", Sent, ()),
        ("A class that is made up", Generated, [field.name for field in fields_of(Sent)]),
        ("A class that was recorded: `trace`", TraceFile, ()),
        ("`prompts` one by one", Alone, ()),
        ("`prompts` in groups", Groups, ()),
        ("`prompts` in conversations", Conversations, ()),
        ("`arrivals`", Arrivals, ("between",)),
        ("`arrivals.between`", Between, ()),
        ("A stage at a rate", RateStage, ()),
        ("A stage of users", UserStage, ()),
        ("`pattern` in clusters", Gamma, ()),
        ("`pattern` in bursts", Bursts, ()),
    ],
)
def test_every_setting_of_a_workload_is_documented(
    heading: str, section: type[Struct], elsewhere: list[str]
) -> None:
    wanted = [
        f"| `{field.setting.key}` | {default_words(field)} | {field.setting.doc} |"
        for field in fields_of(section)
        if field.name not in elsewhere
    ]
    assert sorted(documented(heading)) == sorted(wanted)


def test_the_documented_files_load(tmp_path: Path) -> None:
    for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL):
        path = tmp_path / "file.yaml"
        path.write_text(text)
        if "traffic" in yaml.safe_load(text):
            assert load_workload(path).longest_tokens()
        else:
            assert nodes_of(load(path, {}))


@pytest.mark.parametrize("fleet", EXAMPLES, ids=lambda path: path.parent.name)
def test_the_examples_go_together(fleet: Path) -> None:
    assert len(EXAMPLES) == 5
    (workload,) = [path for path in fleet.parent.glob("*.yaml") if "traffic:" in path.read_text()]
    nodes = nodes_of(load(fleet, {}))
    for model, tokens in load_workload(workload).longest_tokens().items():
        assert tokens <= max(node.profile.request_tokens_max for node in nodes if node.pool == model)


def test_what_a_ladder_prints_is_documented() -> None:
    assert {name.split("_")[0] for name in Ladder.__struct_fields__} >= {"oracle", "bound"}
    assert "*oracle*" in PAGE
    assert "*bound*" in PAGE
