"""Filters: which endpoints they leave, by example; and that they only ever leave some."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maitred.core.filters import FILTERS, ContextLength, Filter, PrefixCacheAffinity, Room, able
from maitred.core.words import Endpoint, EndpointState, PoolSettings, Ticket
from tests.core.places import LIMITS, endpoint, endpoints, ticket


def kept(rule: Filter, given: list[Endpoint], who: Ticket, now: float = 0.0) -> str:
    """Names of those it leaves."""
    return "".join(each.name for each in rule.keep(given, who, LIMITS, now))


def test_able_are_the_ready_that_did_not_fail_it_and_have_its_adapter() -> None:
    places = [
        endpoint("a", state=EndpointState.EJECTED, facts={"adapters": ("law",)}),
        endpoint("b", facts={"adapters": ("law", "med")}),
        endpoint("c", facts={"adapters": ("med",)}),
        endpoint("d", facts={"adapters": ("law",)}),
    ]
    assert [each.name for each in able(places, ticket())] == ["b", "c", "d"]
    assert [each.name for each in able(places, ticket(excluded=("d",), adapter="law"))] == ["b"]


def test_room_is_what_the_pool_s_saturation_says() -> None:
    places = [endpoint("a", running=100), endpoint("b", running=99), endpoint("c", rests_until=5.0)]
    assert kept(Room(), places, ticket()) == "b"
    assert kept(Room(), places, ticket(), now=5.0) == "bc"
    full = PoolSettings(cap=9, saturation="utilization")
    busy = [endpoint("a", load={"waiting": 5}), endpoint("b", load={"waiting": 4})]
    assert [each.name for each in Room().keep(busy, ticket(), full, 0.0)] == ["b"]


@pytest.mark.parametrize(
    ("tokens", "output", "left"),
    [(1000, 0, "abc"), (1001, 0, "bc"), (900, 101, "bc"), (4001, 0, "c"), (1, 4000, "c")],
)
def test_contexts_that_hold_prompt_and_answer(tokens: int, output: int, left: str) -> None:
    places = [
        endpoint("a", facts={"context_tokens": 1000}),
        endpoint("b", facts={"context_tokens": 4000}),
        endpoint("c"),
    ]
    assert kept(ContextLength(), places, ticket(tokens, output_tokens_max=output)) == left


def test_where_no_context_is_long_enough_the_engines_may_say_so() -> None:
    places = endpoints(2, facts={"context_tokens": 10})
    assert kept(ContextLength(), places, ticket(11)) == "ab"


@pytest.mark.parametrize(
    ("cached", "unread", "waited_s", "left"),
    [
        ({}, {}, 0.0, "abc"),
        ({"a": 799}, {}, 0.0, "abc"),
        ({"a": 800}, {}, 0.0, "a"),
        ({"a": 800, "b": 1000}, {}, 0.0, "ab"),
        ({"a": 1000}, {"a": 3000}, 0.0, "a"),  # 3000 to read against 1000: 2 s later
        ({"a": 1000}, {"a": 3001}, 0.0, "abc"),
        ({"a": 1000, "b": 900}, {"a": 9000}, 0.0, "ab"),  # the better of the two is near enough
        ({"a": 1000}, {"a": 2000}, 9.0, "a"),
    ],
)
def test_stays_with_the_cache_until_it_costs_too_much(
    cached: dict[str, int], unread: dict[str, int], waited_s: float, left: str
) -> None:
    places = endpoints(3)
    for place in places:
        place.unread = unread.get(place.name, 0)
    rule = PrefixCacheAffinity(threshold=0.8, ttft_penalty_max_s=2.0, prefill_tokens_per_s=1000)
    assert kept(rule, places, ticket(1000, cached=cached, arrival=10.0), 10.0 + waited_s) == left


def test_what_it_has_waited_for_full_ones_counts_too() -> None:
    places = [endpoint("a", running=100, unread=2000), endpoint("b", running=100), endpoint("c")]
    rule = PrefixCacheAffinity(ttft_penalty_max_s=2.0, prefill_tokens_per_s=1000)
    who = ticket(1000, cached={"a": 1000}, arrival=10.0)
    assert (kept(rule, places, who, 11.0), kept(rule, places, who, 11.1)) == ("a", "abc")
    who = ticket(1000, cached={"a": 1000, "c": 1000}, arrival=10.0)
    assert kept(rule, places, who, 99.0) == "ac"


def test_each_endpoint_reads_at_the_rate_it_has_shown_where_none_is_given() -> None:
    places = [endpoint("a", unread=4000, speed=4000.0), endpoint("b", speed=500.0)]
    who = ticket(1000, cached={"a": 1000})
    assert kept(PrefixCacheAffinity(ttft_penalty_max_s=0.1), places, who) == "a"
    assert kept(PrefixCacheAffinity(ttft_penalty_max_s=0.1, prefill_tokens_per_s=4000), places, who) == "ab"


@pytest.mark.parametrize("threshold", [0.0, 1.01])
def test_a_threshold_is_a_part(threshold: float) -> None:
    with pytest.raises(ValueError, match=r"threshold is .*; write more than 0 and at most 1"):
        PrefixCacheAffinity(threshold)


@given(
    st.sampled_from(sorted(FILTERS)),
    st.lists(
        st.builds(
            endpoint, st.sampled_from("abcdef"), running=st.integers(90, 110), unread=st.integers(0, 9**6)
        ),
        max_size=6,
    ),
    st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 1000)),
)
def test_a_filter_leaves_some_in_their_order(name: str, places: list[Endpoint], cached: Any) -> None:
    left = list(FILTERS[name]().keep(places, ticket(cached=cached), LIMITS, 1.0))
    assert left == [each for each in places if any(each is other for other in left)]
