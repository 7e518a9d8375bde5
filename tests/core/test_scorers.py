"""Scorers: each one's rule by example; that all score all, 0 to 1; and that homes are even and stay."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maitred.core import scorers
from maitred.core.scorers import SCORERS, bounded_home, home_of
from maitred.core.words import Endpoint, Ticket
from tests.core.places import LIMITS, endpoint, endpoints, ticket


def scored(name: str, given: list[Endpoint], who: Ticket, now: float = 0.0, **options: Any) -> list[float]:
    return [round(score, 3) for score in SCORERS[name](**options).score(given, who, LIMITS, now)]


def with_each(name: str, *values: Any) -> list[Endpoint]:
    """Endpoints that differ in one thing."""
    return [endpoint(chr(ord("a") + number), **{name: value}) for number, value in enumerate(values)]


def test_least_requests_with_slowness_and_slow_start() -> None:
    assert scored("least-requests", with_each("running", 0, 1, 3), ticket()) == [1.0, 0.5, 0.25]
    assert scored("least-requests", with_each("slowness", 5.0, 1.0), ticket()) == [0.2, 1.0]
    assert scored("least-requests", with_each("share", 1.0, 0.1), ticket()) == [1.0, 0.1]


def test_token_load_looks_ahead() -> None:
    places = with_each("unread", 0, 500, 9000)
    assert scored("token-load", places, ticket(1000), tokens_max=2000) == [0.5, 0.25, 0.0]
    who = ticket(1000, cached={"b": 1000})
    assert scored("token-load", places, who, tokens_max=2000) == [0.5, 0.75, 0.0]
    who = ticket(1000, cached={"a": 1500})  # more than there is, as far as known
    assert scored("token-load", places, who, tokens_max=2000) == [1.0, 0.25, 0.0]


def test_kv_use_is_the_engine_s_word_or_ours_whichever_is_more() -> None:
    places = [
        endpoint("a", load={"kv_use": 0.7}, facts={"kv_tokens": 1000}, reserved=200),
        endpoint("b", load={"kv_use": 0.1}, facts={"kv_tokens": 1000}, reserved=400),
        endpoint("c"),
    ]
    assert scored("kv-use", places, ticket()) == [0.3, 0.6, 1.0]
    assert scored("kv-use", places, ticket(), now=15.0) == [0.8, 0.6, 1.0]  # what the engine said is old


@pytest.mark.parametrize(
    ("waiting", "now", "scores"),
    [((0, 5, 10), 0.0, [1.0, 0.5, 0.0]), ((3, 3, 3), 0.0, [1.0] * 3), ((0, 5, 10), 15.0, [1.0] * 3)],
)
def test_the_queue_inside(waiting: tuple[int, ...], now: float, scores: list[float]) -> None:
    assert (
        scored("queue", with_each("load", *({"waiting": each} for each in waiting)), ticket(), now) == scores
    )


def test_prefix_is_the_cached_part() -> None:
    who = ticket(1000, cached={"b": 250, "c": 1200})
    assert scored("prefix", endpoints(3), who) == [0.0, 0.25, 1.0]
    assert scored("prefix", endpoints(2), ticket(0)) == [0.0, 0.0]


def test_cold_prompts_go_where_none_has_been_for_longest() -> None:
    places = with_each("cold", 7, 0, 3, 0)
    assert scored("no-hit-lru", places, ticket()) == [0.333, 1.0, 0.667, 1.0]
    assert scored("no-hit-lru", places, ticket(cached={"a": 0})) == [0.333, 1.0, 0.667, 1.0]
    assert scored("no-hit-lru", places, ticket(cached={"elsewhere": 1})) == [0.5] * 4


@pytest.mark.parametrize(
    ("running", "cached", "best"),
    [
        ((33, 0, 9), {"a": 900}, "b"),  # too far apart: the emptiest
        ((32, 0, 9), {"a": 900}, "a"),
        ((32, 0, 9), {"a": 501, "c": 600}, "c"),
        ((32, 0, 9), {"a": 500, "c": 400}, "c"),  # too little of it: the one longest without a new prompt
    ],
)
def test_balance_first_then_the_cache(running: tuple[int, ...], cached: dict[str, int], best: str) -> None:
    places = with_each("running", *running)
    for place, cold in zip(places, (9, 8, 7), strict=True):
        place.cold = cold
    scores = scored("cache-aware", places, ticket(1000, cached=cached))
    assert places[scores.index(max(scores))].name == best


def test_balance_by_part_too() -> None:
    places = with_each("running", 200, 150)
    who = ticket(1000, cached={"a": 900})
    assert scored("cache-aware", places, who) == pytest.approx([1 / 201, 1 / 151], abs=0.001)
    assert scored("cache-aware", places, who, balance_rel=1.5) == [0.9, 0.0]


def test_a_session_goes_home_until_that_costs_too_much() -> None:
    places = endpoints(4, speed=1000.0)
    who = ticket(1000, session="s")
    home = scored("session", places, who).index(1.0)
    assert scored("session", places, who) == [float(number == home) for number in range(4)]
    assert scored("session", places, ticket()) == [0.0] * 4
    places[home].unread = 500
    assert max(scored("session", places, who)) == 1.0
    places[home].unread = 501
    assert scored("session", places, who) == [0.0] * 4
    who.cached = {places[home].name: 1}  # what is cached there need not be read
    assert max(scored("session", places, who)) == 1.0
    assert scored("session", places, who, slack_s=0.4) == [0.0] * 4


def test_an_adapter_has_a_home_with_no_more_than_its_part() -> None:
    places = endpoints(4)
    who = ticket(adapter="law")
    home = scored("lora", places, who).index(1.0)
    assert scored("lora", places, ticket()) == [0.0] * 4
    for place in places:
        place.running = 4
    places[home].running = 5  # 1.25 * 18 / 4 is at most 6, with it
    assert scored("lora", places, who)[home] == 1.0
    places[home].running = 6
    assert scored("lora", places, who).index(1.0) != home
    assert scored("lora", places, who, load_factor=2.0)[home] == 1.0


def test_the_beginning_of_a_prompt_has_a_home() -> None:
    places = endpoints(8)
    homes = [
        tuple(scored("prefix-hash", places, ticket(prefix=prefix)))
        for prefix in ((1, 4), (1, 4, 5, 6), (1, 9), (4,), ())
    ]
    assert homes[0] == homes[1] == homes[3] != homes[2]
    assert homes[4] == (0.0,) * 8
    tokens = ticket(blocks=tuple(range(99)), block_tokens=16)
    assert scored("prefix-hash", places, tokens) == scored("prefix-hash", places, ticket(prefix=(15,)))
    tokens = ticket(blocks=tuple(range(99)), block_tokens=1024)
    assert scored("prefix-hash", places, tokens) == scored("prefix-hash", places, ticket(prefix=(0,)))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("lora", {"load_factor": 0.9}, "load_factor is 0.9; write at least 1"),
        ("prefix-hash", {"load_factor": 0.9}, "load_factor is 0.9; write at least 1"),
        ("prefix-hash", {"pieces": 0}, "pieces is 0; write at least 1"),
        ("token-load", {"tokens_max": 0}, "tokens_max is 0; write at least 1"),
    ],
)
def test_options_that_would_not_work(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SCORERS[name](**options)


def test_long_contexts_are_kept_for_who_needs_them() -> None:
    places = [
        endpoint(name, facts={"context_tokens": size})
        for name, size in zip("abc", (1000, 4000, None), strict=True)
    ]
    assert scored("context-length", places, ticket(500)) == [1.0, 0.25, 0.25]
    assert scored("context-length", places, ticket(500, output_tokens_max=501)) == [0.0, 1.0, 1.0]
    assert scored("context-length", places, ticket(5000)) == [0.0, 0.0, 0.0]
    assert scored("context-length", endpoints(2), ticket(5000)) == [0.0, 0.0]


def test_homes_are_even_and_stay_when_another_goes() -> None:
    places = [endpoint(f"p/10.0.0.{number}:8000") for number in range(8)]
    homes = {key: home_of(places, key).name for key in range(8000)}
    assert all(abs(count - 1000) < 120 for count in Counter(homes.values()).values())
    left = places[:3] + places[4:]
    moved = [key for key, home in homes.items() if home_of(left, key).name != home]
    assert moved == [key for key, home in homes.items() if home == places[3].name]
    assert max(Counter(home_of(left, key).name for key in moved).values()) < 250


@given(st.lists(st.integers(0, 50), min_size=1, max_size=9), st.integers(), st.floats(1, 3))
def test_there_is_always_a_home_within_the_bound(running: list[int], key: int, factor: float) -> None:
    home = bounded_home(with_each("running", *running), key, factor)
    assert home.running <= factor * (sum(running) + 1) / len(running)


@given(
    st.sampled_from(sorted(SCORERS)),
    st.lists(
        st.builds(
            endpoint,
            st.sampled_from("abcdef"),
            running=st.integers(0, 110),
            unread=st.integers(0, 10**7),
            reserved=st.integers(0, 10**7),
            share=st.floats(0.1, 1),
            cold=st.integers(0, 5),
            facts=st.sampled_from([{}, {"kv_tokens": 1000, "context_tokens": 1000}]),
            load=st.sampled_from([None, {}, {"waiting": 3, "kv_use": 1.0}]),
        ),
        min_size=1,
        max_size=6,
    ),
    st.builds(
        ticket,
        st.integers(0, 5000),
        cached=st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 6000)),
        session=st.sampled_from(["", "s"]),
        adapter=st.sampled_from(["", "law"]),
        prefix=st.lists(st.integers(0, 2**64 - 1), max_size=5).map(tuple),
    ),
)
def test_all_are_scored_from_0_to_1(name: str, places: list[Endpoint], who: Ticket) -> None:
    scores = SCORERS[name]().score(places, who, LIMITS, 1.0)
    assert len(scores) == len(places)
    assert all(0 <= score <= 1 for score in scores)


def test_each_family_has_all_its_pieces() -> None:
    classes = {
        each
        for each in vars(scorers).values()
        if isinstance(each, type) and each.__module__ == scorers.__name__
    }
    assert classes - {scorers.Scorer} == set(SCORERS.values())
