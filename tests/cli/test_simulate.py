"""`maitred simulate` as a user meets it: a table, JSON, a report, and errors that say what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from maitred.cli.main import main

DATA = Path(__file__).parents[1] / "data"
FLEET = """
version: 1
models:
  - {name: m, endpoints: [http://a:1, http://b:1], cap: 8}
simulate: {profile: h100-llama-3.1-8b}
"""
WORKLOAD = """
version: 1
traffic:
  - {name: chat, model: m, prompts: {groups: 4, per_group: 2, shared: 400, own: 50}, output: 40}
arrivals: {stages: [{rate: 10/s, duration: 3s}, {rate: 20/s, duration: 2s}]}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "fleet.yaml").write_text(FLEET)
    (tmp_path / "load.yaml").write_text(WORKLOAD)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def say(*words: str) -> Result:
    return CliRunner().invoke(main, ["simulate", *words])


def run(*words: str) -> Result:
    return say("-c", "fleet.yaml", "--workload", "load.yaml", *words)


def test_a_table_for_people(folder: Path) -> None:
    said = run()
    assert said.exit_code == 0, said.output
    assert ["requests", "70"] in [line.split() for line in said.stdout.splitlines()]
    assert "TTFT p50" in said.stdout


def test_columns_side_by_side_and_a_report(folder: Path) -> None:
    said = run("--routing", "round-robin", "--routing", "least-requests", "--seeds", "2", "--html", "r.html")
    assert said.exit_code == 0, said.output
    assert "Against round-robin" in said.stdout
    page = (folder / "r.html").read_text()
    assert "least-requests" in page
    assert "<svg" in page


def test_json_is_the_same_each_time(folder: Path) -> None:
    (folder / "load.yaml").write_text(WORKLOAD.replace(", {rate: 20/s, duration: 2s}", ""))
    first, again = run("--json"), run("--json")
    assert first.exit_code == 0
    assert first.stdout == again.stdout
    assert json.loads(first.stdout)[0]["whole"]["figures"]["completed"]["mean"] == 30


def test_of_a_ladder_json_is_what_it_shows(folder: Path) -> None:
    drained = WORKLOAD.replace("arrivals: {", "arrivals: {between: {drain: true}, ")
    (folder / "load.yaml").write_text(drained)
    said = run("--json", "--seeds", "2")
    assert said.exit_code == 0, said.output
    shown = json.loads(said.stdout)
    assert [stage["rate"] for stage in shown["stages"]] == [10.0, 20.0]
    assert shown["oracle_peak_output_tokens_per_s"] > 0


RUN = ("-c", "fleet.yaml", "--workload", "load.yaml")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "give a configuration (-c) and a workload (--workload)"),
        (("-c", "nowhere.yaml", "--workload", "load.yaml"), "nowhere.yaml"),
        (("-c", "load.yaml", "--workload", "load.yaml"), "load.yaml:3 traffic: unknown key"),
        (("-c", "fleet.yaml", "--workload", "fleet.yaml"), "traffic is missing"),
        ((*RUN, "--profile", "h100-lama"), "near it are h100-llama-3.1-8b"),
        ((*RUN, "--profile", "no.yaml"), "no profile in no.yaml: No such file"),
        (("calibrate", "load.yaml", "--profile", "h100-llama-3.1-8b"), "no row of a measured run in it"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(folder: Path, words: tuple[str, ...], told: str) -> None:
    said = say(*words)
    assert said.exit_code == 2
    assert told in " ".join(said.stderr.split())
    assert "Traceback" not in said.output


def test_profiles_are_listed() -> None:
    said = say("profiles")
    assert said.exit_code == 0
    assert any(line.startswith("h100-qwen3-32b ") for line in said.stdout.splitlines())


def test_a_profile_is_fitted_kept_and_used(folder: Path) -> None:
    measured = str(DATA / "vllm_runs" / "RTXPRO6000_Llama-3.1-8B.requests.jsonl")
    said = say("calibrate", measured, "--profile", "rtxpro6000-llama-3.1-8b", "--out", "ours.yaml")
    assert said.exit_code == 0, said.output
    assert "a step takes 13.5" in said.stdout
    assert "on the other 150" in said.stdout
    assert run("--profile", "ours.yaml").exit_code == 0
    assert "fitted to RTXPRO6000" in (folder / "ours.yaml").read_text()
