"""A fleet in virtual time: what requests meet, and that the books are kept."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any
from unittest.mock import patch

import pytest

from maitred.config.simulate import Fault
from maitred.core.gateway import Gateway
from maitred.core.outcome import Outcome
from maitred.core.words import PoolSettings, Ticket
from maitred.sim.arrival import Arrival
from maitred.sim.fleet import Fleet, Waits
from maitred.sim.invariants import Violation
from tests.sim.place import ONE, TWO, Script, arrival, fleet, run

BOTH = (ONE, TWO)


def test_an_answer_takes_what_its_engine_takes() -> None:
    record = run(fleet(Script([arrival(1, at=3.0, prompt=100, output=11)])))[1]
    assert record.outcome is Outcome.COMPLETED
    assert record.queue_s == 0.0
    assert record.ttft_s == pytest.approx(0.02)  # a step of 10 ms, and 10 more for 100 tokens of prompt
    assert record.over_at == pytest.approx(3.12)
    assert (record.tokens, record.attempts) == (11, 1)


def test_the_network_is_added() -> None:
    record = run(fleet(Script([arrival(1)]), waits=Waits(network_s=0.045)))[1]
    assert record.ttft_s == pytest.approx(0.065)


def test_what_follows_an_answer_comes_when_the_client_has_it() -> None:
    follower = arrival(2)
    records = run(fleet(Script([arrival(1)], {1: [follower]}), waits=Waits(network_s=0.045)))
    assert follower.at == records[1].over_at


def test_preemptions_of_those_who_left_count_too() -> None:
    script = Script([arrival(n, prompt=1500, output=1000, patience_s=8.0) for n in range(5)])
    house = fleet(script, urls=(ONE,))
    records = run(house)
    assert {record.outcome for record in records.values()} == {Outcome.CLIENT_GONE}
    engine = next(iter(house.nodes.values())).engine
    assert sum(record.preemptions for record in records.values()) == engine.preemptions > 0


def test_arrivals_are_made_when_they_are_asked_for() -> None:
    made = 0

    class Endless(Script):
        def begin(self, at: float) -> Iterator[Arrival]:
            nonlocal made
            for number in count(1):
                made = number
                yield arrival(number, at=number / 10)

    house = fleet(Endless([]))
    while house.now < 10.0:
        house.step()
    assert made <= 101


def test_requests_are_spread_over_the_engines() -> None:
    records = run(fleet(Script([arrival(n) for n in range(4)])))
    assert sorted(record.endpoint[-1] for record in records.values()) == ["1", "1", "2", "2"]


def test_what_has_no_place_waits_for_one() -> None:
    records = run(fleet(Script([arrival(n, at=n / 1000) for n in range(4)]), PoolSettings(cap=1)))
    assert [records[n].queue_s for n in (0, 1)] == [0.0, 0.0]
    assert records[2].queue_s == pytest.approx(records[0].over_at - 0.002)
    assert records[3].queue_s == pytest.approx(records[1].over_at - 0.003)


def test_who_finds_the_queue_full_is_refused_and_who_waits_too_long_is_stopped() -> None:
    pool = PoolSettings(cap=1, queue_requests_max=1, queue_wait_s=0.5)
    long = [arrival(n, output=200) for n in (1, 2)]
    records = run(fleet(Script([*long, arrival(3, at=0.1), arrival(4, at=0.2)]), pool))
    assert records[4].outcome is Outcome.QUEUE_FULL
    assert records[4].over_at == 0.2
    assert records[3].outcome is Outcome.QUEUE_DEADLINE
    assert records[3].over_at == pytest.approx(0.6)


def test_a_turn_follows_the_answer_before_it() -> None:
    follower = arrival(2, at=1.5)
    records = run(fleet(Script([arrival(1)], {1: [follower]})))
    assert follower.at == pytest.approx(records[1].over_at + 1.5)
    assert records[2].outcome is Outcome.COMPLETED


@pytest.mark.parametrize(("patience_s", "tokens"), [(0.005, 0), (0.055, 4), (0.4, 39)])
def test_a_client_leaves_and_its_place_is_free(patience_s: float, tokens: int) -> None:
    house = fleet(Script([arrival(1, output=100, patience_s=patience_s)]), urls=(ONE,))
    record = run(house)[1]
    assert record.outcome is Outcome.CLIENT_GONE
    assert record.over_at == patience_s
    assert record.tokens == tokens
    node = next(iter(house.nodes.values()))
    assert not node.jobs
    assert node.engine.running == node.engine.waiting == 0


def test_a_client_may_leave_the_queue() -> None:
    script = Script([arrival(1, output=50), arrival(2, patience_s=0.1)])
    record = run(fleet(script, PoolSettings(cap=1), urls=(ONE,)))[2]
    assert (record.outcome, record.endpoint, record.attempts) == (Outcome.CLIENT_GONE, "", 0)


def test_what_an_engine_cannot_hold_it_refuses() -> None:
    assert run(fleet(Script([arrival(1, prompt=4097)])))[1].outcome is Outcome.ENGINE_REFUSED


def test_a_crash_costs_those_who_had_content_and_nobody_else() -> None:
    early, late = arrival(1, output=500), arrival(2, at=0.999, prompt=1000)
    later = [arrival(n, at=1.0 + n / 10) for n in range(3, 9)]
    crash = Fault(at_s=1.0, endpoint=ONE, fault="crash")
    records = run(fleet(Script([early, arrival(10, output=500), late, *later]), faults=(crash,)))
    assert records[1].outcome is Outcome.FAILED_TRUNCATED
    assert records[1].over_at == 1.0
    assert (records[2].outcome, records[2].attempts) == (Outcome.COMPLETED, 2)
    assert all(records[n].outcome is Outcome.COMPLETED for n in range(3, 9))
    assert {records[n].endpoint for n in range(3, 9)} == {"m/127.0.0.1:8102"}


def test_a_crashed_engine_comes_back_after_its_start() -> None:
    steady = [arrival(n, at=float(n)) for n in range(70)]
    records = run(fleet(Script(steady), faults=(Fault(at_s=5.5, endpoint=ONE, fault="crash"),)))
    there = [number for number, record in records.items() if record.endpoint.endswith("8101")]
    assert [number for number in there if number < 5.5]
    assert not [number for number in there if 5.5 < number < 25.5]
    assert [number for number in there if number > 57]  # it starts slowly: 30 s to its full share


def test_a_hung_engine_is_given_up() -> None:
    waits = Waits(first_byte_s=5.0, idle_s=3.0)
    hang = Fault(at_s=1.0, endpoint=ONE, fault="hang")
    script = Script([arrival(1, output=500), arrival(2, at=2.0)])
    records = run(fleet(script, faults=(hang,), urls=(ONE,), waits=waits))
    assert [records[n].outcome for n in (1, 2)] == [Outcome.FAILED_UPSTREAM, Outcome.FAILED_DEADLINE]
    assert [records[n].over_at for n in (1, 2)] == pytest.approx([4.0, 7.0])


def test_what_was_cut_off_tells_what_it_did_meanwhile() -> None:
    cut = Fault(at_s=1.0, endpoint=ONE, fault="cut", for_s=2.0)
    record = run(fleet(Script([arrival(1, output=150)]), faults=(cut,), urls=(ONE,)))[1]
    assert record.outcome is Outcome.COMPLETED
    assert record.over_at == 3.0


def test_a_slow_engine_is_slow_until_it_is_not() -> None:
    slow = Fault(at_s=0.0, endpoint=ONE, fault="slow", for_s=1.0, factor=5)
    script = Script([arrival(1, at=0.5, output=2), arrival(2, at=1.5, output=2)])
    records = run(fleet(script, faults=(slow,), urls=(ONE,)))
    assert records[1].over_at - 0.5 == pytest.approx(5 * (records[2].over_at - 1.5))


def test_endpoints_come_and_go() -> None:
    steady = [arrival(n, at=float(n)) for n in range(60)]
    faults = (Fault(at_s=10.0, endpoint=TWO, fault="add"), Fault(at_s=45.5, endpoint=ONE, fault="remove"))
    records = run(fleet(Script(steady), PoolSettings(routing="least-requests"), faults=faults))
    assert {records[n].endpoint[-1] for n in range(30)} == {"1"}
    assert {records[n].endpoint[-1] for n in range(32, 45)} == {"1", "2"}
    assert {records[n].endpoint[-1] for n in range(46, 60)} == {"2"}


def test_the_same_seed_gives_the_same_run() -> None:
    def told() -> list[tuple[object, ...]]:
        script = Script([arrival(n, at=n / 50, output=5 + n % 40) for n in range(200)])
        crash = Fault(at_s=1.0, endpoint=ONE, fault="crash")
        house = fleet(script, PoolSettings(cap=3, queue_wait_s=0.3), faults=(crash,))
        run(house)
        return [(r.arrival.number, r.outcome, r.over_at, r.ttft_s, r.endpoint) for r in house.records]

    assert told() == told()


# -- the invariants ------------------------------------------------------------------------------------


def crowd() -> Fleet:
    script = Script([arrival(n, at=n / 100, output=20, patience_s=0.5) for n in range(100)])
    return fleet(script, PoolSettings(cap=2, queue_requests_max=50))


def test_a_place_that_is_never_given_back_is_seen() -> None:
    with (
        patch("maitred.core.saturation.give_back", lambda *_: None),
        pytest.raises(Violation, match=r"seed 1, event \d+"),
    ):
        run(crowd())


def test_a_cap_that_is_passed_is_seen() -> None:
    chosen = patch.dict("maitred.core.chooser.ROUTING", {"default": lambda ends, *_: next(iter(ends))})
    with chosen, pytest.raises(Violation, match="its cap is 2"):
        run(crowd())


def test_a_ticket_that_ends_twice_is_seen() -> None:
    finish = Gateway.finish

    def twice(gateway: Gateway, ticket: Ticket, *what: Any) -> Outcome:
        legs = ticket.legs
        finish(gateway, ticket, *what)
        ticket.legs, ticket.outcome = legs, None  # as if nobody had looked whether it is over
        return finish(gateway, ticket, *what)

    with patch.object(Gateway, "finish", twice), pytest.raises((Violation, KeyError)):
        run(crowd())


def test_a_queue_past_its_bound_is_seen() -> None:
    with (
        patch("maitred.core.queue.PoolQueue.full", lambda *_: False),
        patch("maitred.core.queue.PoolQueue.crowded", lambda *_: False),
        pytest.raises(Violation, match="its bound is 50"),
    ):
        run(fleet(Script([arrival(n) for n in range(60)]), PoolSettings(cap=2, queue_requests_max=50)))
