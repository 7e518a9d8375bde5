"""Ejection, slow start, quarantine, and what the operator holds."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from maitred.core.health import FIRST_SHARE, LINGER_S, WATCHED_MAX, Quarantine
from maitred.core.outcome import FailureKind, Outcome, Refusal
from maitred.core.words import (
    Api,
    Endpoint,
    Endpoints,
    EndpointState,
    Facts,
    Failure,
    HealthSettings,
    Held,
    Identity,
    Leg,
    Load,
    Observed,
    PoolSettings,
    Probed,
    Request,
    Settings,
    Stop,
    Ticket,
)
from tests.core.hall import Hall

READY, EJECTED, DRAINING, PROBING = (
    EndpointState.READY,
    EndpointState.EJECTED,
    EndpointState.DRAINING,
    EndpointState.PROBING,
)
UNHEARD = (FailureKind.CONNECT, FailureKind.TLS, FailureKind.UNREACHABLE)
FAULTS = [kind for kind in FailureKind if kind.blames and kind not in UNHEARD]
HEALTH = HealthSettings(failures_max=3, slow_start_s=20.0, quarantine_s=600.0)
ids = itertools.count()


def hall(hosts: str = "ab", cap: int = 256, attempts: int = 1, **more: Any) -> Hall:
    made = Hall(Settings(default=PoolSettings(cap=cap, **more), attempts_max=attempts, health=HEALTH))
    made.open(p=hosts)
    return made


def enter(hall: Hall, fingerprint: int = 0, adapter: str = "") -> Ticket:
    request = Request(f"h{next(ids)}", Api.CHAT, "p", "p", True, adapter=adapter, fingerprint=fingerprint)
    return hall.gateway.accept(request, Identity(), hall.now)


def seat_at(hall: Hall, name: str, fingerprint: int = 0) -> Leg:
    """Seat requests until one sits at this endpoint; the others are finished again."""
    while True:
        ticket = enter(hall, fingerprint)
        hall.release()
        leg = ticket.legs[0]
        if leg.endpoint.name == name:
            return leg
        hall.gateway.finish(ticket, Outcome.CLIENT_GONE, None, hall.now)


def fail_at(hall: Hall, name: str, kind: FailureKind = FailureKind.STATUS_5XX, fingerprint: int = 0) -> None:
    leg = seat_at(hall, name, fingerprint)
    hall.fail(leg, kind)
    hall.finish(leg.ticket, kind.outcome)


# -- ejection ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FAULTS)
def test_failures_in_a_row_that_are_its_own_eject_an_endpoint(kind: FailureKind) -> None:
    house = hall()
    for _ in range(HEALTH.failures_max):
        assert house.states()["p/a:1"] is READY
        fail_at(house, "p/a:1", kind)
    assert house.states() == {"p/a:1": EJECTED, "p/b:1": READY}
    assert "3 failures in a row" in house.endpoint("p/a:1").why


def test_a_connection_that_nobody_answers_ejects_at_the_second_time_and_never_the_last() -> None:
    house = hall()
    for state in (READY, EJECTED):
        fail_at(house, "p/a:1", FailureKind.UNREACHABLE, fingerprint=7)
        assert house.states()["p/a:1"] is state
    for _ in range(9):
        fail_at(house, "p/b:1", FailureKind.UNREACHABLE, fingerprint=7)
    assert house.states()["p/b:1"] is READY


@pytest.mark.parametrize("kind", [kind for kind in FailureKind if not kind.blames])
def test_what_is_not_its_fault_ejects_nobody(kind: FailureKind) -> None:
    house = hall()
    for _ in range(3 * HEALTH.failures_max):
        fail_at(house, "p/a:1", kind)
    assert house.states()["p/a:1"] is READY


def test_an_answer_in_between_forgives() -> None:
    house = hall()
    for _ in range(5):
        fail_at(house, "p/a:1")
        fail_at(house, "p/a:1")
        house.finish(seat_at(house, "p/a:1").ticket, Outcome.COMPLETED)
    assert house.states()["p/a:1"] is READY


def test_the_last_endpoint_is_never_ejected_for_its_failures() -> None:
    house = hall("a")
    for _ in range(5 * HEALTH.failures_max):
        fail_at(house, "p/a:1")
    assert house.states()["p/a:1"] is READY


def test_one_broken_request_repeated_is_one_failure() -> None:
    house = hall()
    for _ in range(5 * HEALTH.failures_max):
        fail_at(house, "p/a:1", fingerprint=77)
    assert house.states()["p/a:1"] is READY
    fail_at(house, "p/a:1", fingerprint=78)
    fail_at(house, "p/a:1", fingerprint=79)
    assert house.states()["p/a:1"] is EJECTED


@pytest.mark.parametrize("kind", [FailureKind.STATUS_5XX, FailureKind.ERROR_EVENT])
def test_what_two_engines_say_of_a_request_is_the_fault_of_neither(kind: FailureKind) -> None:
    house = hall(attempts=2)
    for number in range(5 * HEALTH.failures_max):
        house.now += 2  # so often may a request be repeated
        ticket = enter(house, number + 1)
        house.release()
        assert house.fail(ticket.legs[0], kind)
        house.release()
        assert not house.fail(ticket.legs[0], kind)
        house.finish(ticket, Outcome.FAILED_UPSTREAM)
    assert set(house.states().values()) == {READY}
    assert [endpoint.failures for endpoint in house.gateway.table.by_name.values()] == [0, 0]


def test_one_engine_that_says_so_alone_is_at_fault() -> None:
    house = hall(attempts=2)
    for number in range(HEALTH.failures_max):
        ticket = enter(house, number + 1)
        house.release()
        while ticket.legs[0].endpoint.name != "p/a:1":
            house.finish(ticket, Outcome.CLIENT_GONE)
            ticket = enter(house, number + 1)
            house.release()
        assert house.fail(ticket.legs[0], FailureKind.STATUS_5XX)
        house.release()
        house.finish(ticket, Outcome.COMPLETED)
    assert house.states() == {"p/a:1": EJECTED, "p/b:1": READY}


def test_ejections_in_a_row_are_counted_until_it_is_well_again() -> None:
    house = hall()
    for times in (1, 2, 3):
        for _ in range(HEALTH.failures_max):
            fail_at(house, "p/a:1")
        assert house.endpoint("p/a:1").ejections == times
        house.probe("p/a:1")
        house.now += HEALTH.slow_start_s
        house.release()
        enter(house)
    house.release()
    house.finish(seat_at(house, "p/a:1").ticket, Outcome.COMPLETED)
    assert house.endpoint("p/a:1").ejections == 0


# -- slow start -------------------------------------------------------------------------------------


def returned(cap: int = 100) -> Hall:
    """Endpoint a was away and has just come back; b is well."""
    house = hall(cap=cap, routing="least-requests")
    house.probe("p/a:1", ok=False)
    house.probe("p/a:1", ok=True)
    return house


def test_a_returned_endpoint_gets_its_share_back_slowly() -> None:
    house = returned(cap=100)
    for _ in range(200):
        enter(house)
    house.release()
    shares = [house.running()["p/a:1"]]
    assert house.running() == {"p/a:1": 10, "p/b:1": 100}
    for _ in range(4):
        house.now += HEALTH.slow_start_s / 4
        house.release()
        shares.append(house.running()["p/a:1"])
    assert shares == [10, 32, 55, 77, 100]
    assert house.endpoint("p/a:1").share == 1.0


def test_it_counts_as_fuller_than_it_is() -> None:
    house = returned(cap=100)
    for _ in range(22):
        enter(house)
    house.release()
    assert house.running() == {"p/a:1": 2, "p/b:1": 20}


def test_who_waits_is_woken_when_the_share_grows() -> None:
    house = returned(cap=10)
    for _ in range(12):
        enter(house)
    house.release()
    assert house.running() == {"p/a:1": 1, "p/b:1": 10}
    rings = 0
    while house.waiting():
        due = house.gateway.next_wakeup()
        assert due is not None
        house.now = due
        house.release()
        rings += 1
    assert rings <= 3
    assert house.now < 100.0 + HEALTH.slow_start_s / 4


def test_a_first_start_is_not_slow() -> None:
    assert FIRST_SHARE < 1
    assert {endpoint.share for endpoint in hall().gateway.table.by_name.values()} == {1.0}


# -- what the operator holds ------------------------------------------------------------------------


def test_a_held_endpoint_drains_stays_and_comes_back_by_a_probe() -> None:
    house = hall()
    leg = seat_at(house, "p/a:1")
    house.gateway.update(Held("p/a:1", held=True), house.now)
    assert house.states()["p/a:1"] is DRAINING
    house.finish(leg.ticket)
    house.open(p="ab")  # a probe and a reload do not let it in
    assert house.states() == {"p/a:1": DRAINING, "p/b:1": READY}
    assert {house.seat().endpoint.name for _ in range(4)} == {"p/b:1"}
    house.gateway.update(Held("p/a:1", held=False), house.now)
    assert house.states()["p/a:1"] is PROBING
    house.probe("p/a:1")
    assert house.states()["p/a:1"] is READY


def test_a_held_endpoint_that_leaves_the_set_goes() -> None:
    house = hall()
    house.gateway.update(Held("p/a:1", held=True), house.now)
    house.address(p="b")
    assert house.states() == {"p/b:1": READY}


def test_holding_twice_or_a_stranger_changes_nothing() -> None:
    house = hall()
    for name in ("p/nobody:1", "p/a:1", "p/a:1"):
        house.gateway.update(Held(name, held=name.endswith("nobody:1")), house.now)
    assert set(house.states().values()) == {READY}


# -- quarantine -------------------------------------------------------------------------------------


def die_at(hall: Hall, name: str, fingerprint: int) -> None:
    """A request is lost at this endpoint, which then refuses connections."""
    fail_at(hall, name, FailureKind.RESET, fingerprint)
    hall.probe(name, ok=False)


def refusal(hall: Hall, fingerprint: int) -> Outcome | None:
    try:
        ticket = enter(hall, fingerprint)
    except Refusal as refused:
        return None if refused.retryable else refused.outcome
    hall.finish(ticket, Outcome.CLIENT_GONE)
    return None


def test_a_request_that_was_there_at_two_deaths_is_kept_out_for_a_while() -> None:
    house = hall("abc")
    die_at(house, "p/a:1", 7)
    assert refusal(house, 7) is None
    die_at(house, "p/b:1", 7)
    assert refusal(house, 7) is Outcome.QUARANTINED
    assert refusal(house, 8) is None
    assert [mark for mark, _ in house.gateway.quarantine.held(house.now)] == [7]
    house.now += HEALTH.quarantine_s
    assert refusal(house, 7) is None


def test_it_is_kept_out_even_when_nobody_is_left() -> None:
    house = hall("ab")
    die_at(house, "p/a:1", 7)
    die_at(house, "p/b:1", 7)
    with pytest.raises(Refusal) as caught:
        enter(house, 7)
    assert caught.value.outcome is Outcome.QUARANTINED


def test_a_broken_connection_alone_is_no_death() -> None:
    house = hall("abc")
    for name in ("p/a:1", "p/b:1", "p/c:1"):
        fail_at(house, name, FailureKind.RESET, 7)
    assert refusal(house, 7) is None
    house.now += LINGER_S + 1
    house.probe("p/a:1", ok=False)
    house.probe("p/b:1", ok=False)
    assert refusal(house, 7) is None


def test_one_death_counts_once() -> None:
    house = hall("abc")
    fail_at(house, "p/a:1", FailureKind.RESET, 7)
    fail_at(house, "p/a:1", FailureKind.TRUNCATED, 7)
    house.probe("p/a:1", ok=False)
    assert refusal(house, 7) is None


def test_one_that_dies_so_fast_that_it_seems_stale_is_a_death_too() -> None:
    house = hall("abc")
    for name in ("p/a:1", "p/b:1"):
        leg = seat_at(house, name, 7)
        house.gateway.fail(leg, Failure(FailureKind.CONNECT, lost=True), house.now)
        house.finish(leg.ticket, Outcome.FAILED_UPSTREAM)
    assert refusal(house, 7) is Outcome.QUARANTINED


def test_another_process_at_the_address_is_a_death_too() -> None:
    house = hall("abc")
    for name in ("p/a:1", "p/b:1"):
        house.gateway.update(Probed(name, ok=True, facts=Facts("vllm", "m", started_at=50.0)), house.now)
        fail_at(house, name, FailureKind.RESET, 7)
        house.gateway.update(Probed(name, ok=True, facts=Facts("vllm", "m", started_at=99.0)), house.now)
        assert house.endpoint(name).incarnation == 1
    assert refusal(house, 7) is Outcome.QUARANTINED


def test_what_is_remembered_is_bounded() -> None:
    quarantine = Quarantine()
    endpoint = Endpoint("p/a:1", "p", "http://a:1")
    for mark in range(1, 2 * WATCHED_MAX):
        for now in (1.0, 2.0):
            quarantine.lost(endpoint, Request("r", Api.CHAT, "m", "p", fingerprint=mark), now)
            quarantine.died(endpoint, now, 600.0)
    assert len(list(quarantine.held(2.0))) == WATCHED_MAX
    for mark in range(1, 2 * WATCHED_MAX):
        quarantine.lost(endpoint, Request("r", Api.CHAT, "m", "p", fingerprint=-mark), 3.0)
    quarantine.died(endpoint, 3.0, 600.0)
    assert list(quarantine.held(3.0)) == []  # as many others were seen since


# -- adapters, closed pools, observations -----------------------------------------------------------


def test_an_adapter_is_served_only_where_it_is_loaded() -> None:
    house = hall("abc")
    house.gateway.update(Probed("p/b:1", ok=True, facts=Facts("vllm", "m", adapters=("x",))), house.now)
    tickets = [enter(house, adapter="x") for _ in range(3)]
    house.release()
    assert {ticket.legs[0].endpoint.name for ticket in tickets} == {"p/b:1"}
    with pytest.raises(Refusal) as caught:
        enter(house, adapter="y")
    assert caught.value.outcome is Outcome.NO_ENDPOINT


def test_a_full_adapter_holds_nobody_else_up() -> None:
    house = hall("ab", cap=1)
    house.gateway.update(Probed("p/a:1", ok=True, facts=Facts("vllm", "m", adapters=("x",))), house.now)
    seat_at(house, "p/a:1")
    waits = enter(house, adapter="x")
    other = enter(house)
    assert house.seated() == [other]
    assert waits.outcome is None


def test_who_waits_for_a_pool_that_leaves_is_told_at_once() -> None:
    house = hall("a", cap=1)
    house.seat()
    waits = enter(house)
    house.release()
    house.gateway.update(Endpoints({}), house.now)
    assert [effect.ticket for effect in house.release() if isinstance(effect, Stop)] == [waits]
    assert waits.outcome is Outcome.NO_ENDPOINT


def test_what_metrics_say_is_kept_with_its_time() -> None:
    house = hall()
    house.now += 3
    house.gateway.update(Observed("p/a:1", Load(4, 2, 0.5)), house.now)
    house.gateway.update(Observed("p/nobody:1", Load(4, 2, 0.5)), house.now)
    assert (house.endpoint("p/a:1").load, house.endpoint("p/a:1").observed_at) == (Load(4, 2, 0.5), house.now)
    assert house.endpoint("p/b:1").load is None


# -- at the edges -----------------------------------------------------------------------------------


def loaded(house: Hall, name: str, *adapters: str) -> None:
    """A probe says that these adapters are loaded there."""
    house.gateway.update(Probed(name, ok=True, facts=Facts("vllm", "m", adapters=adapters)), house.now)


def test_who_returns_alone_has_its_full_share_at_once() -> None:
    house = hall("a", cap=10)
    house.probe("p/a:1", ok=False)
    house.probe("p/a:1")
    for _ in range(10):
        enter(house)
    house.release()
    assert house.running() == {"p/a:1": 10}


def test_two_that_return_together_do_not_starve_everybody() -> None:
    house = hall("ab", cap=10)
    for name in ("p/a:1", "p/b:1"):
        house.probe(name, ok=False)
    for name in ("p/a:1", "p/b:1"):
        house.probe(name)
    assert house.endpoint("p/a:1").share == 1.0


def test_the_wait_told_counts_shares() -> None:
    house = returned(cap=10)
    for _ in range(11):
        enter(house)
    house.release()
    for _ in range(99):
        enter(house)
    pool = house.gateway._pools["p"]
    assert pool.drain_s(house.now) == pytest.approx(100 / 11)  # ten places, one of ten


def test_a_request_that_is_answered_between_two_deaths_did_not_kill_anybody() -> None:
    house = hall("abc")
    die_at(house, "p/a:1", 7)
    house.finish(seat_at(house, "p/b:1", 7).ticket, Outcome.COMPLETED)
    die_at(house, "p/b:1", 7)
    assert refusal(house, 7) is None


def test_being_unable_is_no_death() -> None:
    house = hall("abc")
    for name in ("p/a:1", "p/b:1"):
        fail_at(house, name, FailureKind.RESET, 7)
        house.gateway.update(Probed(name, ok=False, why="serves another model"), house.now)
    assert refusal(house, 7) is None


def test_refusing_a_request_properly_is_being_well() -> None:
    house = hall()
    for _ in range(3 * HEALTH.failures_max):
        fail_at(house, "p/a:1")
        house.finish(seat_at(house, "p/a:1").ticket, Outcome.ENGINE_REFUSED)
    assert house.states()["p/a:1"] is READY


def test_the_last_one_with_an_adapter_is_not_ejected() -> None:
    house = hall("abc")
    loaded(house, "p/a:1", "x")
    loaded(house, "p/b:1", "y")
    loaded(house, "p/c:1", "y")
    for name in ("p/a:1", "p/b:1"):
        for _ in range(2 * HEALTH.failures_max):
            if house.states()[name] is READY:
                fail_at(house, name)
    assert house.states() == {"p/a:1": READY, "p/b:1": EJECTED, "p/c:1": READY}


def test_who_waits_for_an_adapter_waits_on_while_its_endpoint_is_away_and_not_when_it_is_unloaded() -> None:
    house = hall("ab", cap=1)
    loaded(house, "p/a:1", "x")
    seat_at(house, "p/a:1")
    waits = enter(house, adapter="x")
    house.release()
    house.probe("p/a:1", ok=False)
    assert house.release() == []
    house.probe("p/a:1")
    loaded(house, "p/a:1", "y")
    assert [effect.ticket for effect in house.release() if isinstance(effect, Stop)] == [waits]


def test_one_adapters_flood_does_not_close_the_pool() -> None:
    limits = PoolSettings(cap=1, queue_requests_max=3)
    house = Hall(Settings(default=limits, health=HEALTH))
    house.open(p="ab")
    loaded(house, "p/a:1", "x")
    seat_at(house, "p/a:1")
    for _ in range(3):
        enter(house, adapter="x")
    house.release()
    with pytest.raises(Refusal):
        enter(house, adapter="x")
    other = enter(house)
    assert house.seated() == [other]


def test_new_addresses_of_a_pool_that_served_are_worth_a_wait_until_they_fail() -> None:
    house = hall("a")
    house.finish(seat_at(house, "p/a:1").ticket)
    house.address(p="b")
    waits = enter(house)
    assert house.seated() == []
    house.probe("p/b:1", ok=False)
    with pytest.raises(Refusal):
        enter(house)
    house.probe("p/b:1")
    assert house.seated() == [waits]


def test_at_the_first_start_nobody_waits_for_engines() -> None:
    house = Hall(Settings(health=HEALTH))
    house.address(p="a")
    with pytest.raises(Refusal):
        enter(house)


def test_letting_in_does_not_bring_a_removed_endpoint_back() -> None:
    house = hall()
    leg = seat_at(house, "p/a:1")
    house.address(p="b")
    for held in (True, False):
        house.gateway.update(Held("p/a:1", held), house.now)
    assert house.states()["p/a:1"] is DRAINING
    house.finish(leg.ticket)
    assert house.states() == {"p/b:1": READY}


def test_a_hold_outlives_an_address_that_is_gone_for_a_moment() -> None:
    house = hall()
    house.gateway.update(Held("p/a:1", held=True), house.now)
    house.address(p="b")
    house.open(p="ab")
    assert house.states() == {"p/a:1": DRAINING, "p/b:1": READY}
    house.gateway.update(Held("p/a:1", held=False), house.now)
    assert house.states()["p/a:1"] is PROBING


def test_what_a_probe_does_not_tell_is_still_known() -> None:
    house = hall("a")
    told = Facts("vllm", "m", 4096, version="1", kv_tokens=10, prefix_caching=True, started_at=5.0)
    for facts in (told, Facts("vllm", "m", 4096)):
        house.gateway.update(Probed("p/a:1", ok=True, facts=facts), house.now)
        assert house.endpoint("p/a:1").facts == told
    house.gateway.update(Observed("p/a:1", Load(1, 1)), house.now)
    house.gateway.update(Probed("p/a:1", ok=True, facts=Facts("vllm", "m", started_at=99.0)), house.now)
    assert house.endpoint("p/a:1").facts == Facts("vllm", "m", started_at=99.0)
    assert (house.endpoint("p/a:1").load, house.endpoint("p/a:1").incarnation) == (None, 1)


def test_many_lanes_are_served_in_the_order_of_their_first() -> None:
    house = hall("ab", cap=1)
    adapters = [f"x{number}" for number in range(200)]
    for name in ("p/a:1", "p/b:1"):
        loaded(house, name, *adapters)
    first = [enter(house, adapter=adapter) for adapter in adapters[:2]]
    house.release()
    rest = [enter(house, adapter=adapter) for adapter in adapters[2:]]
    house.release()
    assert house.waiting() == len(rest)
    for ticket in first:
        house.finish(ticket)
    assert house.seated() == rest[:2]


def test_what_fails_at_an_endpoint_that_is_gone_is_nobodys_trouble() -> None:
    house = Hall(Settings(health=HealthSettings(failures_max=1)))
    house.open(p="a")
    leg = house.seat()
    house.address()
    house.gateway.leave(leg, None, house.now)
    other = house.gateway.table.by_name
    assert other == {}
    house.open(p="a")
    legs = [house.seat(), house.seat()]
    house.address()
    house.fail(legs[0])
    house.fail(legs[1])
    assert house.gateway.table.by_name == {}


def test_a_broken_request_repeated_everywhere_takes_back_no_more_than_it_gave() -> None:
    house = hall(attempts=2)
    for name in ("p/a:1", "p/b:1"):
        fail_at(house, name, fingerprint=1)
    for _ in range(6):
        ticket = enter(house, 9)
        house.release()
        house.fail(ticket.legs[0], FailureKind.STATUS_5XX)
        house.release()
        house.fail(ticket.legs[0], FailureKind.STATUS_5XX)
        house.finish(ticket, Outcome.FAILED_UPSTREAM)
    assert [endpoint.failures for endpoint in house.gateway.table.by_name.values()] == [1, 1]


def test_who_falls_on_its_slow_start_and_returns_alone_has_its_full_share() -> None:
    house = returned(cap=10)
    for name in ("p/a:1", "p/b:1"):
        house.probe(name, ok=False)
    house.probe("p/a:1")
    house.now += 1
    enter(house)
    house.release()
    assert house.endpoint("p/a:1").share == 1.0
