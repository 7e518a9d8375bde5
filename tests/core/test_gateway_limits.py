"""Bounds and deadlines by example: caps, full queues, who passes a blocked head, who waited too long."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from maitred.core.limits import Limits
from maitred.core.outcome import FailureKind, Outcome
from maitred.core.predict import RETRY_FLOOR
from maitred.core.words import (
    HealthSettings,
    Phase,
    PoolSettings,
    Settings,
    Stop,
    TenantSettings,
    Ticket,
)
from tests.core.hall import Hall, limited, refused

# -- bounds -----------------------------------------------------------------------------------------


def test_a_cap_is_kept_at_every_endpoint() -> None:
    hall = Hall(limited(cap=2))
    hall.open(p="ab")
    tickets = [hall.accept() for _ in range(6)]
    assert hall.seated() == tickets[:4]
    assert hall.running() == {"p/a:1": 2, "p/b:1": 2}
    hall.finish(tickets[0])
    assert hall.seated() == [tickets[4]]


def test_requests_in_the_queue_are_bounded() -> None:
    hall = Hall(limited(cap=1, queue_requests_max=2))
    hall.open(p="a")
    leg = hall.seat()
    waiting = [hall.accept(), hall.accept()]
    assert refused(hall).outcome is Outcome.QUEUE_FULL
    hall.finish(waiting[1], Outcome.CLIENT_GONE)
    waiting[1] = hall.accept()
    hall.finish(leg.ticket)
    assert hall.seated() == [waiting[0]]
    hall.accept()
    assert refused(hall).outcome is Outcome.QUEUE_FULL


def stop_all(hall: Hall, tickets: list[Ticket]) -> None:
    hall.now = tickets[-1].queue_deadline
    assert [type(effect) for effect in hall.release()] == [Stop] * len(tickets)


def leave_all(hall: Hall, tickets: list[Ticket]) -> None:
    for ticket in tickets:
        hall.finish(ticket, Outcome.CLIENT_GONE)


def serve_all(hall: Hall, tickets: list[Ticket]) -> None:
    for ticket in tickets:
        hall.finish(next(t for t in hall.tickets if t.phase is Phase.DISPATCHED))
        assert hall.seated() == [ticket]


def repeat_all(hall: Hall, tickets: list[Ticket]) -> None:
    """Serve them, but have each come back once before it leaves."""
    hall.open(p="ab")
    hall.release()
    for ticket in tickets:
        if ticket.phase is Phase.QUEUED:
            hall.finish(next(t for t in hall.tickets if t.phase is Phase.DISPATCHED))
            hall.release()
        assert hall.fail(ticket.legs[0], FailureKind.STATUS_429)
        hall.finish(ticket, Outcome.CLIENT_GONE)
        hall.release()
    hall.address(p="a")


@pytest.mark.parametrize("way", [stop_all, leave_all, serve_all, repeat_all])
def test_bytes_in_the_queue_are_bounded_and_given_back(way: Callable[[Hall, list[Ticket]], None]) -> None:
    hall = Hall(limited(cap=1, queue_bytes_max=100))
    hall.open(p="a")
    hall.seat()
    for _ in range(3):  # each round can fill it to the last byte, so nothing was left behind
        waiting = [hall.accept(body_bytes=size) for size in (50, 49, 1)]
        assert hall.release() == []
        assert refused(hall, body_bytes=1).outcome is Outcome.QUEUE_FULL
        way(hall, waiting)
        assert hall.waiting() == 0
        if not any(hall.running().values()):
            hall.seat()


def test_a_body_larger_than_the_queue_is_fine_where_nobody_waits() -> None:
    hall = Hall(limited(cap=1, queue_bytes_max=100, queue_requests_max=0))
    hall.open(p="a")
    ticket = hall.accept(body_bytes=101)
    assert refused(hall).outcome is Outcome.QUEUE_FULL  # the place is spoken for
    assert hall.seated() == [ticket]
    assert refused(hall, body_bytes=101).outcome is Outcome.QUEUE_FULL


def test_the_wait_told_is_what_those_before_will_take() -> None:
    hall = Hall(limited(cap=2, queue_requests_max=9))
    hall.open(p="ab")
    warm, stuck = hall.seat(), hall.seat()
    hall.now += 8
    hall.finish(warm.ticket)  # one answer takes 8 s, four are served at once
    hall.now += 500
    hall.finish(stuck.ticket, Outcome.FAILED_UPSTREAM)  # and what is no answer teaches nothing
    for _ in range(4):
        hall.seat()
    for _ in range(9):
        hall.accept()
    waits = {refused(hall).retry_after_s or 0.0 for _ in range(9)}
    assert all(20.0 <= wait <= 25.0 for wait in waits)
    assert len(waits) == 9  # those refused together do not return together


def test_a_wait_is_at_least_a_second() -> None:
    hall = Hall(limited(cap=1, queue_requests_max=0))
    hall.open(p="a")
    hall.finish(hall.seat().ticket)
    hall.seat()
    assert 1.0 <= (refused(hall).retry_after_s or 0.0) <= 1.25


def test_tenants_that_the_settings_name_are_no_guests() -> None:
    bounds = Limits(concurrent=1)
    tenants = {"t": TenantSettings(limits=bounds), "free": TenantSettings()}
    hall = Hall(
        Settings(tenants=tenants, tenant=TenantSettings(limits=bounds), default=PoolSettings(limits=bounds))
    )
    for pool, tenant in (("p", "t"), ("q", "free"), ("r", "somebody")):
        hall.open(p="a", q="b", r="c")
        hall.accept(pool, tenant=tenant)
    assert hall.gateway.limiter._holders.keys() == {
        "tenant t",
        "model p",
        "model q",
        "guest somebody",
        "model r",
    }


# -- who passes a blocked head ----------------------------------------------------------------------


def behind_retries(count: int) -> tuple[Hall, list[Ticket]]:
    """Endpoint b is full and `count` tickets that failed at a wait for it; a has room again."""
    hall = Hall(Settings(default=PoolSettings(cap=16), health=HealthSettings(failures_max=99)))
    hall.open(p="ab")
    legs = [hall.seat() for _ in range(32)]
    at_a = [leg for leg in legs if leg.endpoint.name == "p/a:1"]
    for leg in at_a[:count]:
        assert hall.fail(leg)
    for leg in at_a[-4:]:
        hall.finish(leg.ticket)
    assert hall.release() == []
    assert hall.running() == {"p/a:1": 12 - count, "p/b:1": 16}
    return hall, [leg.ticket for leg in legs if leg.endpoint.name == "p/b:1"]


@pytest.mark.parametrize("ahead", [1, 8, 12])
def test_retries_that_fit_nowhere_hold_nobody_up(ahead: int) -> None:
    hall, _ = behind_retries(ahead)
    newcomer = hall.accept()
    assert hall.seated() == [newcomer]


def test_a_retry_whose_last_hope_goes_is_told_at_once() -> None:
    hall, _ = behind_retries(3)
    hall.probe("p/b:1", ok=False)
    stops = hall.release()
    assert [type(stop) for stop in stops] == [Stop] * 3
    assert {stop.outcome for stop in stops if isinstance(stop, Stop)} == {Outcome.NO_ENDPOINT}
    assert hall.gateway.waiting_by_pool() == {"p": 0}


def test_what_frees_is_offered_to_the_head_first() -> None:
    hall, at_b = behind_retries(1)
    hall.now += 25
    newcomer = hall.accept()
    assert hall.seated() == [newcomer]
    hall.finish(at_b[0])
    late = hall.accept()
    retry, *others = hall.seated()
    assert (retry.attempts, retry.legs[0].endpoint.name) == (2, "p/b:1")
    assert others == [late]


def test_waiting_in_one_pool_never_blocks_another() -> None:
    hall = Hall(Settings(pools={"p": PoolSettings(cap=1, queue_requests_max=1)}))
    hall.open(p="a", q="b")
    hall.seat("p")
    hall.accept("p")
    assert hall.seat("q").endpoint.name == "q/b:1"
    assert refused(hall).outcome is Outcome.QUEUE_FULL
    assert hall.gateway.waiting_by_pool() == {"p": 1, "q": 0}


# -- deadlines --------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", [Outcome.QUEUE_DEADLINE, Outcome.NO_ENDPOINT])
def test_who_waited_too_long_is_stopped_at_exactly_that_instant(outcome: Outcome) -> None:
    hall = Hall(limited(cap=1, queue_wait_s=30.0))
    hall.open(p="a")
    hall.seat()
    assert hall.gateway.next_wakeup() is None
    first = hall.accept()
    hall.release()
    hall.now = 105.5
    second = hall.accept()
    hall.release()
    if outcome is Outcome.NO_ENDPOINT:
        hall.probe("p/a:1", ok=False)
    assert hall.gateway.next_wakeup() == 130.0
    hall.now = 129.999
    assert hall.release() == []
    for ticket, at, following in ((first, 130.0, 135.5), (second, 135.5, None)):
        hall.now = at
        [stop] = hall.release()
        assert isinstance(stop, Stop)
        assert (stop.ticket, stop.outcome) == (ticket, outcome)
        assert 1.0 <= (stop.retry_after_s or 0.0) <= 60.0
        assert hall.ended(ticket) == [outcome]
        assert hall.finish(ticket, Outcome.CLIENT_GONE) is outcome
        assert hall.gateway.next_wakeup() == following


def test_the_next_wakeup_is_the_first_deadline_of_any_pool() -> None:
    hall = Hall(Settings(pools={"q": PoolSettings(cap=1, queue_wait_s=2.0)}, default=PoolSettings(cap=1)))
    hall.open(p="a", q="b")
    hall.seat("p")
    hall.seat("q")
    hall.accept("p")
    leaving = hall.accept("q")
    hall.release()
    assert hall.gateway.next_wakeup() == 102.0
    hall.finish(leaving, Outcome.CLIENT_GONE)
    assert hall.gateway.next_wakeup() == 130.0


def test_a_retry_is_too_late_for_its_goal_and_waits_as_long_as_others() -> None:
    hall = Hall(limited(cap=1, ttft_s=2.0, queue_wait_s=30.0))
    hall.open(p="ab")
    first, _ = hall.seat(deadline_s=20.0), hall.seat()
    hall.now += 10
    assert hall.fail(first)
    assert hall.release() == []
    assert hall.gateway.next_wakeup() == 120.0
    hall.now = 120.0
    assert [type(effect) for effect in hall.release()] == [Stop]


def test_who_is_not_let_in_buys_no_repeats() -> None:
    hall = Hall(limited(cap=1, queue_requests_max=1))
    hall.open(p="a")
    hall.seat()
    hall.accept()
    for _ in range(100):
        assert refused(hall).outcome is Outcome.QUEUE_FULL
    budget = hall.gateway._pools["p"].budget
    assert sum(budget.take(hall.now) for _ in range(99)) == RETRY_FLOOR + 1


def test_a_retry_whose_deadline_has_passed_does_not_wait() -> None:
    hall = Hall(limited(cap=1, queue_wait_s=30.0))
    hall.open(p="ab")
    first, _ = hall.seat(), hall.seat()
    hall.now += 31
    assert not hall.fail(first)
    assert hall.waiting() == 0
    assert hall.gateway.next_wakeup() is None
