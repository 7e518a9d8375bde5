"""The world as it is told: metrics, rests, and what the operator holds."""

from __future__ import annotations

from maitred.core.endpoints import Sign
from maitred.core.events import Event
from maitred.core.outcome import FailureKind
from maitred.core.saturation import CAP_START
from maitred.core.words import (
    SPEED_GUESS,
    Api,
    Endpoint,
    EndpointState,
    Facts,
    Failure,
    HealthSettings,
    Identity,
    Leg,
    Load,
    PoolSettings,
    Probed,
    Request,
    Settings,
    Ticket,
)
from maitred.core.world import REST_MAX_S, World

NOW = 1000.0
NAME = "p/a:1"
AUTO = Settings(default=PoolSettings(cap=0))


def world(facts: Facts = Facts(), events: list[Event] | None = None) -> World:  # noqa: B008 - a frozen value
    made = World((events if events is not None else []).append)
    made.list({"p": ("http://a:1",)}, NOW)
    made.learn(Probed(NAME, ok=True, facts=facts), NOW, HealthSettings())
    return made


def leg(endpoint: Endpoint) -> Leg:
    ticket = Ticket(Request("r", Api.CHAT, "m", "p"), Identity(), NOW, NOW + 30)
    return Leg(1, ticket, endpoint, endpoint.incarnation, 1, NOW)


def test_what_an_engine_says_of_its_slots_is_where_its_cap_begins_and_no_more() -> None:
    house = world(Facts(slots=4))
    [endpoint] = house.table.by_pool["p"]
    assert endpoint.cap == 4
    endpoint.cap = 7  # learned since
    house.learn(Probed(NAME, ok=True, facts=Facts(slots=4)), NOW, HealthSettings())
    assert endpoint.cap == 7
    assert world().table.by_pool["p"][0].cap == CAP_START


def test_metrics_are_kept_with_their_time_and_those_of_strangers_are_not() -> None:
    house = world()
    house.observe("p/nobody:1", Load(waiting=9), AUTO, NOW)
    house.observe(NAME, Load(waiting=0, preemptions=5), AUTO, NOW + 3)
    [endpoint] = house.table.by_pool["p"]
    assert (endpoint.load, endpoint.observed_at) == (Load(waiting=0, preemptions=5), NOW + 3)
    assert endpoint.cap == CAP_START  # the first count of preemptions may be old
    endpoint.busiest = 32
    house.observe(NAME, Load(waiting=0, preemptions=6), AUTO, NOW + 6)
    assert endpoint.cap == 28


def test_what_was_learned_of_an_engine_ends_with_it() -> None:
    house = world(Facts(slots=4, started_at=1.0))
    [endpoint] = house.table.by_pool["p"]
    endpoint.cap, endpoint.speed = 7, 99.0
    house.learn(Probed(NAME, ok=True, facts=Facts(slots=5, started_at=900.0)), NOW, HealthSettings())
    assert (endpoint.cap, endpoint.speed) == (5, SPEED_GUESS)


def test_one_that_returns_from_ejection_is_learned_anew_and_one_let_in_again_is_not() -> None:
    house = world()
    [endpoint] = house.table.by_pool["p"]
    endpoint.speed = 99.0
    for held in (True, False):
        house.hold(NAME, held=held, now=NOW)
    house.learn(Probed(NAME, ok=True), NOW, HealthSettings())
    assert (endpoint.state, endpoint.speed) == (EndpointState.READY, 99.0)
    endpoint.state = EndpointState.EJECTED
    house.move(endpoint, Sign.ANSWERED, "", NOW)
    assert (endpoint.state, endpoint.speed) == (EndpointState.READY, SPEED_GUESS)


def test_a_rest_that_the_former_engine_asked_for_is_not_that_of_its_successor() -> None:
    house = world()
    [endpoint] = house.table.by_pool["p"]
    late = leg(endpoint)
    endpoint.incarnation += 1
    refused = Failure(FailureKind.STATUS_429, 429, 3600.0)
    house.failed(late, refused, NOW, HealthSettings())
    assert endpoint.rests_until == 0.0
    house.failed(leg(endpoint), refused, NOW, HealthSettings())
    assert endpoint.rests_until == NOW + REST_MAX_S
    assert endpoint.state is EndpointState.READY


def test_a_returned_engine_begins_at_its_own_slots() -> None:
    some = world()
    some.learn(Probed("p/a:1", ok=True, facts=Facts(slots=4)), NOW, HealthSettings())
    endpoint = some.table.by_name["p/a:1"]
    endpoint.cap = 9
    some.move(endpoint, Sign.FAILING, "", NOW)
    some.learn(Probed("p/a:1", ok=True, facts=Facts(slots=4)), NOW, HealthSettings())
    assert (endpoint.state, endpoint.cap) == (EndpointState.READY, 4)
