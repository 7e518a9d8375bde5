"""The verbs by example: every verb in every phase, rivals, retries."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from maitred.core.events import Answered, Ended, EndpointMoved, LegFailed
from maitred.core.outcome import FailureKind, Outcome
from maitred.core.words import (
    Drop,
    EndpointState,
    Failure,
    Go,
    Leg,
    LegPhase,
    Phase,
    Settings,
    Ticket,
    Usage,
)
from tests.core.hall import Hall, limited, refused

PROBING, READY, EJECTED, DRAINING, GONE = EndpointState
USAGE = Usage(10, 4, 7)


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
    hall.now += 1
    for outcome in Outcome:
        assert hall.finish(ticket, outcome) is first
    assert first is (Outcome.COMPLETED if scene is ended else Outcome.FAILED_TRUNCATED)
    assert (ticket.outcome, ticket.phase) == (first, Phase.ENDED)
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
        Answered(103.0, leg),
        Ended(106.0, ticket, Outcome.COMPLETED, USAGE, leg),
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
    leg.ticket.legs = [leg, rival]
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


def test_a_finished_ticket_gives_back_the_placesof_all_its_legs() -> None:
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
    assert hall.seated() == [later]  # on the place of the leg that failed, which the retry may not have
    assert (again.queue_deadline, hall.gateway.next_wakeup()) == (130.0, 130.0)
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


def test_what_is_over_is_forgotten() -> None:
    hall = Hall(limited(cap=1))
    hall.open(p="a")
    gc.collect()
    before = tickets_alive()
    gc.disable()  # tickets and legs must fall by themselves, no collector needed
    try:
        for _ in range(1000):
            served, leaves = hall.accept(), hall.accept()
            hall.release()
            assert served.phase is Phase.DISPATCHED
            hall.finish(leaves, Outcome.CLIENT_GONE)
            hall.finish(served)
            hall.release()
            hall.events.clear()
            hall.tickets.clear()
        assert tickets_alive() - before < 100
    finally:
        gc.enable()


def tickets_alive() -> int:
    return sum(isinstance(thing, Ticket) for thing in gc.get_objects())
