"""Who is in which step: budget, order, cache, preemption."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maitred.sim.engine import Engine
from maitred.sim.job import Job, Milestone, Role, Told
from maitred.sim.profile import Profile, StepTime
from tests.sim.kitchen import Mirror, check, job, profile, serve, serve_all


def test_prompts_come_in_chunks_behind_those_that_decode() -> None:
    engine = Engine(profile(step_tokens_max=10, sequences_max=4), progress_tokens=0)
    first, long = job(1, prompt=4, output=9), job(2, prompt=25, output=1)
    serve_all(engine, [(0.0, first), (0.5, long)])
    # Its 25 tokens beside a decode: 9 + 9 + 7, in the steps 2 to 4.
    assert first.first_at == pytest.approx(1.04)
    assert long.first_at == pytest.approx(4.29)


def test_one_chunk_may_end_one_prompt_and_begin_the_next() -> None:
    engine = Engine(profile(step_tokens_max=10, sequences_max=4), progress_tokens=0)
    jobs = [job(number, prompt=8, output=1) for number in range(3)]
    serve_all(engine, [(0.0, each) for each in jobs])
    assert [each.first_at for each in jobs] == pytest.approx([1.1, 2.2, 3.24])


def test_places_are_bounded_and_taken_in_order() -> None:
    engine = Engine(profile(sequences_max=2), progress_tokens=0)
    jobs = [job(number, prompt=4, output=number + 1) for number in range(4)]
    for each in jobs:
        engine.submit(each, 0.0)
    engine.advance(0.0)
    assert (engine.running, engine.waiting) == (2, 2)
    serve(engine)
    assert [each.scheduled_at for each in jobs] == pytest.approx([0.0, 0.0, 1.08, 2.12])


def test_a_prompt_that_is_cached_is_computed_but_for_its_last_block() -> None:
    engine = Engine(profile(), progress_tokens=0)
    one, two = job(1, prompt=20, text=7), job(2, prompt=20, text=7)
    longer = job(3, prompt=21, text=7)
    serve_all(engine, [(0.0, one), (10.0, two), (20.0, longer)])
    assert [each.cached_tokens for each in (one, two, longer)] == [0, 16, 20]
    assert two.first_at - two.scheduled_at == pytest.approx(1.04)
    assert (engine.queried_tokens, engine.hit_tokens, engine.prompt_tokens) == (61, 36, 61)


def test_what_two_share_is_computed_once_even_in_one_step() -> None:
    engine = Engine(profile(), progress_tokens=0)
    one, two = job(1, prompt=21, text=7), job(2, prompt=21, text=7)
    serve_all(engine, [(0.0, one), (0.0, two)])
    assert two.cached_tokens == 20
    assert one.first_at == two.first_at == pytest.approx(1.22)


@pytest.mark.parametrize(("output", "cached"), [(8, 12), (9, 16), (10, 16)])
def test_an_answer_is_cached_as_far_as_it_was_read(output: int, cached: int) -> None:
    engine = Engine(profile(), progress_tokens=0)
    first = job(1, prompt=8, output=output)
    second = Job(2, 8 + output + 4, 1, [*first.keys, *range(10)])
    serve_all(engine, [(0.0, first), (100.0, second)])
    # The last token of an answer is never fed back, so a block that ends with it is not full.
    assert second.cached_tokens == cached


def test_nothing_is_cached_without_keys_or_where_caching_is_off() -> None:
    on, off = Engine(profile()), Engine(profile(prefix_caching=False))
    bare = [Job(1, 20, 1), Job(2, 20, 1)]
    keyed = [job(1, prompt=20, text=7), job(2, prompt=20, text=7)]
    serve_all(on, [(0.0, bare[0]), (10.0, bare[1])])
    serve_all(off, [(0.0, keyed[0]), (10.0, keyed[1])])
    assert [each.cached_tokens for each in bare + keyed] == [0, 0, 0, 0]


def test_who_came_last_is_preempted_and_goes_on_where_it_was() -> None:
    engine = Engine(profile(kv_blocks=6), progress_tokens=1)
    old, young = job(1, prompt=8, output=9), job(2, prompt=8, output=9)
    told = serve_all(engine, [(0.0, old), (0.0, young)])
    assert (old.preemptions, young.preemptions, engine.preemptions) == (0, 1, 1)
    assert [each.tokens for each in told if each.job is young] == [*range(1, 10), 9]
    assert young.over_at > old.over_at
    # 2 blocks each and one more at the second token: the sixth is gone at the sixth token, which was made.
    assert old.over_at == pytest.approx(9.16)


def test_who_was_preempted_comes_before_who_waits_and_nobody_comes_in_meanwhile() -> None:
    engine = Engine(profile(kv_blocks=6), progress_tokens=0)
    jobs = [job(1, prompt=8, output=9), job(2, prompt=8, output=9), job(3, prompt=1, output=1)]
    serve_all(engine, [(0.0, jobs[0]), (0.0, jobs[1]), (5.5, jobs[2])])
    assert jobs[1].preemptions == 1
    assert jobs[2].scheduled_at >= jobs[0].over_at


def test_nobody_comes_in_while_another_is_preempted() -> None:
    engine = Engine(profile(kv_blocks=6, sequences_max=2, by_priority=True), progress_tokens=0)
    jobs = [job(1, prompt=8, output=9, priority=1), job(2, prompt=8, output=9, priority=5)]
    urgent = job(3, prompt=1, output=1)
    serve_all(engine, [(0.0, jobs[0]), (0.0, jobs[1]), (1.5, urgent)])
    # Two are running until the block for the sixth token is wanted, at 5.16.
    assert jobs[1].preemptions == 1
    assert urgent.scheduled_at == pytest.approx(6.16)


def test_one_whose_last_token_is_on_the_way_is_not_served_again() -> None:
    engine = Engine(profile(kv_blocks=6, asynchronous=True), progress_tokens=0)
    old, young = job(1, prompt=8, output=9), job(2, prompt=8, output=5)
    told = serve_all(engine, [(0.0, old), (0.0, young)])
    # When the older wants its next block, the younger is over but still in its place.
    assert (old.preemptions, young.preemptions) == (0, 0)
    assert [each.milestone for each in told if each.job is young] == [Milestone.FIRST, Milestone.DONE]
    assert old.over_at == pytest.approx(9.16)


def test_a_head_that_is_blocked_costs_no_steps() -> None:
    engine = Engine(profile(kv_blocks=100), progress_tokens=0)
    jobs = [job(1, prompt=8, output=300), job(2, prompt=396, output=1)]
    for each in jobs:
        engine.submit(each, 0.0)
    engine.advance(2.0)
    instants = 0
    while engine.next_at is not None:
        engine.advance(engine.next_at)
        instants += 1
    assert jobs[1].scheduled_at == pytest.approx(jobs[0].over_at)
    assert instants < 100


def test_a_head_that_has_no_room_blocks_those_behind_it() -> None:
    engine = Engine(profile(kv_blocks=6), progress_tokens=0)
    jobs = [job(1, prompt=8, output=9), job(2, prompt=20, output=1), job(3, prompt=4, output=1)]
    serve_all(engine, [(0.0, jobs[0]), (1.5, jobs[1]), (1.6, jobs[2])])
    assert jobs[1].scheduled_at == jobs[2].scheduled_at == pytest.approx(jobs[0].over_at)


def test_the_whole_of_a_prompt_must_have_room_not_only_its_first_chunk() -> None:
    engine = Engine(profile(kv_blocks=6, step_tokens_max=8), progress_tokens=0)
    jobs = [job(1, prompt=8, output=9), job(2, prompt=20, output=1)]
    serve_all(engine, [(0.0, jobs[0]), (1.5, jobs[1])])
    assert jobs[1].preemptions == 0
    assert jobs[1].scheduled_at == pytest.approx(jobs[0].over_at)


def test_priorities_decide_who_comes_in_and_who_must_go() -> None:
    engine = Engine(profile(kv_blocks=6, by_priority=True), progress_tokens=0)
    low, high = job(1, prompt=8, output=9, priority=5), job(2, prompt=8, output=9, priority=1)
    serve_all(engine, [(0.0, low), (0.0, high)])
    assert (low.preemptions, high.preemptions) == (1, 0)
    waiting = Engine(profile(sequences_max=1, by_priority=True), progress_tokens=0)
    jobs = [job(1), job(2, priority=3), job(3, priority=2)]
    serve_all(waiting, [(0.0, jobs[0]), (0.5, jobs[1]), (0.6, jobs[2])])
    assert jobs[2].scheduled_at < jobs[1].scheduled_at
    deaf = Engine(profile(sequences_max=1), progress_tokens=0)
    jobs = [job(1), job(2, priority=3), job(3, priority=2)]
    serve_all(deaf, [(0.0, jobs[0]), (0.5, jobs[1]), (0.6, jobs[2])])
    assert jobs[1].scheduled_at < jobs[2].scheduled_at


def test_a_chunk_may_cost_another_its_place_where_that_is_less_important() -> None:
    engine = Engine(profile(kv_blocks=7, step_tokens_max=8, by_priority=True), progress_tokens=0)
    low, high = job(1, prompt=7, output=12, priority=5), job(2, prompt=20, output=2, priority=1)
    serve_all(engine, [(0.0, low), (0.5, high)])
    assert (low.preemptions, high.preemptions) == (1, 0)


def test_an_adapter_is_loaded_first_and_others_pass_meanwhile() -> None:
    engine = Engine(profile(adapters_max=1, adapter_load_s=5.0), progress_tokens=0)
    tuned, plain = job(1, adapter="a"), job(2)
    other = job(3, adapter="b")
    serve_all(engine, [(0.0, tuned), (0.0, plain), (0.1, other)])
    assert plain.scheduled_at == 0.0
    assert 5.0 <= tuned.scheduled_at < 7.0
    assert other.scheduled_at >= tuned.over_at + 5.0
    assert engine.adapters == ["b"]


def test_an_idle_engine_wakes_when_an_adapter_is_loaded() -> None:
    engine = Engine(profile(adapters_max=1, adapter_load_s=5.0), progress_tokens=0)
    only = job(1, adapter="a")
    serve_all(engine, [(1.0, only)])
    assert only.scheduled_at == pytest.approx(6.0)


def test_what_happens_in_one_step_is_told_in_the_order_of_the_queue() -> None:
    engine = Engine(profile(kv_token_bytes=5, transfer_bytes_per_s=10.0), progress_tokens=0)
    early, late = job(1, prompt=20, remote_tokens=20, output=3), job(2, output=11)
    told = serve_all(engine, [(0.0, early), (0.0, late)])
    assert [(each.job, each.milestone) for each in told if each.at == late.over_at] == [
        (early, Milestone.FIRST),
        (late, Milestone.DONE),
    ]


# -- whatever comes -------------------------------------------------------------------------------

PROFILES = st.builds(
    profile,
    step=st.sampled_from([StepTime(1.0, 0.0, 0.0, 100.0), StepTime(1.0, 0.01, 0.05, 100.0)]),
    kv_blocks=st.sampled_from([16, 24, 200]),
    block_tokens=st.just(4),
    ranks=st.sampled_from([1, 1, 2]),
    sequences_max=st.sampled_from([1, 3, 8]),
    step_tokens_max=st.sampled_from([8, 32, 500]),
    asynchronous=st.booleans(),
    by_priority=st.booleans(),
    adapters_max=st.just(2),
    adapter_load_s=st.sampled_from([0.0, 3.0]),
    kv_token_bytes=st.just(1),
    transfer_bytes_per_s=st.sampled_from([0.0, 10.0]),
)
REQUESTS = st.lists(
    st.fixed_dictionaries(
        {
            "gap": st.sampled_from([0.0, 0.1, 0.7, 3.0]),
            "prompt": st.integers(1, 40),
            "output": st.integers(1, 24),
            "text": st.integers(1, 3),
            "priority": st.integers(0, 2),
            "adapter": st.sampled_from(["", "", "a", "b", "c"]),
            "remote": st.sampled_from([0, 0, 10]),
            "aborted_after": st.sampled_from([None, None, None, 0.0, 0.5, 4.0]),
        }
    ),
    min_size=1,
    max_size=12,
)


def run(engine: Engine, requests: list[dict[str, object]]) -> tuple[list[Told], list[Job], list[Job]]:
    """Submit and abort as the list says; what was told, all jobs, and those aborted."""
    now, jobs, events = 0.0, [], []
    for number, request in enumerate(requests):
        now += request["gap"]  # type: ignore[operator]
        made = job(
            number,
            request["prompt"],  # type: ignore[arg-type]
            request["output"],  # type: ignore[arg-type]
            request["text"],  # type: ignore[arg-type]
            priority=request["priority"],
            adapter=request["adapter"],
            remote_tokens=request["remote"],
        )
        jobs.append(made)
        events.append((now, 0, number))
        if request["aborted_after"] is not None:
            events.append((now + request["aborted_after"], 1, number))  # type: ignore[operator]
    told, aborted = [], []
    for at, kind, number in sorted(events):
        told += serve(engine, at)
        if kind == 0:
            engine.submit(jobs[number], at)
        else:
            engine.abort(jobs[number], at)
            aborted.append(jobs[number])
        check(engine)
    return told + serve(engine), jobs, aborted


@settings(max_examples=300)
@given(PROFILES, REQUESTS, st.sampled_from([0, 1, 5]))
def test_every_job_is_served_once_and_everything_is_given_back(
    of: Profile, requests: list[dict[str, object]], progress_tokens: int
) -> None:
    mirror = Mirror()
    listener = mirror if of.ranks == 1 else None
    engine = Engine(of, progress_tokens=progress_tokens, listener=listener)
    told, jobs, aborted = run(engine, requests)
    assert (engine.running, engine.waiting, engine.kv_use) == (0, 0, 0.0)
    assert [each.at for each in told] == sorted(each.at for each in told)
    for each in jobs:
        mine = [one for one in told if one.job is each]
        if each in aborted and Milestone.DONE not in {one.milestone for one in mine}:
            continue
        tokens = (
            [1, *range(progress_tokens, each.output_tokens + 1, progress_tokens)] if progress_tokens else [1]
        )
        if progress_tokens == 1:
            tokens.remove(1)
        assert [one.tokens for one in mine] == [*tokens, each.output_tokens]
        assert [one.milestone for one in mine][:: len(mine) - 1] == [Milestone.FIRST, Milestone.DONE]
        assert each.queued_at <= each.scheduled_at <= each.first_at <= each.over_at
    if of.ranks == 1:
        assert set(mirror.keys) == set(engine._ranks[0].pool._users)


@settings(max_examples=300)
@given(PROFILES, REQUESTS, st.sampled_from([0, 1, 5]), st.sampled_from(Role))
def test_jumping_over_steps_changes_nothing(
    of: Profile, requests: list[dict[str, object]], progress_tokens: int, role: Role
) -> None:
    lazy, stepwise = Engine(of, role, progress_tokens), Engine(of, role, progress_tokens, lazy=False)
    told, jobs, _ = run(lazy, requests)
    truly_told, true_jobs, _ = run(stepwise, requests)
    assert [(one.job.number, one.milestone, one.tokens) for one in told] == [
        (one.job.number, one.milestone, one.tokens) for one in truly_told
    ]
    assert [one.at for one in told] == pytest.approx([one.at for one in truly_told], abs=1e-9)
    for name in ("queued_at", "scheduled_at", "cached_tokens", "preemptions"):
        assert [getattr(each, name) for each in jobs] == pytest.approx(
            [getattr(each, name) for each in true_jobs], abs=1e-9, nan_ok=True
        )
    assert (lazy.steps, lazy.generated_tokens) == (stepwise.steps, stepwise.generated_tokens)
    assert lazy.busy_s == pytest.approx(stepwise.busy_s, abs=1e-9)
