"""The default policy, rule by rule."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maitred.core import saturation
from maitred.core.homes import BEGUN_TOKENS, HOLD_MAX_S, MISS, SHARED, STREAM_TOKENS, WAIT_TOKENS, homes
from maitred.core.words import Endpoint, EndpointState, Leg, PoolSettings, Ticket
from tests.core import places
from tests.core.places import endpoint

SPEED = 1000.0
CAP = 10
LIMITS = PoolSettings(routing="default", cap=CAP, saturation="concurrency")
NOW = 50.0


def two(**more: Any) -> tuple[Endpoint, Endpoint]:
    """Endpoints that read 1,000 tokens a second; a was served before b."""
    return endpoint("a", speed=SPEED, turn=1, **more), endpoint("b", speed=SPEED, turn=2, **more)


def ticket(prompt_tokens: int = 1000, *, home: str = "", reuse: float = 0.0, **more: Any) -> Ticket:
    """One that came now; `home` is named where it has one."""
    made = places.ticket(prompt_tokens, **{"arrival": NOW} | more)
    made.fresh = prompt_tokens - next(iter(made.cached.values()), 0)
    made.home, made.reuse = home, reuse
    return made


def regular(home: str, cached: int = 900, prompt_tokens: int = 1000, **more: Any) -> Ticket:
    """One of whose prompt so much is cached at its home."""
    return ticket(prompt_tokens, home=home, cached={home: cached}, **more)


def reads(place: Endpoint, tokens: float, now: float = NOW) -> None:
    """Give it a prompt to read, and count no stream for it."""
    whole = int(tokens)
    leg = Leg(len(place.reading), ticket(whole, stream=True), place, 0, 1, now, fresh=whole)
    saturation.reserve(leg, now)
    place.running -= 1


def choose(*endpoints: Endpoint, of: Ticket, now: float = NOW) -> str | None:
    chosen = homes(endpoints, of, LIMITS, now)
    return chosen.name if chosen is not None else None


# -- home -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("home", ["a", "b"])
def test_a_regular_goes_home(home: str) -> None:
    assert choose(*two(), of=regular(home)) == home


def test_a_miss_costs_several_times_what_it_takes_to_read_it_again() -> None:
    """The home is left when so much more waits there, and not before."""
    for less, where in ((2, "b"), (0, "a")):
        a, b = two()
        reads(b, int((1 + MISS) * 900) + 1 - less)
        assert choose(a, b, of=regular("b")) == where


def test_of_two_that_have_it_the_one_that_has_more() -> None:
    a, b = two()
    shared = ticket(home="b", cached={"b": 900, "a": 600})
    assert choose(a, b, of=shared) == "b"
    reads(b, 2000)
    assert choose(a, b, of=shared) == "b"
    reads(b, 1000)
    assert choose(a, b, of=shared) == "a"


def test_a_little_in_common_is_no_home_but_counts() -> None:
    a, b = two()
    assert choose(a, b, of=ticket(cached={"b": 50})) == "b"
    b.running = 20
    assert choose(a, b, of=ticket(cached={"b": 50})) == "a"


# -- until the first token --------------------------------------------------------------------------


def test_the_one_with_the_least_to_read_first() -> None:
    a, b = two()
    reads(a, 300)
    assert choose(a, b, of=ticket()) == "b"
    reads(b, 400)
    assert choose(a, b, of=ticket()) == "a"


def test_what_should_have_been_read_since_counts_no_more() -> None:
    a, b = two()
    reads(a, 500)
    reads(b, 400)
    assert choose(a, b, of=ticket()) == "b"
    reads(b, 400, NOW + 0.05)
    assert choose(a, b, of=ticket(), now=NOW + 0.05) == "a"
    assert saturation.unread(a, NOW + 0.2) == pytest.approx(300)
    assert saturation.unread(a, NOW + 9.0) == 0.0
    assert saturation.unread(b, NOW + 9.0) == 400  # nothing tells that it is at the next


def test_a_running_stream_counts_as_a_few_tokens() -> None:
    a, b = two()
    a.running = 5
    assert choose(a, b, of=ticket()) == "b"
    reads(b, 5 * STREAM_TOKENS + 1)
    assert choose(a, b, of=ticket()) == "a"


@pytest.mark.parametrize("answer", [WAIT_TOKENS / 2, 50.0])
def test_a_prompt_counts_for_those_that_wait_for_it_the_more_the_shorter_answers_are(answer: float) -> None:
    a, b = two()
    a.running = 5
    each = STREAM_TOKENS + int(1000 * min(1.0, WAIT_TOKENS / answer))
    comes = ticket()
    comes.expected = answer
    reads(b, 5 * each - 1)
    assert choose(a, b, of=comes) == "b"
    reads(b, 2)
    assert choose(a, b, of=comes) == "a"


def test_the_one_that_reads_faster() -> None:
    a, b = two()
    b.speed = 2 * SPEED
    assert choose(a, b, of=ticket()) == "b"
    reads(b, 1300)
    assert choose(a, b, of=ticket()) == "b"
    reads(b, 300)
    assert choose(a, b, of=ticket()) == "a"


def test_an_outlier_counts_for_as_much_slower_as_it_is() -> None:
    a, b = two()
    a.slowness = 5.0
    reads(b, 5500)
    assert choose(a, b, of=ticket()) == "b"
    reads(b, 200)
    assert choose(a, b, of=ticket()) == "a"


def test_a_home_that_is_an_outlier_is_left_when_reading_the_rest_there_takes_longer_than_a_miss() -> None:
    a, b = two()
    b.slowness = 15.0
    assert choose(a, b, of=regular("b")) == "b"
    b.slowness = 20.0
    assert choose(a, b, of=regular("b")) == "a"


def test_one_on_its_slow_start_gets_less() -> None:
    a, b = two()
    a.share = 0.25
    reads(b, 4100)
    assert choose(a, b, of=ticket()) == "b"
    reads(b, 200)
    assert choose(a, b, of=ticket()) == "a"


def test_equals_are_served_in_turns() -> None:
    endpoints = places.endpoints(3)
    served = []
    for turn in range(1, 7):
        chosen = homes(endpoints, ticket(), LIMITS, NOW)
        assert chosen is not None
        chosen.turn = turn
        served.append(chosen.name)
    assert "".join(served) == "abcabc"


# -- new beginnings ---------------------------------------------------------------------------------


def test_a_new_beginning_goes_where_the_fewest_live() -> None:
    a, b = two()
    a.begun, b.begun = 8, 7
    assert choose(a, b, of=ticket(reuse=1.0)) == "b"
    reads(b, BEGUN_TOKENS)
    assert choose(a, b, of=ticket(reuse=1.0)) == "a"


def test_the_less_is_found_in_caches_the_less_that_counts() -> None:
    a, b = two()
    a.begun, b.begun = 8, 7
    reads(b, BEGUN_TOKENS // 2)
    assert choose(a, b, of=ticket(reuse=1.0)) == "b"
    assert choose(a, b, of=ticket(reuse=(1 + SHARED) / 2 - 0.1)) == "a"
    b.begun = 0
    assert choose(a, b, of=ticket(reuse=SHARED)) == "a"
    assert choose(a, b, of=ticket(reuse=SHARED - 0.1)) == "a"


def test_who_has_a_home_is_no_new_beginning() -> None:
    a, b = two()
    b.begun = 1000
    assert choose(a, b, of=regular("b", reuse=1.0)) == "b"


# -- full, and out of the question ------------------------------------------------------------------


def test_a_full_home_is_waited_for_as_long_as_a_miss_costs() -> None:
    a, b = two()
    b.running = CAP
    one, again_s = regular("b"), min(HOLD_MAX_S, (1 + MISS) * 900 / SPEED)
    assert choose(a, b, of=one) is None
    assert choose(a, b, of=one, now=NOW + again_s - 0.01) is None
    assert choose(a, b, of=one, now=NOW + again_s) == "a"
    b.running -= 1
    assert choose(a, b, of=one, now=NOW + 9.0) == "b"


def test_a_full_home_is_not_waited_for_where_it_has_more_to_read_than_a_miss_costs() -> None:
    a, b = two()
    b.running = CAP
    reads(b, int((1 + MISS) * 900) - CAP * STREAM_TOKENS + 1)
    assert choose(a, b, of=regular("b")) == "a"


def test_another_that_is_full_is_not_waited_for() -> None:
    """It has some of the prompt, and would be the better place."""
    a, b = two()
    b.running = CAP
    assert choose(a, b, of=ticket(cached={"b": 50})) == "a"


def test_a_home_that_cannot_have_it_is_not_waited_for() -> None:
    for state in EndpointState:
        if state is not EndpointState.READY:
            a, b = two()
            b.running, b.state = CAP, state
            assert choose(a, b, of=regular("b")) == "a"
    a, b = two()
    assert choose(a, b, of=regular("b", excluded=("b",))) == "a"
    assert choose(a, of=regular("gone")) == "a"


def test_adapters_are_sent_where_they_are_loaded() -> None:
    a, b = two()
    a.facts = endpoint("x", facts={"adapters": ("law",)}).facts
    assert choose(a, b, of=regular("b", adapter="law")) == "a"
    assert choose(b, of=regular("b", adapter="law")) is None


ENDPOINTS = st.lists(
    st.builds(
        Endpoint,
        name=st.sampled_from("abcd"),
        pool=st.just("p"),
        url=st.just(""),
        state=st.sampled_from([EndpointState.READY, EndpointState.READY, *EndpointState]),
        running=st.integers(CAP - 2, CAP + 1),
        turn=st.integers(0, 9),
        begun=st.integers(0, 3),
        share=st.sampled_from([0.5, 1.0]),
        rests_until=st.sampled_from([0.0, NOW + 1]),
        speed=st.sampled_from([100.0, SPEED]),
    ),
    max_size=4,
    unique_by=lambda place: place.name,
)


@given(
    ENDPOINTS,
    st.dictionaries(st.sampled_from("abcd"), st.integers(1, 1000), max_size=3),
    st.sets(st.sampled_from("ab")),
    st.floats(0, 1),
    st.floats(0, 1000),
)
def test_none_exactly_where_nobody_has_room_or_a_full_home_is_waited_for(
    endpoints: list[Endpoint], cached: dict[str, int], excluded: set[str], reuse: float, waited_s: float
) -> None:
    one = ticket(cached=cached, excluded=tuple(sorted(excluded)), reuse=reuse, arrival=NOW - waited_s)
    one.home = next((name for name in cached if name not in excluded), "")
    allowed = [e for e in endpoints if e.state is EndpointState.READY and e.name not in excluded]
    room = [e for e in allowed if not saturation.places_full(e, one, LIMITS, NOW)]
    chosen = homes(endpoints, one, LIMITS, NOW)
    if chosen is not None:
        assert chosen in room
    else:
        assert not room or one.home in [e.name for e in allowed if e not in room]
