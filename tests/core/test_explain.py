"""Receipts: what they tell of a choice is what it was made by."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maitred.core.chooser import ROUTING, least_loaded
from maitred.core.events import Decided
from maitred.core.explain import receipt
from maitred.core.receipt import CANDIDATES_MAX, Candidate
from maitred.core.recipe import Piece, Recipe
from maitred.core.tokens import NoTokens
from maitred.core.words import Endpoint, EndpointState, KvEvents, PoolSettings, Ticket
from tests.core.hall import Hall, limited
from tests.core.places import endpoint, endpoints, ticket

READY = EndpointState.READY
PLACES = st.lists(
    st.builds(
        endpoint,
        st.sampled_from("abcdefgh"),
        state=st.sampled_from([READY] * 4 + [*EndpointState]),
        running=st.integers(0, 4),
        turn=st.integers(0, 9),
        begun=st.integers(0, 9),
        speed=st.sampled_from([500.0, 4096.0]),
        share=st.sampled_from([1.0, 0.5]),
        slowness=st.sampled_from([1.0, 5.0]),
        facts=st.sampled_from([{}, {"adapters": ("law",)}]),
    ),
    max_size=6,
    unique_by=lambda each: each.name,
)
BYTES = "approximate", "no_events"
WHERE = st.sampled_from("abcdefgh")


@st.composite
def tickets(draw: st.DrawFn) -> Ticket:
    """Tickets with all that a policy may ask for."""
    who = ticket(
        draw(st.integers(1, 20_000)),
        cached=draw(st.dictionaries(WHERE, st.integers(0, 2000))),
        excluded=draw(st.sampled_from([(), ("a",)])),
        adapter=draw(st.sampled_from(["", "law"])),
    )
    who.home = draw(st.sampled_from(["", *who.cached]))
    who.reuse = draw(st.floats(0, 1))
    who.expected = draw(st.sampled_from([0.0, 5.0, 300.0]))
    return who


def chosen_by(routing: str | Recipe, places: list[Endpoint], who: Ticket) -> Endpoint | None:
    return ROUTING[routing](places, who, PoolSettings(cap=4, routing=routing), 1.0)


@pytest.mark.parametrize("routing", ["default", "least-requests", "round-robin", "token-load", "llm-d"])
@given(places=PLACES, who=tickets())
def test_the_best_of_those_told_is_the_one_chosen(routing: str, places: list[Endpoint], who: Ticket) -> None:
    chosen = chosen_by(routing, places, who)
    if chosen is None:
        return
    told = receipt(who, chosen, places, places, BYTES, PoolSettings(cap=4, routing=routing), 1.0)
    assert (told.policy, told.endpoint, told.home) == (routing, chosen.name, who.home)
    assert sorted(row.endpoint for row in told.candidates) == sorted(each.name for each in places)
    sign = -1 if told.measure == "score" else 1
    turns = {each.name: each.turn for each in places}
    open_to_it = [row for row in told.candidates if not row.why_not]
    best = min((sign * value_of(row), turns[row.endpoint]) for row in open_to_it)
    assert (sign * value_of(told.candidates[0]), turns[told.candidates[0].endpoint]) == best
    assert told.candidates[0].endpoint == chosen.name


def value_of(row: Candidate) -> float:
    assert row.value is not None
    return row.value


@given(PLACES, tickets())
def test_a_cost_is_the_sum_of_its_parts(places: list[Endpoint], who: Ticket) -> None:
    chosen = chosen_by("default", places, who)
    if chosen is None:
        return
    told = receipt(who, chosen, places, places, BYTES, PoolSettings(cap=4, routing="default"), 1.0)
    for row in told.candidates:
        if row.value is not None:
            assert row.value == pytest.approx(sum(row.parts.values()))


def test_what_stands_against_each_is_told() -> None:
    places = [
        endpoint("a"),
        endpoint("b", running=4),
        endpoint("c", state=EndpointState.EJECTED),
        endpoint("d"),
        endpoint("e", facts={"adapters": ()}),
        endpoint("f"),
    ]
    for each in places:
        if each.name != "e":
            each.facts = endpoint("x", facts={"adapters": ("law",)}).facts
    who = ticket(cached={"b": 900}, excluded=("d",), adapter="law")
    who.home = "b"
    for routing in ("default", "least-requests", "random-two"):
        limits = PoolSettings(cap=4, routing=routing)
        told = receipt(who, places[0], places[:5], places, BYTES, limits, 1.0)
        assert {row.endpoint: row.why_not for row in told.candidates} == {
            "a": "",
            "b": "full",
            "c": "ejected",
            "d": "failed",
            "e": "adapter",
            "f": "kept",
        }
        assert [row.endpoint for row in told.candidates[:2]] == ["a", "b"]  # the chosen one, then the home
        assert told.candidates[1].cached == 900


def test_a_filter_is_named_and_scores_are_weighed() -> None:
    recipe = Recipe(
        (Piece("context-length"),), (Piece("prefix", weight=3.0), Piece("least-requests", weight=2.0))
    )
    places = [
        endpoint("a", running=1),
        endpoint("b", facts={"context_tokens": 10}),
        endpoint("c", facts={"context_tokens": 2000}),
    ]
    who = ticket(1000, cached={"a": 500})
    limits = PoolSettings(routing=recipe)
    chosen = ROUTING[recipe](places, who, limits, 1.0)
    assert chosen is not None
    told = receipt(who, chosen, places, places, BYTES, limits, 1.0)
    assert (told.policy, told.measure, told.endpoint) == ("composed", "score", "a")
    rows = {row.endpoint: row for row in told.candidates}
    assert (rows["a"].value, rows["a"].parts) == (2.5, {"prefix": 1.5, "least-requests": 1.0})
    assert (rows["c"].value, rows["c"].parts) == (2.0, {"prefix": 0.0, "least-requests": 2.0})
    assert (rows["b"].why_not, rows["b"].value) == ("context-length", None)


def _theirs(*given: Any) -> Endpoint | None:
    return least_loaded(*given)


def test_of_a_policy_from_outside_only_the_facts_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ROUTING, "theirs", _theirs)
    [place] = endpoints(1, running=2)
    told = receipt(ticket(), place, [place], [place], BYTES, PoolSettings(routing="theirs"), 1.0)
    assert told.measure == ""
    assert told.candidates == (Candidate("a", running=2),)


def test_a_receipt_is_bounded_and_tells_the_chosen_one_and_the_home() -> None:
    places = [endpoint(f"p{number}", running=number) for number in range(100)]
    who = ticket(cached={"p99": 900})
    who.home = "p99"
    told = receipt(who, places[70], places, places, BYTES, PoolSettings(routing="default"), 1.0)
    assert len(told.candidates) == CANDIDATES_MAX
    assert told.left_off == 100 - CANDIDATES_MAX
    assert [row.endpoint for row in told.candidates[:3]] == ["p70", "p99", "p0"]


def test_a_leg_has_a_receipt_only_where_the_request_asks_for_one() -> None:
    hall = Hall(limited(cap=1, routing="default"))
    hall.open(p="ab")
    quiet, asked = hall.seat(), hall.seat(receipt=True)
    assert quiet.receipt is None
    assert asked.receipt is not None
    assert asked.receipt.endpoint == asked.endpoint.name
    assert {row.endpoint: (row.why_not, row.running) for row in asked.receipt.candidates} == {
        quiet.endpoint.name: ("full", 1),
        asked.endpoint.name: ("", 0),  # as it was before it got its seat
    }
    assert [event.leg for event in hall.events if isinstance(event, Decided)] == [asked]


def test_each_attempt_has_its_own_with_what_it_waited() -> None:
    hall = Hall(limited(cap=1, routing="least-requests"))
    hall.open(p="ab")
    first = hall.seat(receipt=True)
    busy = hall.seat()
    hall.fail(first)
    hall.now += 2.0
    hall.finish(busy.ticket)
    assert hall.seated() == [first.ticket]
    [told] = [leg.receipt for leg in first.ticket.legs]
    assert told is not None
    assert (told.attempt, told.endpoint, told.index) == (2, busy.endpoint.name, "none")
    assert math.isclose(told.wait_s, 2.0)
    assert told.candidates[1].why_not == "failed"


def test_how_it_was_known_what_is_cached() -> None:
    hall = Hall(limited(routing="default"))
    hall.open(p="a")

    def known(**more: Any) -> tuple[str, str]:
        told = hall.seat(receipt=True, **more).receipt
        assert told is not None
        return told.index, told.index_why

    blocks = {"blocks": (1, 2, 3), "block_tokens": 16}
    assert known(untold=NoTokens.TIMEOUT) == ("approximate", "timeout")
    assert known(**blocks) == ("approximate", "no_events")
    hall.gateway.update(KvEvents("p/a:1", cleared=True), hall.now)
    assert known() == ("approximate", "no_blocks")
    assert known(**blocks) == ("precise", "")
    hall.gateway.update(KvEvents("p/a:1", lost=True), hall.now)
    assert known(**blocks) == ("precise", "lost")
