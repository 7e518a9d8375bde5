"""Workloads without a file, and how a search changes one."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from maitred.bench import trial
from maitred.config.raw import ConfigError
from maitred.sim.stages import Gamma
from maitred.sim.workload import Spec, load_workload

CLASSES = """
version: 1
traffic:
  - {name: chat, model: m, prompts: {tokens: 100}, output: 10, share: 75%}
  - {name: agent, model: m, prompts: {system: 50, turns: 3, own: 20}, output: 20, share: 25%}
arrivals: {stages: [{rate: 2/s, duration: 10s}, {rate: 4/s, duration: 30s}], pattern: {cv: 3}, begin: 5s}
"""
USERS = """
version: 1
traffic: [{name: chat, model: m, prompts: {tokens: 100}, output: 10}]
arrivals: {stages: [{users: 5, duration: 20s, think: 2s}]}
"""
OWN = """
version: 1
traffic:
  - name: chat
    model: m
    prompts: {tokens: 100}
    output: 10
    arrivals: {stages: [{rate: 2/s, duration: 10s}], begin: 7s}
"""


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    return loaded(tmp_path, CLASSES)


def loaded(folder: Path, text: str) -> Spec:
    (folder / "load.yaml").write_text(text)
    return load_workload(folder / "load.yaml")


def test_the_trial_has_chat_documents_and_conversations_at_rising_load() -> None:
    spec = trial.trial()
    assert [kind.name for kind in spec.file.traffic] == ["short-chat", "long-documents", "conversations"]
    assert len({kind.tenant for kind in spec.file.traffic}) == 3
    rates = list(spec.rates().values())
    assert len(rates) > 2
    assert rates == sorted(set(rates))
    assert trial.duration_s(spec) == 130.0
    assert trial.rates_of(spec) == "requests and conversations"
    arrivals = list(spec.workload(Random(1)).begin(0.0))
    assert len(arrivals) == 460
    assert len([arrival for arrival in arrivals if arrival.conversation]) == pytest.approx(115, abs=2)
    assert {arrival.stage for arrival in arrivals if arrival.warm_up} == {0}


def test_the_quick_form_is_one_class_at_one_rate() -> None:
    spec = trial.quick(5.0, 10.0, 300, 40)
    arrivals = list(spec.workload(Random(1)).begin(0.0))
    assert len(arrivals) == 50
    assert {(a.prompt_tokens, a.output_tokens) for a in arrivals} == {(300, 40)}
    assert len({a.prompt for a in arrivals}) == 50
    with pytest.raises(ValueError, match="must be 1 to"):
        trial.quick(0.01, 1.0, 1, 1)


def test_a_probe_keeps_the_mix_at_another_rate_after_a_warm_up(spec: Spec) -> None:
    assert trial.first_rate(spec) == 2.0
    probe = trial.at_rate(spec, 8.0, 20.0)
    arrivals = list(probe.workload(Random(1)).begin(0.0))
    assert len([a for a in arrivals if a.stage == 0]) == 32
    assert len([a for a in arrivals if a.stage == 1]) == 160
    assert len([a for a in arrivals if a.conversation]) == 48
    assert max(a.at for a in arrivals) < 24.0
    assert {a.stage for a in arrivals if a.warm_up} == {0}
    assert probe.rates() == {1: 8.0}
    assert probe.file.arrivals is not None
    assert probe.file.arrivals.pattern == Gamma(3.0)


def test_the_slowest_probe_warms_up_with_one_request(spec: Spec) -> None:
    assert trial.at_rate(spec, 0.1, 20.0).file.arrivals is not None


@pytest.mark.parametrize("text", [USERS, OWN])
def test_without_a_common_rate_there_is_nothing_to_search(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="a search changes"):
        trial.first_rate(loaded(tmp_path, text))


def test_a_rate_is_of_what_is_begun(tmp_path: Path) -> None:
    """Classes with arrivals of their own have no part in the common rate."""
    talk = "{name: talk, model: m, prompts: {turns: 3, own: 20}, output: 20}"
    once = "arrivals: {stages: [{rate: 1/s, duration: 5s}]}"
    own = "{name: own, model: m, prompts: {tokens: 9}, output: 9, " + once + "}"
    text = "version: 1\ntraffic: [%s]\narrivals: {stages: [{rate: 2/s, duration: 10s}]}"
    mixed = loaded(tmp_path, text % f"{talk}, {own}")
    assert (trial.rates_of(mixed), trial.apart(mixed)) == ("conversations", ("own",))
    alone = trial.quick(5.0, 10.0, 300, 40)
    assert (trial.rates_of(alone), trial.apart(alone)) == ("requests", ())
    only = loaded(tmp_path, OWN)
    assert (trial.rates_of(only), trial.apart(only)) == ("requests", ("chat",))


def test_pauses_between_stages_take_time(tmp_path: Path) -> None:
    paused = loaded(tmp_path, CLASSES.replace("begin: 5s", "begin: 5s, between: {pause: 7s}"))
    assert trial.duration_s(paused) == 5.0 + 10.0 + 7.0 + 30.0


def test_how_long_and_how_much(tmp_path: Path, spec: Spec) -> None:
    assert trial.duration_s(spec) == 45.0
    assert trial.tokens(spec) == 0.75 * 140 * 10 + 0.25 * 140 * 3 * 20
    users = loaded(tmp_path, USERS)
    assert trial.duration_s(users) == 20.0
    assert trial.tokens(users) == 50 * 10
    assert trial.duration_s(loaded(tmp_path, OWN)) == 17.0


def test_a_trace_lasts_to_its_last_row(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:00:00.0000000,100,10\n2023-11-16 18:00:40.0000000,100,30\n"
    )
    trace = "{file: trace.csv, speed: 2}"
    spec = loaded(tmp_path, f"version: 1\ntraffic: [{{name: t, model: m, trace: {trace}}}]\n")
    assert trial.duration_s(spec) == 20.0
    assert trial.tokens(spec) == 40
