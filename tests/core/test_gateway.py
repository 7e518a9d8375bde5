"""The verbs by example: every verb in every phase, retries, bounds, deadlines, and the world changing."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from maitred.core.events import Answered, Ended, EndpointMoved, LegFailed, Seated
from maitred.core.outcome import FailureKind, Outcome, Refusal
from maitred.core.words import (
    Drop,
    EndpointState,
    Failure,
    Go,
    Leg,
    LegPhase,
    Phase,
    PoolSettings,
    Probed,
    Settings,
    Stop,
    Ticket,
    Usage,
)
from tests.core.hall import Hall

PROBING, READY, EJECTED, DRAINING, GONE = EndpointState
USAGE = Usage(10, 4, 7)


def limited(**limits: int | float) -> Settings:
    return Settings(default=PoolSettings(**limits))  # type: ignore[arg-type]


def refused(hall: Hall, body_bytes: int = 0) -> Refusal:
    with pytest.raises(Refusal) as caught:
        hall.accept(body_bytes=body_bytes)
    return caught.value


# -- every verb in every phase ----------------------------------------------------------------------

Scene = tuple[Hall, Ticket, Leg | None]


def queued() -> Scene:
    hall = Hall()
    hall.open(p="ab")
    return hall, hall.accept(), None


def seated() -> Scene:
    hall = Hall()
    hall.open(p="ab")
    leg = hall.seat()
    return hall, leg.ticket, leg


def sent() -> Scene:
    hall, ticket, leg = seated()
    assert leg is not None
    hall.gateway.sent(leg, hall.now)
    return hall, ticket, leg


def answered() -> Scene:
    hall, ticket, leg = sent()
    assert leg is not None
    hall.gateway.answered(leg, hall.now)
    return hall, ticket, leg


def left() -> Scene:
    hall, ticket, leg = answered()
    assert leg is not None
    hall.gateway.leave(leg, None, hall.now)
    return hall, ticket, leg


def failed() -> Scene:
    hall, ticket, leg = answered()
    assert leg is not None
    assert not hall.fail(leg)
    return hall, ticket, leg


def queued_again() -> Scene:
    hall, ticket, leg = seated()
    assert leg is not None
    assert hall.fail(leg)
    return hall, ticket, leg


def ended() -> Scene:
    hall, ticket, leg = seated()
    hall.finish(ticket)
    return hall, ticket, leg


VERBS: dict[str, Callable[[Hall, Ticket, Leg], object]] = {
    "sent": lambda hall, _, leg: hall.gateway.sent(leg, hall.now),
    "answered": lambda hall, _, leg: hall.gateway.answered(leg, hall.now),
    "progress": lambda hall, _, leg: hall.gateway.progress(leg, 16, hall.now),
    "leave": lambda hall, _, leg: hall.gateway.leave(leg, USAGE, hall.now),
    "fail": lambda hall, _, leg: hall.fail(leg),
    "finish": lambda hall, ticket, _: hall.finish(ticket, Outcome.CLIENT_GONE),
}
GONE_BY = Outcome.CLIENT_GONE
After = tuple[object, Phase, LegPhase, int, list[type]]


def held(phase: LegPhase) -> After:
    return None, Phase.DISPATCHED, phase, 1, []


def nothing(phase: Phase) -> dict[str, After]:
    """What verbs do to a leg that is over."""
    same: After = (None, phase, LegPhase.OVER, 0, [])
    return dict.fromkeys(("sent", "answered", "progress", "leave"), same) | {"fail": (False, *same[1:])}


LEFT: After = (None, Phase.DISPATCHED, LegPhase.OVER, 0, [])
AGAIN: After = (True, Phase.QUEUED, LegPhase.OVER, 0, [LegFailed])
FINISHED: After = (GONE_BY, Phase.ENDED, LegPhase.OVER, 0, [Ended])
BEGINS: After = (None, Phase.DISPATCHED, LegPhase.ANSWERED, 1, [Answered])

TABLE: dict[Callable[[], Scene], dict[str, After]] = {
    seated: {
        "sent": held(LegPhase.SENT),
        "answered": BEGINS,
        "progress": held(LegPhase.SEATED),
        "leave": LEFT,
        "fail": AGAIN,
        "finish": FINISHED,
    },
    sent: {
        "sent": held(LegPhase.SENT),
        "answered": BEGINS,
        "progress": held(LegPhase.SENT),
        "leave": LEFT,
        "fail": AGAIN,
        "finish": FINISHED,
    },
    answered: {
        "sent": held(LegPhase.ANSWERED),
        "answered": held(LegPhase.ANSWERED),
        "progress": held(LegPhase.ANSWERED),
        "leave": LEFT,
        "fail": (False, Phase.DISPATCHED, LegPhase.OVER, 0, [LegFailed]),
        "finish": FINISHED,
    },
    left: nothing(Phase.DISPATCHED) | {"finish": FINISHED},
    failed: nothing(Phase.DISPATCHED) | {"finish": FINISHED},
    queued_again: nothing(Phase.QUEUED) | {"finish": FINISHED},
    ended: nothing(Phase.ENDED) | {"finish": (Outcome.COMPLETED, Phase.ENDED, LegPhase.OVER, 0, [])},
}
SCENES = [queued, *TABLE]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("scene", TABLE, ids=lambda scene: scene.__name__)
def test_every_verb_in_every_phase(scene: Callable[[], Scene], verb: str) -> None:
    hall, ticket, leg = scene()
    assert leg is not None
    before = len(hall.events)
    result = VERBS[verb](hall, ticket, leg)
    events = [type(event) for event in hall.events[before:]]
    assert (result, ticket.phase, leg.phase, sum(hall.running().values()), events) == TABLE[scene][verb]
    assert hall.waiting() == (ticket.phase is Phase.QUEUED)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_the_first_to_finish_decides_and_all_is_given_back(scene: Callable[[], Scene]) -> None:
    hall, ticket, _ = scene()
    first = hall.finish(ticket, Outcome.FAILED_TRUNCATED)
    at, hall.now = hall.now, hall.now + 1
    for outcome in Outcome:
        assert hall.finish(ticket, outcome) is first
    assert first is (Outcome.COMPLETED if scene is ended else Outcome.FAILED_TRUNCATED)
    assert (ticket.outcome, ticket.phase, ticket.ended_at) == (first, Phase.ENDED, at)
    assert hall.ended(ticket) == [first]
    assert hall.running() == {"p/a:1": 0, "p/b:1": 0}
    assert hall.waiting() == 0
    assert hall.release() == []
    assert hall.gateway.next_wakeup() is None


def test_a_leg_remembers_when_and_how_much() -> None:
    hall, ticket, _ = queued()
    hall.now = 101.0
    effects = hall.release()
    [leg] = ticket.legs
    assert effects == [Go(ticket, [leg])]
    assert (leg.ticket, leg.attempt, ticket.attempts, leg.seated_at) == (ticket, 1, 1, 101.0)
    hall.gateway.sent(leg, 102.0)
    hall.gateway.answered(leg, 103.0)
    hall.gateway.progress(leg, 16, 104.0)
    assert (leg.sent_at, leg.answered_at, leg.output_tokens) == (102.0, 103.0, 16)
    hall.gateway.leave(leg, USAGE, 105.0)
    assert leg.output_tokens == 7
    hall.gateway.finish(ticket, Outcome.COMPLETED, USAGE, 106.0)
    told = [event for event in hall.events if not isinstance(event, EndpointMoved)]
    assert told == [
        Seated(101.0, ticket, 1.0),
        Answered(103.0, leg),
        Ended(106.0, ticket, Outcome.COMPLETED, USAGE),
    ]


def test_nobody_can_tell_when_a_plain_answer_began() -> None:
    hall = Hall()
    hall.open(p="a")
    ticket = hall.accept(stream=False)
    hall.release()
    hall.gateway.answered(ticket.legs[0], hall.now)
    assert ticket.legs[0].phase is LegPhase.ANSWERED
    assert not [event for event in hall.events if isinstance(event, Answered)]


# -- rivals: more than one leg ----------------------------------------------------------------------


def with_rival() -> tuple[Hall, Leg, Leg]:
    """A ticket with two legs, as a hedge would have them."""
    hall = Hall()
    hall.open(p="abc")
    leg = hall.seat()
    other = hall.endpoint("p/b:1")
    rival = Leg(99, leg.ticket, other, 0, 1, hall.now)
    other.running += 1
    leg.ticket.legs.append(rival)
    return hall, leg, rival


def test_the_leg_that_answers_first_has_its_rivals_dropped() -> None:
    hall, leg, rival = with_rival()
    hall.gateway.answered(leg, hall.now)
    assert hall.release() == [Drop(rival)]
    assert rival.phase is LegPhase.OVER
    assert hall.running() == {"p/a:1": 1, "p/b:1": 0, "p/c:1": 0}
    assert hall.release() == []


def test_a_retry_drops_the_partners_of_the_leg_that_failed() -> None:
    hall, leg, rival = with_rival()
    assert hall.fail(leg)
    ticket = leg.ticket
    effects = hall.release()
    assert effects == [Drop(rival), Go(ticket, ticket.legs)]
    assert hall.running() == {"p/a:1": 0, "p/b:1": 1, "p/c:1": 0}


def test_a_finished_ticket_gives_back_the_places_of_all_its_legs() -> None:
    hall, leg, rival = with_rival()
    hall.finish(leg.ticket)
    assert leg.phase is rival.phase is LegPhase.OVER
    assert set(hall.running().values()) == {0}


# -- retries ----------------------------------------------------------------------------------------


def test_a_retry_waits_at_the_head_with_its_first_deadline() -> None:
    hall = Hall(limited(cap=1, queue_wait_s=30.0))
    hall.open(p="ab")
    first, second = hall.seat(), hall.seat()
    hall.now += 10
    later, last = hall.accept(), hall.accept()
    assert hall.release() == []
    hall.now += 10
    assert hall.fail(first)
    again = first.ticket
    assert (again.queue_deadline, hall.gateway.next_wakeup()) == (130.0, 130.0)
    assert hall.seated() == [later]  # on the place of the leg that failed, which the retry may not have
    hall.finish(second.ticket)
    assert hall.seated() == [again]
    assert (again.legs[0].endpoint.name, again.legs[0].attempt) == ("p/b:1", 2)
    hall.finish(later)
    assert hall.seated() == [last]


def test_an_endpoint_that_failed_a_ticket_never_gets_it_again() -> None:
    hall = Hall(Settings(attempts_max=9))
    hall.open(p="abc")
    ticket = hall.accept()
    seats = []
    for again in (True, True, False):
        assert hall.seated() == [ticket]
        seats.append(ticket.legs[0].endpoint.name)
        assert hall.fail(ticket.legs[0], FailureKind.STATUS_429) is again
    assert seats == ["p/a:1", "p/b:1", "p/c:1"]
    assert set(hall.states().values()) == {READY}
    assert hall.release() == []


@pytest.mark.parametrize("attempts_max", [1, 2, 3])
def test_attempts_are_bounded(attempts_max: int) -> None:
    hall = Hall(Settings(attempts_max=attempts_max))
    hall.open(p="abcd")
    ticket = hall.accept()
    for attempt in range(1, attempts_max + 1):
        assert hall.seated() == [ticket]
        assert ticket.attempts == attempt
        assert hall.fail(ticket.legs[0]) is (attempt < attempts_max)


@pytest.mark.parametrize("kind", FailureKind, ids=lambda kind: kind.label)
def test_only_what_can_be_repeated_is(kind: FailureKind) -> None:
    hall = Hall()
    hall.open(p="ab")
    leg = hall.seat()
    assert hall.fail(leg, kind) is kind.repeatable
    assert hall.events[-1] == LegFailed(hall.now, leg, Failure(kind), kind.repeatable)


def test_a_shell_without_the_ability_is_never_told_to_repeat() -> None:
    hall = Hall(retry=False)
    hall.open(p="ab")
    assert not hall.fail(hall.seat())


def test_nothing_is_repeated_where_nobody_is_left_to_hope_for() -> None:
    hall = Hall()
    hall.open(p="ab")
    leg = hall.seat()
    hall.probe("p/b:1", ok=False)
    assert not hall.fail(leg)


@pytest.mark.parametrize("kind", FailureKind, ids=lambda kind: kind.label)
def test_who_cannot_be_reached_gets_no_more_work(kind: FailureKind) -> None:
    hall = Hall()
    hall.open(p="ab")
    hall.fail(hall.seat(), kind)
    unreachable = kind in (FailureKind.CONNECT, FailureKind.TLS)
    assert hall.states() == {"p/a:1": EJECTED if unreachable else READY, "p/b:1": READY}


def test_a_return_from_ejection_is_a_new_incarnation() -> None:
    hall = Hall()
    hall.open(p="a")
    leg = hall.seat()
    hall.probe("p/a:1", ok=False)
    assert refused(hall).outcome is Outcome.NO_ENDPOINT
    hall.probe("p/a:1")
    assert (leg.incarnation, hall.seat().incarnation) == (0, 1)
    assert hall.running() == {"p/a:1": 2}
    moves = [(e.before, e.after) for e in hall.events if isinstance(e, EndpointMoved)]
    assert moves == [(PROBING, PROBING), (PROBING, READY), (READY, EJECTED), (EJECTED, READY)]


def test_a_late_word_of_the_old_incarnation_does_not_eject_the_new() -> None:
    hall = Hall()
    hall.open(p="a")
    leg = hall.seat()
    hall.probe("p/a:1", ok=False)
    hall.probe("p/a:1")
    hall.fail(leg, FailureKind.CONNECT)
    assert hall.states() == {"p/a:1": READY}


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


# -- who passes a blocked head ----------------------------------------------------------------------


def behind_retries(count: int) -> tuple[Hall, list[Ticket]]:
    """Endpoint b is full and `count` tickets that failed at a wait for it; a has room again."""
    hall = Hall(Settings(default=PoolSettings(cap=16)))
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


@pytest.mark.parametrize(("ahead", "passes"), [(1, True), (8, True), (9, False)])
def test_release_looks_past_a_blocked_head_but_not_far(ahead: int, passes: bool) -> None:
    hall, _ = behind_retries(ahead)
    newcomer = hall.accept()
    assert hall.seated() == [newcomer] * passes


def test_release_looks_past_a_blocked_head_but_not_for_long() -> None:
    hall, at_b = behind_retries(1)
    blocked_at = hall.now
    hall.now = blocked_at + 2.0
    early = hall.accept()
    assert hall.seated() == [early]
    hall.now = blocked_at + 2.001
    late = hall.accept()
    assert hall.seated() == []
    hall.finish(at_b[0])
    retry, *others = hall.seated()
    assert (retry.attempts, retry.legs[0].endpoint.name) == (2, "p/b:1")
    assert others == [late]


def test_no_room_is_held_for_a_head_that_no_ready_endpoint_may_have() -> None:
    hall, _ = behind_retries(1)
    hall.probe("p/b:1", ok=False)
    hall.now += 5
    newcomer = hall.accept()
    assert hall.seated() == [newcomer]


def test_the_patience_of_a_head_that_was_seated_begins_anew() -> None:
    hall = Hall(Settings(default=PoolSettings(cap=2), attempts_max=3))
    hall.open(p="abc")
    legs = [hall.seat() for _ in range(6)]
    head = legs[0].ticket
    assert hall.fail(legs[0])
    assert hall.release() == []
    hall.now += 1
    hall.finish(legs[1].ticket)
    assert hall.seated() == [head]
    hall.now += 10
    assert hall.fail(head.legs[0])
    newcomer = hall.accept()
    assert hall.seated() == [newcomer]


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


def test_a_retry_whose_deadline_has_passed_does_not_wait() -> None:
    hall = Hall(limited(cap=1, queue_wait_s=30.0))
    hall.open(p="ab")
    first, _ = hall.seat(), hall.seat()
    hall.now += 31
    assert hall.fail(first)
    effects = hall.release()
    due = hall.gateway.next_wakeup()
    if due is not None and due <= hall.now:  # the shell's timer rings at once
        effects += hall.release()
    assert [type(effect) for effect in effects] == [Stop]
    assert hall.gateway.next_wakeup() is None


# -- the world changes ------------------------------------------------------------------------------


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
    leg = hall.seat()
    hall.address()
    hall.address(p="a")
    assert hall.states() == {"p/a:1": PROBING}
    assert refused(hall).outcome is Outcome.NO_ENDPOINT
    hall.probe("p/a:1")
    assert hall.seat().endpoint is leg.endpoint
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


def test_settings_of_a_pool_bind_that_pool_alone() -> None:
    hall = Hall(Settings(pools={"p": PoolSettings(cap=1)}, default=PoolSettings(cap=2)))
    hall.open(p="a", q="b")
    tickets = {pool: [hall.accept(pool) for _ in range(3)] for pool in "pq"}
    assert hall.seated() == tickets["p"][:1] + tickets["q"][:2]


def test_what_is_over_is_forgotten() -> None:
    hall = Hall(limited(cap=1))
    hall.open(p="a")
    gc.collect()
    before = tickets_alive()
    gc.disable()  # tickets and legs must fall by themselves, no collector needed
    for _ in range(1000):
        served, leaves = hall.accept(), hall.accept()
        hall.release()
        assert served.phase is Phase.DISPATCHED
        hall.finish(leaves, Outcome.CLIENT_GONE)
        hall.finish(served)
        hall.release()
        hall.events.clear()
        hall.tickets.clear()
    gc.enable()
    assert tickets_alive() - before < 100


def tickets_alive() -> int:
    return sum(isinstance(thing, Ticket) for thing in gc.get_objects())
