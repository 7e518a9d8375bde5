"""An engine in time: when things happen, and what its owner may do at any moment."""

from __future__ import annotations

import math

import pytest

from maitred.sim.engine import Engine
from maitred.sim.job import Job, Milestone, Role
from maitred.sim.profile import StepTime
from tests.sim.kitchen import Mirror, check, job, profile, serve, serve_all

FIRST, PROGRESS, DONE = Milestone


def test_an_idle_engine_begins_at_once_and_makes_a_token_a_step() -> None:
    engine = Engine(profile(), progress_tokens=2)
    only = job(prompt=10, output=5)
    told = serve_all(engine, [(3.0, only)])
    assert [(each.milestone, each.tokens) for each in told] == [
        (FIRST, 1),
        (PROGRESS, 2),
        (PROGRESS, 4),
        (DONE, 5),
    ]
    assert [each.at for each in told] == pytest.approx([4.1, 5.1, 7.1, 8.1])
    assert (only.queued_at, only.scheduled_at, only.first_at, only.over_at) == pytest.approx(
        (3.0, 3.0, 4.1, 8.1)
    )
    assert (engine.steps, engine.generated_tokens) == (5, 5)
    assert engine.busy_s == pytest.approx(5.1)
    assert engine.next_at is None


def test_the_step_time_is_that_of_the_profile() -> None:
    step = StepTime(base_s=1.0, per_sequence_s=0.1, per_token_s=0.01, prefill_tokens_per_s=100.0)
    engine = Engine(profile(step=step), progress_tokens=0)
    first, second = job(1, prompt=10, output=4), job(2, prompt=20, output=2)
    serve_all(engine, [(0.0, first), (0.0, second)])
    # Contexts: none, then 11 and 21 tokens, then 12 and 13 of the first alone.
    assert first.first_at == pytest.approx(1.3)
    assert second.over_at == pytest.approx(1.3 + 1.2 + 0.32)
    assert first.over_at == pytest.approx(second.over_at + 1.1 + 0.12 + 1.1 + 0.13)


def test_synchronous_a_job_comes_in_at_the_next_step() -> None:
    engine = Engine(profile(), progress_tokens=0)
    busy, late = job(1, output=9), job(2, prompt=1)
    serve_all(engine, [(0.0, busy), (2.5, late)])
    assert (late.queued_at, late.scheduled_at, late.first_at) == pytest.approx((3.08, 3.08, 4.09))


def test_asynchronous_its_first_token_comes_two_steps_after_it_is_seen() -> None:
    engine = Engine(profile(asynchronous=True), progress_tokens=0)
    busy, late = job(1, output=9), job(2, prompt=1)
    serve_all(engine, [(0.0, busy), (2.5, late)])
    assert (late.queued_at, late.scheduled_at, late.first_at) == pytest.approx((3.08, 3.08, 5.09))


def test_asynchronous_a_place_is_free_one_step_later() -> None:
    engine = Engine(profile(asynchronous=True, sequences_max=1), progress_tokens=0)
    jobs = [job(1, prompt=1, output=3), job(2, prompt=1, output=1)]
    serve_all(engine, [(0.0, jobs[0]), (0.0, jobs[1])])
    # The only place was taken when the next step was made up, so there was none: it begins at once.
    assert (jobs[1].scheduled_at, jobs[1].first_at) == pytest.approx((3.01, 4.02))
    wide = Engine(profile(asynchronous=True, sequences_max=2), progress_tokens=0)
    jobs = [job(1, prompt=1, output=3), job(2, prompt=1, output=9), job(3, prompt=1, output=1)]
    serve_all(wide, [(0.0, each) for each in jobs])
    # While the second decodes there is: it is made up at 3.02, begins at 4.02.
    assert (jobs[2].scheduled_at, jobs[2].first_at) == pytest.approx((3.02, 5.03))


def test_a_lazy_engine_has_few_instants() -> None:
    lazy, stepwise = Engine(profile(), progress_tokens=0), Engine(profile(), progress_tokens=0, lazy=False)
    instants = []
    for engine in (lazy, stepwise):
        engine.submit(job(prompt=8, output=380), 0.0)
        instants.append(0)
        while engine.next_at is not None:
            engine.advance(engine.next_at)
            instants[-1] += 1
    assert instants[1] == 381
    assert instants[0] < 381 / 4 + 4  # a block of 4 tokens, and the ends


@pytest.mark.parametrize("lazy", [True, False])
def test_what_is_made_is_known_at_any_instant(lazy: bool) -> None:
    engine = Engine(profile(step=StepTime(1.0, 0.0, 0.1, 100.0)), progress_tokens=0, lazy=lazy)
    only = job(prompt=8, output=6)
    engine.submit(only, 0.0)
    # The steps last 1.08, then 1.9, 2.0, 2.1, ... for contexts of 9, 10, 11 tokens.
    seen = []
    for now in (0.0, 1.07, 1.09, 2.97, 2.99, 4.97, 4.99, 7.0, 7.09):
        engine.advance(now)
        seen.append(engine.made(only))
    assert seen == [0, 0, 1, 1, 2, 2, 3, 3, 4]
    serve(engine)
    assert engine.made(only) == 6
    assert engine.made(job(9)) == 0


def test_a_job_that_comes_in_a_jump_is_seen_at_the_end_of_the_step() -> None:
    engine = Engine(profile(block_tokens=64), progress_tokens=0)
    long, late = Job(1, 8, 50), Job(2, 1, 1)
    serve_all(engine, [(0.0, long), (20.5, late)])
    assert (late.queued_at, late.first_at) == pytest.approx((21.08, 22.09))
    assert long.over_at == pytest.approx(50.09)


def test_a_slow_engine_is_slow_from_the_next_step_on() -> None:
    engine = Engine(profile(), progress_tokens=0)
    only = job(prompt=1, output=4)
    engine.submit(only, 0.0)
    engine.advance(1.5)
    engine.speed = 3.0
    serve(engine)
    assert only.over_at == pytest.approx(1.01 + 1 + 3 + 3)


# -- what cannot be served ------------------------------------------------------------------------


def test_a_job_that_can_never_fit_is_refused() -> None:
    engine = Engine(profile(kv_blocks=4, context_tokens_max=30))
    assert engine.fits(Job(1, 16, 1))
    for misfit, why in [
        (Job(1, 30, 1), "31 tokens are more than its context of 30"),
        (Job(1, 17, 1), "18 tokens need more than its 4 blocks of 4"),
        (Job(1, 0, 1), "at least one token"),
        (Job(1, 4, 1, adapter="a"), "no room for the adapter 'a'"),
    ]:
        assert not engine.fits(misfit)
        with pytest.raises(ValueError, match=why):
            engine.submit(misfit, 0.0)
    assert (engine.next_at, engine.waiting) == (None, 0)


def test_a_step_must_have_a_token_for_everybody() -> None:
    with pytest.raises(ValueError, match=r"step_tokens_max \(4\) must be at least sequences_max \(8\)"):
        Engine(profile(step_tokens_max=4))


# -- leaving --------------------------------------------------------------------------------------


@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize(
    ("at", "phase"),
    [
        (0.0, "not seen"),
        (0.5, "in the step that computes its prompt"),
        (1.5, "its prompt computed in part"),
        (2.5, "decoding"),
        (7.2, "done"),
    ],
)
def test_one_may_leave_at_any_time(asynchronous: bool, at: float, phase: str) -> None:
    engine = Engine(profile(asynchronous=asynchronous, step_tokens_max=12, kv_blocks=10), progress_tokens=1)
    leaving, staying = job(1, prompt=20, output=5), job(2, prompt=16, output=4)
    engine.submit(leaving, 0.0)
    told = serve(engine, at) if at else []
    engine.abort(leaving, at)
    check(engine)
    engine.submit(staying, at)
    told += serve(engine)
    assert [each.at for each in told if each.job is leaving and each.at > at] == []
    assert [each.milestone for each in told if each.job is staying][-1] is DONE
    assert (engine.running, engine.waiting, engine.kv_use) == (0, 0, 0.0)
    assert (leaving.over_at < at) is (phase == "done")


def test_one_that_waits_may_leave_and_unblock_the_rest() -> None:
    engine = Engine(profile(kv_blocks=6), progress_tokens=0)
    jobs = [job(1, prompt=8, output=9), job(2, prompt=20, output=1), job(3, prompt=1, output=1)]
    for each in jobs:
        engine.submit(each, 0.0)
    engine.advance(0.5)
    engine.abort(jobs[1], 0.5)
    serve(engine)
    assert math.isnan(jobs[1].scheduled_at)
    assert jobs[2].scheduled_at == pytest.approx(1.08)


def test_nothing_is_told_of_one_that_has_left() -> None:
    engine = Engine(profile(), progress_tokens=0)
    one, other = job(1, output=1), job(2, output=1)
    engine.submit(one, 0.0)
    engine.submit(other, 0.0)
    engine.advance(0.0)
    engine.submit(job(3), 5.0)  # makes it run up to here; nobody has asked what happened
    assert engine.next_at == pytest.approx(other.over_at)
    engine.abort(one, 5.0)
    assert {each.job.number for each in serve(engine)} == {2, 3}
    engine.abort(one, 99.0)


def test_a_crash_forgets_everything() -> None:
    mirror = Mirror()
    engine = Engine(profile(), listener=mirror)
    done, running, coming = job(1, prompt=20, output=1), job(2, prompt=20, output=9), job(3)
    serve_all(engine, [(0.0, done)])
    engine.submit(running, 2.0)
    engine.advance(3.5)
    engine.submit(coming, 3.6)
    assert engine.crash() == [running, coming]
    assert (engine.running, engine.waiting, engine.kv_use, engine.next_at) == (0, 0, 0.0, None)
    assert mirror.keys == {}
    again = job(4, prompt=20, text=1001)
    serve_all(engine, [(10.0, again)])
    assert again.cached_tokens == 0


def test_the_cache_is_cleared_only_while_nobody_uses_it() -> None:
    engine = Engine(profile())
    serve_all(engine, [(0.0, job(1, prompt=20, text=7))])
    engine.submit(job(2, prompt=20, text=7), 50.0)
    engine.advance(50.5)
    assert not engine.clear_cache()
    serve(engine)
    assert engine.clear_cache()
    again = job(3, prompt=20, text=7)
    serve_all(engine, [(99.0, again)])
    assert again.cached_tokens == 0


# -- several ranks --------------------------------------------------------------------------------


def test_jobs_go_to_the_rank_with_fewest_and_all_wait_for_the_slowest() -> None:
    step = StepTime(base_s=1.0, per_sequence_s=1.0, per_token_s=0.0, prefill_tokens_per_s=100.0)
    engine = Engine(profile(ranks=2, step=step, sequences_max=2), progress_tokens=0)
    jobs = [job(number, prompt=number * 10, output=3) for number in (1, 2, 3)]
    serve_all(engine, [(0.0, each) for each in jobs])
    # The first rank has the jobs of 10 and 30 tokens: its prompts take 0.4 s, then it decodes two.
    assert [each.first_at for each in jobs] == pytest.approx([1.4, 1.4, 1.4])
    assert [each.over_at for each in jobs] == pytest.approx([7.4, 7.4, 7.4])


def test_ranks_may_take_turns_in_being_the_slowest() -> None:
    step = StepTime(base_s=1.0, per_sequence_s=0.0, per_token_s=0.01, prefill_tokens_per_s=1e6)
    over = []
    for lazy in (True, False):
        engine = Engine(profile(ranks=2, step=step, block_tokens=64), progress_tokens=0, lazy=lazy)
        jobs = [Job(1, 60, 40), Job(2, 20, 40), Job(3, 1, 1), Job(4, 20, 40)]
        serve_all(engine, [(0.0, each) for each in jobs])
        over.append([each.over_at for each in jobs])
    # One context of 60 tokens is more than two of 20 until these have grown to 40 each.
    assert over[0] == pytest.approx(over[1], abs=1e-9)
    longest = [max(60 + made, 2 * (20 + made)) for made in range(1, 40)]
    assert over[0][0] == pytest.approx(1 + sum(1 + 0.01 * context for context in longest), abs=1e-3)


def test_waiting_weighs_four_times_as_much_as_running() -> None:
    engine = Engine(profile(ranks=2, sequences_max=4), progress_tokens=0)
    for number in range(8):
        engine.submit(job(number, output=20 if number % 2 else 50), 0.0)
    engine.advance(30.0)  # one rank is empty now, the other runs four
    for number in range(2):
        engine.submit(job(10 + number), 30.0)
    engine.advance(32.5)
    # One waiting on the empty rank is as much as four running on the other: that one got the second.
    assert (engine.running, engine.waiting) == (5, 1)


def test_ranks_have_caches_of_their_own() -> None:
    engine = Engine(profile(ranks=2), progress_tokens=0)
    jobs = [job(number, prompt=21, text=7) for number in range(2)]
    serve_all(engine, [(0.0, each) for each in jobs])
    assert [each.cached_tokens for each in jobs] == [0, 0]


# -- prompts here, answers there ------------------------------------------------------------------


def test_a_prefill_engine_keeps_the_prompt_until_it_is_fetched() -> None:
    engine = Engine(profile(kv_blocks=6), Role.PREFILL)
    one, two = job(1, prompt=16, output=50), job(2, prompt=16, output=50)
    told = serve_all(engine, [(0.0, one), (0.0, two)])
    assert [(each.job, each.milestone, each.tokens) for each in told] == [(one, FIRST, 1), (one, DONE, 1)]
    assert (engine.made(one), engine.waiting) == (1, 1)
    assert engine.kv_use == pytest.approx(4 / 6)
    engine.release(one, 20.0)
    serve(engine)
    assert two.over_at == pytest.approx(21.16)
    engine.abort(two, 30.0)
    assert engine.kv_use == 0
    engine.release(two, 31.0)


def test_a_decode_engine_waits_for_the_cache_and_computes_one_token_of_it() -> None:
    engine = Engine(profile(kv_token_bytes=5, transfer_bytes_per_s=10.0), Role.DECODE, progress_tokens=0)
    remote, local = job(1, prompt=20, remote_tokens=20), job(2, prompt=20)
    serve_all(engine, [(1.0, remote), (1.0, local)])
    assert local.first_at == pytest.approx(2.2)
    assert remote.queued_at >= 11.0  # 20 tokens of 5 bytes at 10 a second
    assert remote.first_at - remote.scheduled_at == pytest.approx(1.01)
    assert remote.cached_tokens == 0


def test_a_transfer_may_be_given_up() -> None:
    engine = Engine(profile(kv_token_bytes=5, transfer_bytes_per_s=10.0), Role.DECODE)
    one, two = job(1, prompt=20, remote_tokens=20), job(2, prompt=20, remote_tokens=20)
    engine.submit(one, 0.0)
    engine.submit(two, 5.0)
    engine.abort(one, 6.0)
    told = serve(engine)
    assert {each.job for each in told} == {two}
    assert two.queued_at == pytest.approx(15.0)
