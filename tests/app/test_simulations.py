"""Simulations in processes of their own: told as they go, the same as alone, and gone when they are over."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from unittest.mock import patch

import msgspec
import pytest

from maitred.app.simulations import Task, WorkerDied, ladder_json, look, run_all, run_task, yardsticks
from maitred.config.raw import ConfigError
from maitred.core import saturation
from maitred.core.journal import replay
from maitred.core.words import Leg
from maitred.sim.invariants import Violation
from maitred.sim.simulate import SimulationError
from maitred.sim.summary import summarize, to_json

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
arrivals: {stages: [{rate: 10/s, duration: 3s}, {rate: 20/s, duration: 2s}], between: {drain: true}}
"""


@pytest.fixture
def task(tmp_path: Path) -> Task:
    (tmp_path / "fleet.yaml").write_text(FLEET)
    (tmp_path / "load.yaml").write_text(WORKLOAD)
    return Task("fleet", tmp_path / "fleet.yaml", tmp_path / "load.yaml", seed=1)


def test_runs_come_back_as_they_are_alone_and_no_process_stays(task: Task) -> None:
    tasks = [task, msgspec.structs.replace(task, seed=2)]
    runs = {news.task: news.run for news in run_all(tasks) if news.run is not None}
    together = summarize([runs[0], runs[1]])
    alone = summarize([run_task(one) for one in tasks])
    assert to_json([together]) == to_json([alone])
    assert together.whole.figures["completed"].mean == 70
    assert not multiprocessing.active_children()


def test_a_violation_comes_from_its_process_whole(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    worker = "from maitred.core import saturation; saturation.give_back = lambda *_: None"
    (tmp_path / "sitecustomize.py").write_text(worker)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(Violation, match=r"seed 1, event \d+: .* hold a place") as raised:
        list(run_all([task]))
    assert "maitred replay" in raised.value.__notes__[0]
    assert not multiprocessing.active_children()


def test_a_process_that_is_killed_is_missed(task: Task) -> None:
    long = msgspec.structs.replace(task, workload=task.workload.with_name("long.yaml"))
    long.workload.write_text(WORKLOAD.replace("duration: 3s", "duration: 3000s"))
    runs = run_all([long])
    next(runs)  # it is on its way
    (process,) = multiprocessing.active_children()
    process.kill()
    with pytest.raises(WorkerDied, match="the process of fleet died with -9"):
        list(runs)


def test_runs_that_nobody_wants_any_more_are_ended(task: Task) -> None:
    long = msgspec.structs.replace(task, workload=task.workload.with_name("long.yaml"))
    long.workload.write_text(WORKLOAD.replace("duration: 3s", "duration: 3000s"))
    runs = run_all([long, msgspec.structs.replace(long, seed=2)])
    next(runs)
    runs.close()  # type: ignore[attr-defined]
    assert not multiprocessing.active_children()


def test_an_error_ends_them_all(task: Task) -> None:
    wrong = msgspec.structs.replace(task, profile="h100-llama-3.1-9b", config=task.workload)
    with pytest.raises(ConfigError):
        list(run_all([task, wrong]))
    assert not multiprocessing.active_children()


def test_a_ladder_has_its_yardsticks(task: Task) -> None:
    tasks = [task, *yardsticks([task])]
    assert [one.kind for one in tasks] == ["", "oracle", "bound"]
    runs = [run_task(one) for one in tasks]
    spec, warnings = look([task])
    assert warnings == []
    shown = msgspec.json.decode(ladder_json(summarize(runs[:1]), runs, spec))
    assert list(shown) == [
        "peak_output_tokens_per_s",
        "mean_output_tokens_per_s_from_40",
        "oracle_peak_output_tokens_per_s",
        "oracle_mean_output_tokens_per_s_from_40",
        "bound_output_tokens_per_s",
        "stages",
    ]
    assert [stage["rate"] for stage in shown["stages"]] == [10.0, 20.0]
    assert shown["peak_output_tokens_per_s"] == max(s["output_tokens_per_s"] for s in shown["stages"])
    groups = {(record.arrival.prompt[0][0], record.endpoint) for record in runs[1].records}
    assert len(groups) == 4  # each has one endpoint
    assert len({endpoint for _, endpoint in groups}) == 2


def test_yardsticks_read_endpoints_from_their_file(task: Task, tmp_path: Path) -> None:
    (tmp_path / "engines.yaml").write_text("[http://a:1, http://b:1]")
    task.config.write_text(
        FLEET.replace("[http://a:1, http://b:1]", f"{{file: {tmp_path / 'engines.yaml'}}}")
    )
    assert len(run_task(yardsticks([task])[0]).records) == 70


def test_a_warm_up_is_left_out_and_tokens_are_as_clients_count(task: Task) -> None:
    task.workload.write_text(
        WORKLOAD.replace("duration: 3s", "duration: 3s, warm_up: true") + "counted: 50%\n"
    )
    records = run_task(task).records
    assert len(records) == 40
    assert {record.tokens for record in records} == {20}


def test_what_does_not_go_together_is_said_before_it_runs(task: Task) -> None:
    task.workload.write_text(WORKLOAD.replace("model: m", "model: other"))
    with pytest.raises(SimulationError, match="asks for 'other', which it does not serve"):
        look([task])
    task.workload.write_text(WORKLOAD.replace("shared: 400", "shared: 200k"))
    _, warnings = look([task])
    assert len(warnings) == 1
    assert "m is asked for up to 200090 tokens" in warnings[0]
    with pytest.raises(
        SimulationError, match="no routing policy 'bogus'; there are default, least-requests, round-robin"
    ):
        look([msgspec.structs.replace(task, routing="bogus")])
    task.config.write_text(FLEET.replace("models:", "models:\n  - {name: k, endpoints: [http://a:1]}"))
    with pytest.raises(SimulationError, match="http://a:1 is an endpoint of two models"):
        look([task])
    task.config.write_text(FLEET.replace("simulate: {profile: h100-llama-3.1-8b}", ""))
    with pytest.raises(
        SimulationError, match=r"nothing says which engine is at http://a:1: write simulate.profile"
    ):
        look([task])


def test_a_violation_leaves_a_journal_that_replays(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    gives_back = saturation.give_back

    def forgets(leg: Leg, now: float) -> None:
        if now < 1.0:
            gives_back(leg, now)

    with patch.object(saturation, "give_back", forgets):
        with pytest.raises(Violation) as raised:
            run_task(task)
        journal = Path("violation-fleet-1.journal")
        assert f"its journal is {journal}" in raised.value.__notes__[0]
        with journal.open("rb") as lines:
            assert replay(lines) > 10
