"""Workload files: what they say, every error with its place, and the published ladder."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from maitred.config.raw import ConfigError
from maitred.sim.arrival import Arrival
from maitred.sim.lengths import Fixed
from maitred.sim.prompts import Groups
from maitred.sim.stages import Bursts, Gamma, RateStage, UserStage
from maitred.sim.traffic import Generated, Replayed
from maitred.sim.workload import Spec, load_workload

TRACES = Path(__file__).parents[1] / "data" / "traces"
LADDER = Path(__file__).parents[2] / "examples" / "published-fleet" / "ladder.yaml"

COMMON = "arrivals: {stages: [{rate: 1/s, duration: 2s}]}"
OWN = "arrivals: {stages: [{users: 1, duration: 1s}]}"
PLAIN = "prompts: {tokens: 1k}, output: 1"

Load = Callable[[str], Spec]


@pytest.fixture(name="load")
def loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    monkeypatch.chdir(tmp_path)

    def load(text: str) -> Spec:
        Path("w.yaml").write_text(text)
        return load_workload(Path("w.yaml"))

    return load


def stages_of(spec: Spec) -> Counter[int]:
    """Requests by stage, each over as soon as it comes."""
    workload = spec.workload(Random(7))
    counts: Counter[int] = Counter()
    pending: list[Arrival] = list(workload.begin(0.0))
    while pending:
        counts.update(arrival.stage for arrival in pending)
        pending = [following for arrival in pending for following in workload.over(arrival, arrival.at)]
    return counts


def test_the_published_ladder() -> None:
    began_at = time.process_time()
    spec = load_workload(LADDER)
    counts = stages_of(spec)
    assert time.process_time() - began_at < 1.0
    seconds = (20, 20, 20, 38, 34, 30, 25, 21, 38, 36, 33, 30, 29, 27, 26, 25)
    rates = (3, 10, 15, 20, 22, 25, 30, 35, 40, 43, 46, 49, 52, 55, 57, 60)
    assert spec.rates() == dict(enumerate(rates, 1))
    assert counts == {0: 750, **{n: r * s for n, (r, s) in enumerate(zip(rates, seconds, strict=True), 1)}}
    assert counts.total() == 750 + 16_334
    assert spec.longest_tokens() == {"qwen3-32b": 7576 + 1000}
    assert spec.counted == pytest.approx(0.944)


def test_a_file_with_everything(load: Load) -> None:
    spec = load(f"""
version: 1
traffic:
  - name: groups
    model: m
    prompts: {{groups: 2, per_group: 3, shared: 6k, own: {{min: 1, max: 9}}, order: uniform}}
    output: {{median: 350, p95: 700}}
    reasoning: {{cdf: [{{tokens: 1k, share: 50%}}, {{tokens: 4k, share: 100%}}]}}
  - name: users
    model: m
    prompts: {{tokens: 100}}
    output: 10
    arrivals: {{pattern: {{burst: 5}}, stages: [{{users: 50, think: 5s, duration: 10m, warm_up: true}}]}}
  - name: trace
    model: n
    trace: {{file: {TRACES / "mooncake_conversation.jsonl"}, format: mooncake, speed: 1.85, limit: 100}}
arrivals:
  pattern: {{cv: 3}}
  between: {{drain: true, pause: 30s}}
  stages: [{{rate: 15/s, to: 30/s, duration: 50s}}]
""")
    groups, users, trace = spec.file.traffic
    assert isinstance(groups, Generated)
    assert groups.prompts == Groups(2, 3, Fixed(6000), groups.prompts.own, "uniform")  # type: ignore[union-attr]
    assert groups.answers.tokens_max == 4 * 700 + 4000
    assert isinstance(users, Generated)
    assert users.arrivals
    assert (users.arrivals.pattern, users.arrivals.stages) == (Bursts(5), (UserStage(50, 600.0, 5.0, True),))
    assert isinstance(trace, Replayed)
    assert (trace.trace.speed, len(spec.traces["trace"].rows)) == (1.85, 100)
    assert spec.file.arrivals
    assert (spec.file.arrivals.pattern, spec.file.arrivals.stages) == (
        Gamma(3.0),
        (RateStage(15.0, 50.0, 30.0),),
    )
    rows = spec.traces["trace"].rows
    longest = max(row.prompt_tokens + row.output_tokens for row in rows)
    assert spec.longest_tokens() == {"m": 6009 + 2800 + 4000, "n": longest}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("version: 1", [":1: traffic is missing; write traffic: …"]),
        ("version: 1\ntraffic: []", [":2 traffic: is empty; write at least one"]),
        (
            "version: 1\ntraffic: [{name: a}]",
            [":2 traffic[0]: must be a class with name, model, and prompts and output or a trace"],
        ),
        (
            f"version: 1\ntraffic:\n- {{name: a, {PLAIN}}}",
            [
                ":1: arrivals is missing; write when requests come, here or in each class",
                ":3 traffic[0]: model is missing; write model: qwen3-32b",
            ],
        ),
        (
            (
                f"version: 1\ntraffic:\n- {{name: a, model: m, {PLAIN}}}\n"
                "arrivals:\n  pattern: poison\n"
                "  stages: [{rate: 15, duration: 2}, {user: 5}, {rate: 1/h, duration: 2s}]"
            ),
            [
                ":5 arrivals.pattern: 'poison' is not known; write poisson or constant",
                ":6 arrivals.stages[0].rate: 15 has no unit; write 15/s",
                ":6 arrivals.stages[0].duration: 2 has no unit; write 2s",
                (
                    ":6 arrivals.stages[1]: must be {rate: 15/s, duration: 50s} or "
                    "{users: 50, think: 5s, duration: 10m}"
                ),
                ":6 arrivals.stages[2]: rate x duration must be 1 to 1,000,000 requests",
            ],
        ),
        (
            "version: 1\ntraffic:\n- name: a\n  model: m\n  prompts: {token: 1}\n  output: {min: 5, max: 2}\n"
            + COMMON,
            [
                (
                    ":5 traffic[0].prompts: must be {tokens: 1k}, "
                    "{groups: 150, per_group: 5, shared: 6k, own: 1k} or {turns: 6, own: 200}"
                ),
                ":6 traffic[0].output: min 5 is above max 2; exchange them",
            ],
        ),
        (
            (
                f"version: 1\ntraffic:\n- {{name: a, model: m, {PLAIN}, share: 30%}}\n"
                f"- {{name: a, model: m, {PLAIN}, share: 0.1%, {OWN}}}\n{COMMON}"
            ),
            [
                ":4 traffic[1].name: 'a' is already used; names must differ",
                ":4 traffic[1]: share and arrivals are both set; leave one out",
                ":1: the shares of the classes make 30%; they must make 100%",
            ],
        ),
        (
            (
                f"version: 1\ntraffic:\n- {{name: a, model: m, {PLAIN}, share: 90%}}\n"
                f"- {{name: b, model: m, {PLAIN}, share: 10%}}\n{COMMON}"
            ),
            [":4 traffic[1]: its share of the arrivals is less than one request; write a larger one"],
        ),
        (
            f"version: 1\ntraffic:\n- {{name: a, model: m, {PLAIN}, {OWN}}}\n{COMMON}",
            [":1: arrivals is set, and each class has its own; leave it out"],
        ),
        (
            "version: 1\ntraffic:\n- {name: a, trace: {file: no.csv}}\n- {name: b, trace: {file: w.yaml}}",
            [
                ":3 traffic[0].trace: no.csv: No such file or directory",
                ":4 traffic[1].trace: w.yaml: its first line looks like no known trace; write its format",
            ],
        ),
    ],
)
def test_errors_name_their_place(load: Load, text: str, said: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert [error.removeprefix("w.yaml") for error in caught.value.errors] == said


def test_a_trace_that_names_no_model_needs_one(load: Load) -> None:
    text = f"version: 1\ntraffic:\n- {{name: a, trace: {{file: {TRACES / 'azure_2023_conv.csv'}}}}}"
    with pytest.raises(
        ConfigError, match=r"^w\.yaml:3 traffic\[0\]: model is missing; write model: qwen3-32b$"
    ):
        load(text)


def test_strict_refuses_a_trace_with_bad_rows(load: Load, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes((TRACES / "azure_2023_conv.csv").read_bytes() + b"\nnoon,1,1\n")
    text = "version: 1\ntraffic:\n- {name: a, model: m, trace: {file: t.csv}}"
    trace = load(text).traces["a"]
    assert (trace.bad, len(trace.bad_first)) == (1, 1)
    with pytest.raises(ConfigError) as caught:
        load_workload(Path("w.yaml"), strict=True)
    assert caught.value.errors == [
        f"w.yaml:3 traffic[0].trace: {trace.bad_first[0]}",
        "w.yaml:3 traffic[0].trace: t.csv: 1 of 61 rows cannot be used",
    ]
