"""One measurement from begin to end, with loads that are made up: what goes into each and what comes out."""

from __future__ import annotations

import gc
import weakref
from collections import deque
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from maitred.app import bench
from maitred.app.bench import Plan
from maitred.bench import during, trial, workers
from maitred.bench.forms import FORMS
from maitred.bench.load import Progress
from maitred.bench.shot import Own, Run, Shot
from maitred.bench.targets import Facts, Target
from maitred.config.tree import Slo
from tests.bench.finished import answered, run

FACTS = Facts(("m",), "m", 4.0)
NOBODY = "http://127.0.0.1:1"
PLAN = Plan(Target(NOBODY, model="m"), "quick", trial.quick(5.0, 20.0, 100, 10), (), Slo(0.5, None))

Made = Callable[[workers.Task], Run]


class Held(list[Shot]):
    """Shots of which it can be seen whether anybody keeps them."""


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> list[workers.Task]:
    """What was run; every request was answered in 0.2 s, at 12 requests/s and more in a second."""
    made: list[workers.Task] = []

    def load(task: workers.Task, _workers: int, watch: Callable[[Progress], bool]) -> Run:
        made.append(task)
        watch(Progress())
        return finished(task)

    monkeypatch.setattr(workers, "run", load)
    return made


def finished(task: workers.Task, **more: Any) -> Run:
    options = task.options
    [(stage, rate)] = options.rates.items()
    ttft_s = 0.2 if rate < 12 else 1.0
    shots = [answered(number / rate, ttft_s, stage=stage) for number in range(200)]
    return run(shots, slo_ttft_s=options.slo_ttft_s, rates=options.rates, **more)


def test_a_run_says_what_was_asked_of_it(tasks: list[workers.Task]) -> None:
    made = bench.measure(PLAN, FACTS, StringIO())
    [task] = tasks
    assert task.options.kinds == ["quick"]
    assert task.options.slo_ttft_s == 0.5
    assert task.options.trace
    assert made.run.version
    assert made.figures.whole.completed == 200
    assert (made.spans, made.during, made.goodput, made.ended_early) == (None, None, None, False)


def test_two_runs_have_no_text_in_common(tasks: list[workers.Task]) -> None:
    for _ in range(2):
        bench.measure(PLAN, FACTS, StringIO())
    assert len({task.options.salt for task in tasks}) == 2
    assert len({task.options.seed for task in tasks}) == 1


def test_reads_are_not_kept_of_very_long_runs(tasks: list[workers.Task]) -> None:
    plan = structs.replace(PLAN, spec=trial.quick(500.0, 600.0, 100, 100))
    made = bench.measure(plan, FACTS, StringIO())
    assert not tasks[0].options.trace
    assert "there is no ITL" in made.doubts[-1].text
    whole = structs.replace(plan.target, form=FORMS["embeddings"])
    made = bench.measure(structs.replace(plan, target=whole), FACTS, StringIO())
    assert not any("ITL" in doubt.text for doubt in made.doubts), "nor would there be, of a short one"


def test_an_engine_that_tells_nothing_is_told(tasks: list[workers.Task]) -> None:
    made = bench.measure(structs.replace(PLAN, engines=(NOBODY,)), FACTS, StringIO())
    assert made.doubts[-1].text.startswith("the engines given did not tell where time goes")
    made = bench.measure(PLAN, FACTS, StringIO())
    assert not any("engines" in doubt.text for doubt in made.doubts)


@pytest.mark.parametrize("quiet", [True, False])
def test_a_command_that_outlasts_the_load_ends_when_it_is_stopped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, quiet: bool
) -> None:
    def load(task: workers.Task, _workers: int, watch: Callable[[Progress], bool]) -> Run:
        while not (tmp_path / "up").exists():
            assert not watch(Progress())
        over.append(True)
        return finished(task)

    over: list[bool] = []
    monkeypatch.setattr(during, "GRACE_S", 0.1)
    monkeypatch.setattr(workers, "run", load)
    command = f"touch {tmp_path}/up; sleep 60"
    brief = structs.replace(PLAN, spec=trial.quick(2000.0, 0.001, 100, 10), during=command)
    out = StringIO()
    made = bench.measure(brief, FACTS, out, quiet=quiet, stopped=lambda: bool(over))
    assert made.during is not None
    assert made.during.code == -15
    assert out.getvalue() == ("" if quiet else "the load is over, and the command is not; Ctrl-C ends it\n")


def test_a_search_finds_the_rate_and_tells_of_its_run(tasks: list[workers.Task]) -> None:
    out = StringIO()
    made = bench.search(PLAN, FACTS, out, 20.0)
    assert made.goodput is not None
    found = made.goodput.found
    assert found.holds is not None
    assert found.fails is not None
    assert found.resolved
    assert found.holds < 12 <= found.fails
    assert list(made.run.rates.values()) == [found.holds]
    assert made.run.rates_of == "requests"
    assert [rung.rate for rung in made.goodput.rungs] == [probe.rate for probe in found.probes]
    assert len(tasks) == len(out.getvalue().splitlines()) <= 15
    assert out.getvalue().startswith("5/s: 200 of 200 were good: yes\n")


def test_a_slow_rate_is_probed_for_longer(tasks: list[workers.Task]) -> None:
    slow = structs.replace(PLAN, spec=trial.quick(1.0, 20.0, 100, 10))
    bench.search(slow, FACTS, StringIO(), 20.0, quiet=True)
    assert trial.duration_s(tasks[0].spec) == pytest.approx(1.2 * 118)
    assert trial.duration_s(tasks[-1].spec) == pytest.approx(1.2 * 20)


def test_a_probe_is_never_too_large(tasks: list[workers.Task], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "REQUESTS_MAX", 300)
    made = bench.search(PLAN, FACTS, StringIO(), 50.0)
    assert made.goodput is not None
    assert made.goodput.found.resolved
    for task in tasks:
        [rate] = task.options.rates.values()
        assert trial.duration_s(task.spec) == pytest.approx(1.2 * min(50.0, 300 / rate))


def test_a_search_on_a_hopeless_server_ends(
    tasks: list[workers.Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    hopeless = structs.replace(PLAN, slo=Slo(0.01, None))
    made = bench.search(hopeless, FACTS, StringIO(), 20.0)
    assert made.goodput is not None
    assert made.goodput.found.holds is None
    assert max(trial.duration_s(task.spec) for task in tasks) <= 1.2 * bench.PROBE_S_MAX
    assert made.run.rates == tasks[-1].options.rates


def test_a_search_is_ended_by_ctrl_c(tasks: list[workers.Task], monkeypatch: pytest.MonkeyPatch) -> None:
    def load(task: workers.Task, *_: object) -> Run:
        tasks.append(task)
        return finished(task, ended_early=len(tasks) == 3)

    monkeypatch.setattr(workers, "run", load)
    made = bench.search(PLAN, FACTS, StringIO(), 20.0)
    assert len(tasks) == 3
    assert made.ended_early
    assert made.goodput is not None
    assert [probe.rate for probe in made.goodput.found.probes] == [5.0, 10.0]


def test_a_hopeless_probe_is_cut_short_and_the_search_goes_on(
    tasks: list[workers.Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(task: workers.Task, _workers: int, watch: Callable[[Progress], bool]) -> Run:
        tasks.append(task)
        [rate] = task.options.rates.values()
        recent: deque[tuple[float, float]] = deque()
        for second in range(1, 100):
            recent.append((float(second), 2.0 + second if rate >= 12 else 0.2))
            if watch(Progress(at=float(second), in_flight=10 * second, recent=recent)):
                return run([], rates=task.options.rates, slo_ttft_s=0.5, ended_early=True)
        return finished(task)

    monkeypatch.setattr(workers, "run", load)
    out = StringIO()
    made = bench.search(PLAN, FACTS, out, 60.0)
    assert made.goodput is not None
    found = made.goodput.found
    assert not made.ended_early
    assert found.resolved
    assert {probe.rate for probe in found.probes if probe.overloaded} == {
        probe.rate for probe in found.probes if probe.rate >= 12
    }
    assert "20/s: 0 of 0 were good: no, cut short" in out.getvalue()
    assert made.run.rates == {1: found.holds}


def test_a_run_by_itself_is_not_cut_short(tasks: list[workers.Task], monkeypatch: pytest.MonkeyPatch) -> None:
    def load(task: workers.Task, _workers: int, watch: Callable[[Progress], bool]) -> Run:
        recent: deque[tuple[float, float]] = deque()
        for second in range(1, 100):
            recent.append((float(second), 2.0 + second))
            assert not watch(Progress(at=float(second), in_flight=10 * second, recent=recent))
        return finished(task)

    monkeypatch.setattr(workers, "run", load)
    long = structs.replace(PLAN, spec=trial.quick(5.0, 200.0, 100, 10))
    assert not bench.measure(long, FACTS, StringIO()).run.overloaded


def test_of_a_search_only_the_best_run_and_the_last_are_kept(
    tasks: list[workers.Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    alive: list[weakref.ref[Held]] = []
    most = 0

    def load(task: workers.Task, *_: object) -> Run:
        nonlocal most
        gc.collect()
        most = max(most, sum(ref() is not None for ref in alive))
        made = finished(task)
        made.shots = Held(made.shots)
        alive.append(weakref.ref(made.shots))
        return made

    monkeypatch.setattr(workers, "run", load)
    bench.search(PLAN, FACTS, StringIO(), 20.0)
    assert len(alive) > 4
    assert most <= 2


def test_a_client_in_the_way_at_any_rate_is_told_first(
    tasks: list[workers.Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(task: workers.Task, *_: object) -> Run:
        [rate] = task.options.rates.values()
        return finished(task, own=Own(cpu_share_max=0.99 if rate > 12 else 0.1))

    monkeypatch.setattr(workers, "run", load)
    made = bench.search(PLAN, FACTS, StringIO(), 20.0)
    assert made.verdict
    assert made.doubts[0].text.startswith("at 20/s the client's busiest second took 99 %")


def test_a_command_that_never_came_is_told(tasks: list[workers.Task], tmp_path: Path) -> None:
    made = bench.measure(structs.replace(PLAN, during=f"touch {tmp_path}/ran"), FACTS, StringIO())
    assert made.during is None
    assert "the command was not run" in made.doubts[-1].text
    assert not (tmp_path / "ran").exists()


def test_the_model_is_the_servers_only_one_unless_the_workload_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    async def preflight(target: Target, model: str) -> Facts:
        asked.append(target.model or model)
        return FACTS

    monkeypatch.setattr(bench, "preflight", preflight)
    bare = structs.replace(PLAN, target=Target(NOBODY))
    plan, _ = bench.prepare(bare)
    assert plan.target.model == "m"
    plan, _ = bench.prepare(structs.replace(bare, models=("a", "b")))
    assert plan.target.model == ""
    bench.prepare(structs.replace(PLAN, models=("a", "b")))
    assert asked == ["", "a", "b", "m"]
