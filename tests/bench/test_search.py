"""The search for goodput: what it asks for, what it then says, and how often it is wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import pytest

from maitred.bench.search import WIDTH, Found, Search, knee
from maitred.bench.statistics import wilson

Share = Callable[[float], float]


def searched(search: Search, share: Share, requests: int = 2000, rng: Random | None = None) -> Found:
    """Searched to the end; by chance, or with as many good requests as there are on the average."""
    while (rate := search.next_rate()) is not None:
        assert search.next_rate() == rate
        if rng is None:
            good = round(share(rate) * requests)
        else:
            good = sum(rng.random() < share(rate) for _ in range(requests))
        search.told(rate, requests, good)
    return search.found()


def up_to(capacity: float) -> Share:
    """All is good up to there, little beyond."""
    return lambda rate: 1.0 if rate <= capacity else 0.3


@pytest.mark.parametrize("capacity", [0.7, 1, 9, 27.3, 200])
@pytest.mark.parametrize("start", [1, 4, 30])
def test_it_finds_the_edge_within_ten_percent(capacity: float, start: float) -> None:
    found = searched(Search(start), up_to(capacity))
    assert found.resolved
    assert found.holds is not None
    assert found.fails is not None
    assert found.holds <= capacity < found.fails <= WIDTH * found.holds
    assert len(found.probes) <= 15
    assert [probe.rate for probe in found.probes] == sorted(probe.rate for probe in found.probes)


def test_it_doubles_and_then_halves_the_bracket() -> None:
    found = searched(Search(4), up_to(19))
    assert [probe.rate for probe in found.probes] == [4, 8, 16, 18, 19, 20, 24, 32]


def test_where_nothing_is_served_in_time_it_gives_up() -> None:
    found = searched(Search(4), up_to(0))
    assert (found.holds, found.resolved) == (None, False)
    assert found.fails == 4 / 64


def test_it_stops_at_its_last_probe() -> None:
    found = searched(Search(1, probes_max=6), up_to(math.inf))
    assert (found.holds, found.fails, found.resolved) == (32, None, False)
    found = searched(Search(1, probes_max=3), up_to(3))
    assert (found.holds, found.fails, found.resolved) == (2, 4, False)


def test_too_few_requests_decide_nothing() -> None:
    search = Search(4)
    assert search.requests_min == 59
    assert search.told(4, 58, 58).said == "unresolved"
    assert search.next_rate() == 4
    again = search.told(4, 58, 58)
    assert (again.said, again.runs, again.attempted) == ("yes", 2, 116)
    assert search.next_rate() == 8


def test_requests_that_hang_together_decide_less() -> None:
    search = Search(4)
    probe = search.told(4, 1000, 1000, independent=50)
    assert (probe.said, probe.independent) == ("unresolved", 50)
    assert probe.low == pytest.approx(wilson(50, 50)[0])
    assert search.told(4, 1000, 1000, independent=50).said == "yes"
    assert search.told(8, 1000, 900, independent=30).said == "unresolved"
    assert search.told(12, 100, 99, independent=59).said == "unresolved"  # part of a miss is one
    assert search.told(16, 200, 170, independent=30).said == "unresolved"  # and 4.5 are not five
    assert search.told(8, 1000, 900).said == "no"


def test_a_probe_that_over_saturates_says_no_whatever_it_saw() -> None:
    search = Search(4)
    assert search.told(4, 58, 58).said == "unresolved"
    probe = search.told(4, 1000, 1000, overloaded=True)
    assert (probe.said, probe.overloaded, probe.attempted) == ("no", True, 1058)
    assert search.next_rate() == 2
    found = search.found()
    assert (found.holds, found.fails) == (None, 4)
    assert (found.attainment, found.confidence) == (0.95, 0.95)
    assert search.told(2, 0, 0, overloaded=True).said == "no"


def test_what_stays_undecided_steers_by_its_looks_and_is_not_claimed() -> None:
    search = Search(4)
    for _ in range(2):
        search.told(4, 100, 97)
    assert search.next_rate() == 8
    for _ in range(2):
        search.told(8, 100, 93)
    assert search.next_rate() == 6
    found = search.found()
    assert [probe.said for probe in found.probes] == ["unresolved", "unresolved"]
    assert (found.holds, found.fails, found.resolved) == (None, None, False)


def test_the_probes_that_are_left_go_to_the_ends() -> None:
    search = Search(10)
    search.told(10, 1000, 1000)
    search.told(20, 1000, 0)
    for rate in (15, 12.5, 11.25, 10.625):
        assert search.next_rate() == rate
        search.told(rate, 1000, 0) if rate > 11 else search.told(rate, 100, 96)
    assert [search.next_rate()] == [10.625]
    search.told(10.625, 100, 96)
    assert search.next_rate() == 10.625
    search.told(10.625, 1000, 1000)
    assert search.next_rate() is None
    assert search.found().holds == 10.625


def test_a_probe_in_which_nothing_was_sent_says_nothing() -> None:
    search = Search(4, probes_max=3)
    assert search.told(4, 0, 0).said == "unresolved"
    search.told(4, 0, 0)
    assert search.next_rate() == 2
    assert search.found().knee is None


@pytest.mark.parametrize("requests", [100, 400])
def test_it_claims_what_is_false_no_more_often_than_stated(requests: int) -> None:
    """Shares fall smoothly through the attainment at a rate that no probe meets exactly."""
    searches, wrong, resolved = 150, 0, 0
    for seed in range(searches):
        rng = Random(seed)
        capacity = rng.uniform(5, 40)

        def share(rate: float, capacity: float = capacity) -> float:
            return 1 / (1 + math.exp(20 * (rate / capacity - 1)) / 19)

        found = searched(Search(4), share, requests, rng)
        wrong += found.holds is not None and found.holds > capacity
        wrong += found.fails is not None and found.fails < capacity
        resolved += found.resolved
    assert wrong <= 0.05 * searches
    assert resolved > searches / 2


def test_the_knee_is_where_more_load_brings_no_more() -> None:
    flat = [(rate, min(rate, 10)) for rate in (1, 2, 4, 8, 9, 10, 12, 16)]
    assert knee(flat) == 10
    falling = [(rate, rate if rate <= 10 else 3.0) for rate in (1, 2, 4, 8, 10, 12, 16)]
    assert knee(falling) == 10
    assert knee(flat[:4]) is None


def test_a_straight_line_has_no_knee() -> None:
    rng = Random(1)
    assert knee([(rate, rate * rng.uniform(0.97, 1.03)) for rate in range(1, 20)]) is None
    assert knee([(rate, 5.0) for rate in range(1, 20)]) is None
    assert knee([(3, rate) for rate in range(1, 20)]) is None
