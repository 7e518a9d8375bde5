"""Whether the p99 is within a limit: who counts as over it, and how many requests it takes to tell."""

from __future__ import annotations

from random import Random

import pytest

from maitred.bench.limits import Limit, limits
from maitred.bench.shot import Ending, Shot
from tests.bench.finished import answered, lost, mixed, run
from tests.bench.queues import queued


def ttft(shots: list[Shot], limit_s: float = 1.0) -> Limit:
    return limits(shots, run(shots, slo_ttft_s=limit_s))["ttft_s"]


def some(count: int, over: int = 0) -> list[Shot]:
    """So many requests, of which these are over a second, here and there."""
    return [answered(ttft_s=2.0 if n < over else 0.2) for n in mixed(count)]


@pytest.mark.parametrize(("over", "needed"), [(0, 459), (1, 662), (2, 838), (5, 1307)])
def test_so_many_requests_show_that_it_is_kept(over: int, needed: int) -> None:
    assert ttft(some(needed, over)) == Limit(1.0, needed, over, needed, "yes")
    assert ttft(some(needed - 1, over)) == Limit(1.0, needed - 1, over, needed - 1, "cannot tell yet", 1)


def test_so_many_misses_show_that_it_is_broken() -> None:
    assert ttft(some(400, 12)).said == "no"
    assert ttft(some(400, 6)).said == "cannot tell yet"


@pytest.mark.parametrize("ending", [Ending.FAILED, Ending.REFUSED, Ending.LEFT])
def test_who_was_not_served_is_over_every_limit(ending: Ending) -> None:
    shots = some(400)
    for place in range(0, 400, 20):
        shots[place] = lost(float(place), ending)
    found = limits(shots, run(shots, slo_ttft_s=1.0, slo_tpot_s=0.1))
    assert [(limit.over, limit.said) for limit in found.values()] == [(20, "no"), (20, "no")]
    none = [lost(float(n), ending) for n in range(60)]
    assert ttft(none).said == "no"


def test_of_a_few_nothing_is_said() -> None:
    assert ttft(some(49, 49)).said == "cannot tell yet"
    assert ttft(some(50, 50)).said == "no"


def test_requests_that_hang_together_are_fewer() -> None:
    """Forty in a row were late, once: another such moment may or may not be usual."""
    shots = [answered(float(n), ttft_s=2.0 if 100 <= n < 140 else 0.2) for n in range(1000)]
    found = ttft(shots)
    assert found.independent < 100
    assert found.said == "cannot tell yet"
    assert found.more > 1000


def test_only_what_answers_show_is_judged() -> None:
    whole = [answered(float(n), first_at=None, answer_at=None) for n in range(500)]
    both = {"slo_ttft_s": 1.0, "slo_tpot_s": 0.05}
    assert limits(whole, run(whole, **both)) == {}
    whole[:9] = [lost(float(n)) for n in range(9)]  # whose failures alone would say no
    assert limits(whole, run(whole, **both)) == {}
    short = [answered(float(n), tokens=1) for n in range(500)]
    assert list(limits(short, run(short, **both))) == ["ttft_s"]
    assert limits(short, run(short)) == limits([], run([], **both)) == {}


def test_in_a_queue_few_misses_prove_little() -> None:
    """Its p99 is just at the limit, but the waits beyond come together, and in most runs there are few."""
    p99_s = 1.48  # of 100,000 requests
    runs = [queued(seed, 1000, 0.6) for seed in range(80)]
    said = [ttft(of.measured(), p99_s).said for of in runs]
    assert said.count("yes") <= 5
    assert said.count("no") <= 4


def test_it_is_wrong_no_more_often_than_stated() -> None:
    """A server whose p99 is just at the limit: each answer is a mistake, and comes by chance in 1 %."""
    wrong = {"yes": 0, "no": 0}
    for seed in range(200):
        rng = Random(seed)
        shots = [answered(float(n), ttft_s=2.0 if rng.random() < 0.01 else 0.2) for n in range(700)]
        said = ttft(shots).said
        if said != "cannot tell yet":
            wrong[said] += 1
    assert max(wrong.values()) <= 7
