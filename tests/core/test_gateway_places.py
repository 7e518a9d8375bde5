"""Endpoints that are not alike: how fast they are thought to be, where they are, who may show otherwise."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from maitred.core.explore import EVERY, IDLE_S
from maitred.core.journal import replay
from maitred.core.words import SPEED_GUESS, Leg, Place, Settings, Usage
from tests.core.hall import Hall, limited

A, B, C = "p/a:1", "p/b:1", "p/c:1"
TOKENS = 1000


def stream(hall: Hall, first_s: float, token_s: float = 0.01, **more: Any) -> Leg:
    """One comes, is served at this pace, and has gone."""
    leg = hall.seat(prompt_tokens=TOKENS, prompt_exact=True, **more)
    hall.gateway.sent(leg, hall.now)
    hall.now += first_s
    hall.gateway.answered(leg, hall.now)
    hall.now += 100 * token_s
    hall.finish(leg.ticket, usage=Usage(TOKENS, 0, 101))
    return leg


# -- how fast ---------------------------------------------------------------------------------------


def test_the_first_requests_go_by_what_was_said_of_speeds() -> None:
    hall = Hall(limited(cap=99, speed=12_000.0, places={B: Place(speed=3000.0)}))
    hall.open(p="ab")
    assert [hall.endpoint(name).speed for name in (A, B)] == [12_000, 3000]
    seats = Counter(hall.seat(prompt_tokens=TOKENS).endpoint.name for _ in range(50))
    assert 3 <= seats[A] / seats[B] <= 5


def test_what_was_said_holds_until_an_engine_has_shown_its_speed_and_for_the_next_one_there() -> None:
    hall = Hall()
    hall.open(p="ab")
    assert hall.endpoint(A).speed == SPEED_GUESS
    hall.set(limited(speed=9000.0))
    assert [hall.endpoint(name).speed for name in (A, B)] == [9000, 9000]
    shown = stream(hall, 1.0).endpoint
    speed = shown.speed
    assert speed < 5000
    hall.set(limited(speed=12_000.0))
    assert shown.speed == speed
    hall.probe(shown.name, ok=False)
    hall.probe(shown.name)
    assert shown.speed == 12_000
    assert replay(hall.lines) == len(hall.lines) - 1


# -- where ------------------------------------------------------------------------------------------


def zoned(routing: str) -> Settings:
    """We are in x, so is b; c is in y, and a nowhere."""
    return limited(cap=1, routing=routing, zone="x", places={B: Place("x"), C: Place("y")})


@pytest.mark.parametrize("routing", ["default", "least-requests", "round-robin", "random-two"])
def test_endpoints_elsewhere_are_for_when_those_nearby_are_full(routing: str) -> None:
    hall = Hall(zoned(routing))
    hall.open(p="cab")
    for _ in range(9):
        hall.finish(hall.seat().ticket)
    assert hall.endpoint(C).seated == 0
    legs = [hall.seat() for _ in range(3)]
    assert legs[2].endpoint.name == C
    assert replay(hall.lines) == len(hall.lines) - 1
    hall.set(limited(cap=1, routing=routing))
    assert hall.endpoint(C).zone == ""


def test_a_receipt_says_who_was_left_out_for_its_zone() -> None:
    hall = Hall(zoned("default"))
    hall.open(p="cab")

    def why_not() -> dict[str, str]:
        told = hall.seat(receipt=True).receipt
        assert told is not None
        return {row.endpoint: row.why_not for row in told.candidates}

    assert why_not() == {A: "", B: "", C: "zone"}
    assert sorted(why_not().values()) == ["", "full", "zone"]
    assert why_not() == {A: "full", B: "full", C: ""}


# -- who may show otherwise -------------------------------------------------------------------------


def slowed(hall: Hall) -> None:
    """Of two endpoints one takes ten times as long, and so nobody goes there any more."""
    while hall.endpoint(B).slowness == 1:
        legs = [hall.seat(prompt_tokens=TOKENS, prompt_exact=True) for _ in "ab"]
        for leg in legs:
            hall.gateway.sent(leg, hall.now)
        for leg in sorted(legs, key=lambda leg: leg.endpoint.name):
            slow = leg.endpoint.name == B
            hall.now += 2.0 if slow else 0.2
            hall.gateway.answered(leg, hall.now)
            hall.now += 10.0 if slow else 1.0
            hall.finish(leg.ticket, usage=Usage(TOKENS, 0, 101))
    assert [stream(hall, 0.2).endpoint.name for _ in range(40)] == [A] * 40


@pytest.mark.parametrize("routing", ["default", "least-requests"])
def test_one_that_was_slow_is_tried_now_and_then_until_it_has_shown_that_it_is_not(routing: str) -> None:
    hall = Hall(limited(routing=routing))
    hall.open(p="ab")
    slowed(hall)
    seats = Counter[str]()
    while hall.endpoint(B).slowness > 1:
        seats[stream(hall, 0.2).endpoint.name] += 1
        assert seats[B] <= 1 + seats.total() // EVERY <= 9
    assert seats[B] > 1
    assert replay(hall.lines) == len(hall.lines) - 1


def test_a_receipt_says_that_one_was_tried() -> None:
    hall = Hall(limited(routing="least-requests"))
    hall.open(p="ab")
    slowed(hall)
    told = [stream(hall, 0.2, receipt=True).receipt for _ in range(EVERY)]
    assert [(it.policy, it.endpoint) for it in told if it and it.endpoint == B] == [("exploration", B)]


@pytest.mark.parametrize("spared", [{"stream": False}, {"blocks": tuple(range(60)), "block_tokens": 16}])
def test_only_a_stream_without_a_home_is_spared_for_that(spared: dict[str, Any]) -> None:
    hall = Hall(limited(routing="default"))
    hall.open(p="ab")
    slowed(hall)
    stream(hall, 0.2, **spared)
    seats = Counter(stream(hall, 0.2, **spared).endpoint.name for _ in range(2 * EVERY))
    assert seats == {A: 2 * EVERY}


def test_nobody_is_tried_who_was_busy_a_moment_ago_or_is_as_fast_as_others() -> None:
    hall = Hall(limited(routing="least-requests"))
    hall.open(p="ab")
    slowed(hall)
    hall.now = hall.endpoint(B).busy_at + IDLE_S / 2
    for _ in range(2 * EVERY):
        assert hall.seat().endpoint.name == A
        hall.finish(hall.tickets[-1])
    hall.now += IDLE_S
    hall.endpoint(B).slowness, hall.endpoint(B).speed = 1.0, hall.endpoint(A).speed
    for _ in range(2 * EVERY):
        assert hall.seat(receipt=True).receipt.policy == "least-requests"  # type: ignore[union-attr]
        hall.finish(hall.tickets[-1])
