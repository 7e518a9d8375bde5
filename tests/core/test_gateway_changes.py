"""The world and the settings change under a gateway: addresses, probes, corrections, reloads."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from maitred.core import pool as pools
from maitred.core.events import EndpointMoved
from maitred.core.limits import Limits
from maitred.core.outcome import FailureKind, Outcome, Refusal
from maitred.core.words import (
    BandSettings,
    EndpointState,
    Leg,
    LegPhase,
    PoolSettings,
    Probed,
    Settings,
    TenantSettings,
)
from tests.core.hall import Hall, limited, refused

PROBING, READY, EJECTED, DRAINING, GONE = EndpointState


def over_by_finish(hall: Hall, leg: Leg) -> None:
    hall.finish(leg.ticket)


def over_by_leave(hall: Hall, leg: Leg) -> None:
    hall.gateway.leave(leg, None, hall.now)


def over_by_fail(hall: Hall, leg: Leg) -> None:
    hall.fail(leg, FailureKind.CONNECT)


def over_by_correction(hall: Hall, leg: Leg) -> None:
    hall.gateway.sent(leg, hall.now, "p/b:1")


@pytest.mark.parametrize("over", [over_by_finish, over_by_leave, over_by_fail, over_by_correction])
def test_a_removed_endpoint_drains_and_goes_with_its_last_leg(over: Callable[[Hall, Leg], None]) -> None:
    hall = Hall()
    hall.open(p="ab")
    legs = [hall.seat() for _ in range(4)]
    endpoint = hall.endpoint("p/a:1")
    hall.address(p="b")
    assert hall.states() == {"p/a:1": DRAINING, "p/b:1": READY}
    assert hall.seat().endpoint.name == "p/b:1"
    for leg in legs:
        if leg.endpoint is endpoint:
            assert endpoint.state is DRAINING
            over(hall, leg)
    assert (endpoint.state, endpoint.running) == (GONE, 0)
    assert hall.states() == {"p/b:1": READY}
    assert hall.events[-1] != EndpointMoved(hall.now, endpoint, DRAINING, DRAINING, "")
    assert EndpointMoved(hall.now, endpoint, DRAINING, GONE, "") in hall.events


def test_a_removed_endpoint_without_legs_goes_at_once() -> None:
    hall = Hall()
    hall.open(p="ab", q="c")
    hall.address(p="b")
    assert hall.states() == {"p/b:1": READY}
    with pytest.raises(Refusal, match="no endpoint"):
        hall.accept("q")


def test_an_endpoint_listed_again_while_it_drains_is_asked_again() -> None:
    hall = Hall()
    hall.open(p="a")
    hall.finish(hall.seat().ticket)
    leg = hall.seat()
    hall.address()
    hall.address(p="a")
    assert hall.states() == {"p/a:1": PROBING}
    waits = hall.accept()
    assert hall.seated() == []
    hall.probe("p/a:1")
    assert hall.seated() == [waits]
    assert waits.legs[0].endpoint is leg.endpoint
    assert hall.running() == {"p/a:1": 2}


def test_an_unknown_address_in_a_probe_means_nothing() -> None:
    hall = Hall()
    hall.open(p="a")
    before = list(hall.events)
    hall.probe("p/z:1")
    assert hall.states() == {"p/a:1": READY}
    assert hall.events == before


def test_what_is_wrong_with_an_endpoint_is_remembered_until_it_is_well() -> None:
    hall = Hall()
    hall.address(p="a")
    for ok, why in ((False, "it serves another model"), (True, ""), (False, "no answer"), (True, "")):
        hall.gateway.update(Probed("p/a:1", ok, why=why), hall.now)
        assert hall.endpoint("p/a:1").why == why
    moved = [event for event in hall.events if isinstance(event, EndpointMoved)]
    assert [(event.after, event.why) for event in moved[1:]] == [
        (READY, ""),
        (EJECTED, "no answer"),
        (READY, ""),
    ]


def test_a_correction_moves_the_place_to_where_the_request_went() -> None:
    hall = Hall()
    hall.open(p="abc")
    leg = hall.seat()
    hall.probe("p/b:1", ok=False)
    hall.probe("p/b:1")
    hall.gateway.sent(leg, hall.now, "p/b:1")
    assert hall.running() == {"p/a:1": 0, "p/b:1": 1, "p/c:1": 0}
    assert (leg.endpoint.name, leg.incarnation) == ("p/b:1", 1)
    hall.gateway.sent(leg, hall.now, "p/c:1")  # bytes leave once
    assert leg.endpoint.name == "p/b:1"
    hall.finish(leg.ticket)
    assert set(hall.running().values()) == {0}


@pytest.mark.parametrize("where", [None, "p/a:1", "p/nobody:1"])
def test_a_correction_that_says_nothing_new_changes_nothing(where: str | None) -> None:
    hall = Hall()
    hall.open(p="ab")
    leg = hall.seat()
    hall.gateway.sent(leg, hall.now, where)
    assert (leg.endpoint.name, leg.phase) == ("p/a:1", LegPhase.SENT)
    assert hall.running() == {"p/a:1": 1, "p/b:1": 0}


def test_a_correction_into_another_pool_survives_the_end_of_its_own() -> None:
    hall = Hall()
    hall.open(p="a", q="c")
    leg = hall.seat()
    hall.gateway.sent(leg, hall.now, "q/c:1")
    hall.address(q="c")
    hall.open(p="a", q="c")
    assert hall.fail(leg)
    assert hall.seated() == [leg.ticket]


def test_while_draining_nobody_new_comes_in_and_all_inside_are_served() -> None:
    hall = Hall(limited(cap=1))
    hall.open(p="ab")
    leg, other, waiting = hall.seat(), hall.seat(), hall.accept()
    hall.set(Settings(default=PoolSettings(cap=1), accepting=False))
    refusal = refused(hall)
    assert (refusal.outcome, refusal.wait_s) == (Outcome.DRAINING, 1.0)
    assert hall.fail(leg)
    assert hall.seated() == [waiting]
    hall.finish(other.ticket)
    assert hall.seated() == [leg.ticket]


def test_a_lowered_cap_drains_and_a_raised_one_seats() -> None:
    hall = Hall(limited(cap=3))
    hall.open(p="a")
    legs = [hall.seat() for _ in range(3)]
    waiting = [hall.accept() for _ in range(3)]
    hall.set(limited(cap=1))
    for leg in legs[:2]:
        hall.finish(leg.ticket)
        assert hall.seated() == []
    assert hall.running() == {"p/a:1": 1}
    hall.finish(legs[2].ticket)
    assert hall.seated() == waiting[:1]
    hall.set(limited(cap=3))
    assert hall.seated() == waiting[1:]


def test_a_lowered_bound_stops_newcomers_and_nobody_else() -> None:
    hall = Hall(limited(cap=1, queue_wait_s=30.0))
    hall.open(p="a")
    leg = hall.seat()
    waiting = [hall.accept() for _ in range(3)]
    hall.set(limited(cap=1, queue_requests_max=1, queue_wait_s=5.0))
    assert refused(hall).outcome is Outcome.QUEUE_FULL
    assert hall.release() == []
    assert {ticket.queue_deadline for ticket in waiting} == {130.0}
    hall.finish(leg.ticket)
    assert hall.seated() == waiting[:1]


def test_whoever_has_asked_before_comes_by_the_new_settings() -> None:
    hall = Hall()
    hall.open(p="a")
    hall.seat()
    tenant = TenantSettings(weight=3.0, bands=("low",), limits=Limits(concurrent=1))
    bands = BandSettings("high"), BandSettings("low", deadline_s=5.0)
    hall.set(Settings(bands=bands, tenants={"t": tenant}))
    ticket = hall.accept()
    assert (ticket.band, ticket.rank, ticket.weight) == ("low", 1, 3.0)
    assert ticket.give_up_at == hall.now + 5.0
    assert refused(hall).outcome is Outcome.CONCURRENCY_LIMITED
    hall.set(limited(limits=Limits(concurrent=9), queue_wait_s=7.0))
    ticket = hall.accept()
    assert (ticket.band, ticket.rank, ticket.weight) == ("default", 0, 1.0)
    assert ticket.give_up_at == hall.now + 7.0
    assert ticket.hold is not None
    assert [holder.name for holder in ticket.hold.holders] == ["model p"]
    hall.set(limited(limits=Limits()))
    assert hall.accept().hold is None


def test_of_only_so_many_is_it_known_on_what_terms_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "TERMS_MAX", 3)
    hall = Hall()
    hall.open(p="a")
    known = set()
    for number in range(10):
        hall.seat(tenant=f"t{number}")
        known.add(len(hall.gateway._pools["p"].terms))
    assert known == {1, 2, 3}


def test_settings_of_a_pool_bind_that_pool_alone() -> None:
    hall = Hall(Settings(pools={"p": PoolSettings(cap=1)}, default=PoolSettings(cap=2)))
    hall.open(p="a", q="b")
    tickets = {pool: [hall.accept(pool) for _ in range(3)] for pool in "pq"}
    assert hall.seated() == tickets["p"][:1] + tickets["q"][:2]
