"""Workloads at work: who sends what when, and what follows when something is over."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maitred.sim.arrival import Arrival, Workload
from maitred.sim.lengths import Fixed, Uniform
from maitred.sim.prompts import Conversations
from maitred.sim.senders import Part
from maitred.sim.stages import Arrivals, RateStage
from maitred.sim.traffic import Generated
from maitred.sim.workload import File, Spec, load_workload

TRACES = Path(__file__).parents[1] / "data" / "traces"

CHAT = """
  - name: chat
    model: m
    prompts: {turns: {min: 1, max: 4}, own: {min: 10, max: 50}, system: 100, think: 2s}
    output: {min: 5, max: 50}
"""
PLAIN = """
  - {name: plain, model: m, prompts: {tokens: {min: 1, max: 1k}}, output: {min: 1, max: 1k}}
"""

TWO_STAGES = "stages: [{rate: 2/s, duration: 10s}, {rate: 1/s, duration: 9s}]"

Load = Callable[..., Spec]


@pytest.fixture(name="load")
def loader(tmp_path: Path) -> Load:
    def load(traffic: str, arrivals: str = "") -> Spec:
        path = tmp_path / "w.yaml"
        path.write_text(f"version: 1\ntraffic:{traffic}\n" + (f"arrivals: {arrivals}" if arrivals else ""))
        return load_workload(path)

    return load


def played(
    workload: Workload, answer_s: Callable[[Arrival], float] = lambda _: 1.0
) -> list[tuple[Arrival, float]]:
    """Everything sent, in order of time, with the time at which it was over, in a world without limits."""
    due: list[tuple[float, int, Arrival, bool]] = []
    sent = []
    for arrival in workload.begin(100.0):
        heappush(due, (arrival.at, arrival.number, arrival, False))
    while due:
        now, _, arrival, over = heappop(due)
        if not over:
            over_at = now + answer_s(arrival)
            sent.append((arrival, over_at))
            heappush(due, (over_at, arrival.number, arrival, True))
            continue
        for following in workload.over(arrival, now):
            assert following.at >= now
            heappush(due, (following.at, following.number, following, False))
    return sent


def content(arrivals: list[Arrival]) -> list[tuple[object, ...]]:
    return [(a.at, a.prompt_tokens, a.output_tokens, a.tenant, a.turn) for a in arrivals]


def of(sent: list[tuple[Arrival, float]], model: str) -> list[Arrival]:
    return [arrival for arrival, _ in sent if arrival.model == model]


def test_equal_seeds_send_the_same_and_others_do_not(load: Load) -> None:
    spec = load(CHAT, "{stages: [{rate: 5/s, duration: 20s}]}")
    runs = [[arrival for arrival, _ in played(spec.workload(Random(seed)))] for seed in (1, 1, 2)]
    assert content(runs[0]) == content(runs[1]) != content(runs[2])
    texts = [[(a.number, a.prompt, a.output_tokens) for a in run] for run in runs]
    assert texts[0] == texts[1] != texts[2]
    assert sorted(texts[0])[:20] != sorted(texts[2])[:20]
    assert len({a.number for a in runs[0]}) == len(runs[0])
    assert runs[0][0].at >= 100.0


def test_a_change_to_one_class_leaves_the_others_as_they_were(load: Load) -> None:
    arrivals = "{stages: [{rate: 5/s, duration: 20s}]}"
    plain = PLAIN.replace("output", "share: 40%, output")
    chat = CHAT.replace("model: m", "model: n\n    share: 60%")
    before = played(load(plain + chat, arrivals).workload(Random(1)))
    after = played(load(plain + chat.replace("max: 50", "max: 90"), arrivals).workload(Random(1)))
    assert content(of(before, "m")) == content(of(after, "m"))
    assert content(of(before, "n")) != content(of(after, "n"))
    assert len(of(before, "m")) == 40
    assert sum(a.turn == 1 for a in of(before, "n")) == 60


def test_classes_are_drawn_apart_and_share_no_text(load: Load) -> None:
    trace = TRACES / "mooncake_conversation.jsonl"
    spec = load(
        f"""
  - {{name: a, model: a, prompts: {{tokens: {{min: 1, max: 1k}}}}, output: 9, share: 30%}}
  - {{name: b, model: b, prompts: {{tokens: {{min: 1, max: 1k}}}}, output: 9, share: 30%}}
  - {{name: c, model: c, prompts: {{turns: 3, own: 9, system: 9}}, output: 9, share: 40%}}
  - {{name: d, model: d, trace: {{file: {trace}}}}}
  - {{name: e, model: e, trace: {{file: {trace}}}}}""",
        "{stages: [{rate: 10/s, duration: 10s}]}",
    )
    sent = played(spec.workload(Random(1)))
    pieces = [
        {id_ for a in of(sent, model) for id_ in (a.answer, *(i for i, _ in a.prompt))} for model in "abcde"
    ]
    assert all(pieces)
    assert sum(map(len, pieces)) == len(set().union(*pieces))
    assert [a.prompt_tokens for a in of(sent, "a")] != [a.prompt_tokens for a in of(sent, "b")]


def test_a_list_of_prompts_is_shared_object_by_object(load: Load) -> None:
    groups = "\n  - {name: g, model: m, prompts: {groups: 2, per_group: 3, shared: 64, own: 8}, output: 9}"
    sent = played(load(groups, "{stages: [{rate: 1/s, duration: 60s}]}").workload(Random(1)))
    assert len(sent) == 60
    assert len({id(arrival.prompt) for arrival, _ in sent}) == 6


CHATTING = Spec(
    File(
        1,
        (
            Generated(
                Conversations(Uniform(1, 4), Uniform(10, 50), think_s=2.0), Fixed(9), name="c", model="m"
            ),
        ),
        Arrivals((RateStage(1.0, 20.0),)),
    ),
    {},
)


@given(seed=st.integers(0, 2**32), slow=st.floats(0, 30))
def test_a_turn_comes_after_the_answer_and_the_thinking(seed: int, slow: float) -> None:
    sent = played(CHATTING.workload(Random(seed)), lambda arrival: slow * (arrival.number % 3))
    ends = {(arrival.conversation, arrival.turn): end for arrival, end in sent}
    assert len(ends) == len(sent)
    for arrival, _ in sent:
        assert arrival.conversation
        if arrival.turn > 1:
            assert arrival.at == ends[arrival.conversation, arrival.turn - 1] + 2.0
    assert sum(arrival.turn == 1 for arrival, _ in sent) == 20


def test_what_is_said_does_not_depend_on_how_long_answers_take(load: Load) -> None:
    spec = load(CHAT, "{stages: [{rate: 5/s, duration: 20s}]}")
    quick, slow = (
        {a.number: (a.prompt, a.output_tokens) for a, _ in played(spec.workload(Random(1)), lambda _, s=s: s)}  # type: ignore[misc]
        for s in (0.1, 77.0)
    )
    assert quick == slow


@pytest.mark.parametrize(("traffic", "answer_s"), [(PLAIN, 0.1), (PLAIN, 45.0), (CHAT, 0.1), (CHAT, 45.0)])
def test_a_drained_stage_is_over_before_the_next_begins(load: Load, traffic: str, answer_s: float) -> None:
    spec = load(traffic, f"{{pattern: constant, between: {{drain: true, pause: 30s}}, {TWO_STAGES}}}")
    sent = played(spec.workload(Random(1)), lambda _: answer_s)
    stages = [[pair for pair in sent if pair[0].stage == number] for number in (0, 1)]
    assert [sum(arrival.turn <= 1 for arrival, _ in stage) for stage in stages] == [20, 9]
    drained_at = max(end for _, end in stages[0])
    assert min(arrival.at for arrival, _ in stages[1]) == max(drained_at, 110.0) + 30


def test_without_drain_stages_follow_by_the_clock(load: Load) -> None:
    arrivals = f"{{pattern: constant, between: {{pause: 5s}}, {TWO_STAGES}}}"
    sent = played(load(PLAIN, arrivals).workload(Random(1)), lambda _: 1000.0)
    assert [arrival.at for arrival, _ in sent] == pytest.approx(
        [100.0 + i for i in (*(half / 2 for half in range(20)), *range(15, 24))]
    )


def test_arrivals_may_begin_later_and_once_only(load: Load) -> None:
    common = (
        "{begin: 60s, between: {drain: true}, stages: [{rate: 1/s, duration: 5s}, {rate: 1/s, duration: 5s}]}"
    )
    sent = played(
        load("\n  - {name: a, model: m, prompts: {tokens: 9}, output: 9}", common).workload(Random(1))
    )
    instants = [arrival.at - 100.0 for arrival, _ in sent]
    assert 60.0 <= instants[0] <= 65.0
    assert 65.0 <= instants[5] <= instants[-1] < 75.0


def test_a_stage_in_which_no_class_has_a_whole_request_holds_nothing_up(load: Load) -> None:
    two = PLAIN.replace("output", "share: 50%, output") + PLAIN.replace("plain", "other").replace(
        "output", "share: 50%, output"
    )
    arrivals = "{between: {drain: true}, stages: [{rate: 1/s, duration: 1s}, {rate: 1/s, duration: 10s}]}"
    assert len(played(load(two, arrivals).workload(Random(1)))) == 10


def test_users_wait_think_and_ask_again_until_the_time_is_up(load: Load) -> None:
    sent = played(load(PLAIN, "{stages: [{users: 10, think: 5s, duration: 1m}]}").workload(Random(1)))
    assert all(100.0 <= arrival.at < 160.0 for arrival, _ in sent)
    assert len(sent) == pytest.approx(10 * 60 / 6, abs=6)
    for instant in range(100, 160):
        assert sum(arrival.at <= instant < end for arrival, end in sent) <= 10
    slow = played(load(PLAIN, "{stages: [{users: 10, duration: 1m}]}").workload(Random(1)), lambda _: 50.0)
    assert len(slow) == 20


def test_a_user_who_is_refused_at_once_does_not_stop_time(load: Load) -> None:
    users = "{stages: [{users: 3, duration: 10s}]}"
    sent = played(
        load("\n  - {name: a, model: m, prompts: {tokens: 9}, output: 9}", users).workload(Random(1)),
        lambda _: 0.0,
    )
    assert len(sent) == 30


def test_users_too_are_waited_for(load: Load) -> None:
    arrivals = "{between: {drain: true}, stages: [{users: 3, duration: 10s}, {users: 2, duration: 1s}]}"
    sent = played(load(PLAIN, arrivals).workload(Random(1)), lambda _: 7.0)
    assert [(arrival.stage, arrival.at) for arrival, _ in sent] == [(0, 100.0)] * 3 + [(0, 107.0)] * 3 + [
        (1, 114.0)
    ] * 2


def test_what_a_class_says_of_its_requests_is_in_each(load: Load) -> None:
    spec = load(
        "\n  - {name: a, model: m, tenant: t, band: b, adapter: l, stream: false, patience: 9s,"
        " prompts: {tokens: 1}, output: 1}",
        "{stages: [{rate: 1/s, duration: 1s}]}",
    )
    [(arrival, _)] = played(spec.workload(Random(1)))
    assert (arrival.model, arrival.tenant, arrival.band, arrival.adapter) == ("m", "t", "b", "l")
    assert (arrival.stream, arrival.patience_s, arrival.conversation, arrival.turn) == (False, 9.0, 0, 0)


def test_a_trace_is_played_at_its_speed_beside_other_classes(load: Load) -> None:
    replay = f"\n  - {{name: r, model: r, trace: {{file: {TRACES / 'azure_2023_conv.csv'}, speed: 2}}}}"
    sent = played(load(PLAIN + replay, "{stages: [{rate: 1/s, duration: 20s}]}").workload(Random(1)))
    assert [arrival.at for arrival, _ in sent] == sorted(arrival.at for arrival, _ in sent)
    replayed = of(sent, "r")
    assert (len(replayed), len(of(sent, "m"))) == (60, 20)
    assert replayed[0].at == 100.0
    assert replayed[1].at == pytest.approx(100 + 4.314579 / 2, abs=1e-6)
    assert len({arrival.number for arrival, _ in sent}) == 80


# -- parts --------------------------------------------------------------------------------------------


def written(sent: list[tuple[Arrival, float]]) -> list[tuple[object, ...]]:
    """What was sent when, without the numbers."""
    return sorted((a.at, a.turn, a.prompt, a.output_tokens) for a, _ in sent)


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_the_parts_of_a_workload_are_all_of_it(load: Load, parts: int) -> None:
    spec = load(PLAIN.replace("{name", "{share: 50%, name") + CHAT + "    share: 50%\n", f"{{{TWO_STAGES}}}")
    whole = written(played(spec.workload(Random(3))))
    each = [played(spec.workload(Random(3), Part(index, parts))) for index in range(parts)]
    assert written([one for sent in each for one in sent]) == whole
    assert max(map(len, each)) - min(map(len, each)) <= 12, "about as many each"


def test_the_parts_of_a_trace_are_all_of_it(load: Load) -> None:
    spec = load(f"\n  - {{name: t, model: m, trace: {{file: {TRACES / 'mooncake_conversation.jsonl'}}}}}")
    whole = written(played(spec.workload(Random(3))))
    each = [played(spec.workload(Random(3), Part(index, 2))) for index in range(2)]
    assert written(each[0] + each[1]) == whole


def test_users_in_different_parts_ask_different_things(load: Load) -> None:
    spec = load(PLAIN, "{stages: [{users: 5, duration: 30s}]}")
    each = [played(spec.workload(Random(3), Part(index, 2))) for index in range(2)]
    assert sum(1 for sent in each for a, _ in sent if a.at < 101) == 5
    asked = [a.prompt for sent in each for a, _ in sent]
    assert len(set(asked)) == len(asked)
