"""The default policy, rule by rule."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maitred.core import saturation
from maitred.core.homes import (
    BEGUN_TOKENS,
    CROWDED,
    CROWDED_LEAST,
    HOLD_MAX_S,
    MISS,
    SHARED,
    STREAM_TOKENS,
    WAIT_TOKENS,
    WRITE_TOKENS,
    homes,
    homes_seen,
)
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


def beginning(reuse: float = 1.0) -> Ticket:
    """One of whose prompt nobody has anything, and others may come to have a part."""
    return ticket(reuse=reuse, prefix=(1, 2, 3))


def test_a_new_beginning_goes_where_the_fewest_live() -> None:
    a, b = two()
    a.begun, b.begun = 8, 7
    assert choose(a, b, of=beginning()) == "b"
    reads(b, BEGUN_TOKENS - 1)
    assert choose(a, b, of=beginning()) == "b"
    reads(b, 2)
    assert choose(a, b, of=beginning()) == "a"


def test_of_equals_it_goes_to_whom_the_last_was_dealt_longest_ago() -> None:
    endpoints = places.endpoints(4)
    for number, each in enumerate(endpoints):
        each.cold = -number
        each.running = number  # else the other way round
    dealt = []
    for number in range(1, 9):
        chosen = homes(endpoints, beginning(), LIMITS, NOW)
        assert chosen is not None
        chosen.begun, chosen.cold, chosen.turn = chosen.begun + 1, number, number
        dealt.append(chosen.name)
    assert "".join(dealt) == "dcbadcba"


def test_it_is_the_turn_of_nobody_who_is_full_or_not_ready() -> None:
    a, b, c = endpoints = places.endpoints(3)
    a.begun, b.begun, c.begun = 1, 2, 3
    b.running = c.running = 2
    assert homes(endpoints, beginning(), LIMITS, NOW) is a
    a.running = CAP
    assert homes(endpoints, beginning(), LIMITS, NOW) is b
    b.state = EndpointState.DRAINING
    assert homes(endpoints, beginning(), LIMITS, NOW) is c
    c.running = CAP
    assert homes(endpoints, beginning(), LIMITS, NOW) is None


def test_where_little_is_found_in_caches_it_is_nobodys_turn() -> None:
    a, b = two()
    a.begun = 8
    reads(b, 1)
    assert choose(a, b, of=beginning(SHARED)) == "b"
    assert choose(a, b, of=beginning(SHARED - 0.01)) == "a"


def test_a_receipt_tells_whose_turn_it_is() -> None:
    a, b = two()
    a.begun = 1
    parts = {seen.endpoint: seen.parts for seen in homes_seen((a, b), beginning(), LIMITS, NOW)}
    assert parts["a"]["begun_s"] == BEGUN_TOKENS / SPEED
    assert "begun_s" not in parts["b"]


@pytest.mark.parametrize("reuse", [SHARED, 1.0])
def test_a_prompt_too_short_for_others_to_have_a_part_is_not_dealt(reuse: float) -> None:
    a, b = two()
    a.begun = 8
    reads(b, 1)
    assert choose(a, b, of=ticket(reuse=reuse)) == "a"


@pytest.mark.parametrize("slow", [{"speed": SPEED / 3}, {"share": 1 / 3}])
def test_one_that_takes_three_times_as_long_has_its_turn_a_third_as_often(slow: dict[str, float]) -> None:
    a, b = two()
    for name, value in slow.items():
        setattr(b, name, value)
    dealt = []
    for number in range(1, 17):
        chosen = homes((a, b), beginning(), LIMITS, NOW)
        assert chosen is not None
        chosen.begun, chosen.cold, chosen.turn = chosen.begun + 1, number, number
        dealt.append(chosen.name)
    assert dealt.count("b") == 4


def test_who_has_too_much_to_do_is_passed_over_and_the_others_go_on_in_turn() -> None:
    a, b, c = places.endpoints(3)
    for each in (a, b, c):
        each.speed = SPEED
    reads(c, 2 * BEGUN_TOKENS)
    b.running = 5  # by what it has to do it would have none
    for number in range(1, 11):
        chosen = homes((a, b, c), beginning(), LIMITS, NOW)
        assert chosen is not None
        chosen.begun, chosen.cold, chosen.turn = chosen.begun + 1, number, number
    assert (a.begun, b.begun, c.begun) == (5, 5, 0)


@pytest.mark.parametrize(("cached", "chosen"), [(3_555, "b"), (3_556, "a")])
def test_part_of_a_long_beginning_may_be_worth_more_than_a_turn(cached: int, chosen: str) -> None:
    assert (1 + MISS) * 3_555 < BEGUN_TOKENS < (1 + MISS) * 3_556
    a, b = two()
    a.begun = 1
    assert choose(a, b, of=ticket(36_000, reuse=1.0, prefix=(1,), cached={"a": cached})) == chosen


@pytest.mark.parametrize("without", ["excluded", "adapter"])
def test_a_receipt_tells_the_turn_among_those_that_could_have_it(without: str) -> None:
    a, b = two()
    b.begun = 1
    one = beginning()
    if without == "excluded":
        one.excluded = ("a",)
    else:
        one = ticket(reuse=1.0, prefix=(1,), adapter="law")
        b.facts = endpoint("x", facts={"adapters": ("law",)}).facts
    assert choose(a, b, of=one) == "b"
    (seen,) = (each for each in homes_seen((a, b), one, LIMITS, NOW) if each.endpoint == "b")
    assert sum(seen.parts.values()) == pytest.approx(seen.value)


def test_a_small_difference_of_speeds_decides_no_turn() -> None:
    a, b = two()
    b.speed = 0.7 * SPEED
    a.cold = 1
    assert choose(a, b, of=beginning()) == "b"


def test_who_has_a_home_is_no_new_beginning() -> None:
    a, b = two()
    b.begun = 1000
    assert choose(a, b, of=regular("b", reuse=1.0)) == "b"


# -- a crowd ----------------------------------------------------------------------------------------

ROOM = PoolSettings(routing="default", cap=1000, saturation="concurrency")
PROMPT, CACHED, ANSWER = 10_000, 9_999, 1000.0


def its_regular(home: str = "b", answer: float = ANSWER, **more: Any) -> Ticket:
    """One of whose prompt hardly anything has to be read at its home, with an answer of so many tokens."""
    one = regular(home, CACHED, PROMPT, **more)
    one.expected = answer
    return one


def over(place: Endpoint, *others: Endpoint) -> float:
    """How many streams more than its fair part an endpoint runs."""
    there = (place, *others)
    part = sum(each.running for each in there) * place.speed / sum(each.speed for each in there)
    return place.running - CROWDED * part - CROWDED_LEAST


def test_a_crowded_home_is_left_where_its_streams_have_more_to_write_than_a_miss_costs() -> None:
    stayed = {}
    for running in range(100):
        a, b = two()
        a.running, b.running = 4, running
        streams = (running - a.running) * (STREAM_TOKENS + WAIT_TOKENS / ANSWER)
        costs_more = max(0.0, over(b, a)) * WRITE_TOKENS * ANSWER + streams > (1 + MISS) * CACHED
        assert (homes((a, b), its_regular(), ROOM, NOW) is a) == costs_more
        stayed[costs_more] = running
    assert set(stayed) == {True, False}


def test_a_home_at_the_bound_is_not_crowded() -> None:
    a, b = two()
    while over(b, a) <= 0:
        b.running += 1
    assert homes((a, b), its_regular(answer=1e6), ROOM, NOW) is a
    b.running -= 1
    assert homes((a, b), its_regular(answer=1e6), ROOM, NOW) is b


def test_few_streams_are_no_crowd() -> None:
    a, b = two()
    b.running = CROWDED_LEAST
    assert homes((a, b), its_regular(answer=1e6), ROOM, NOW) is b


@pytest.mark.parametrize(
    ("which", "other"), [("b", {"speed": 3 * SPEED}), ("a", {"slowness": 4.5}), ("a", {"share": 0.25})]
)
def test_one_that_is_faster_is_not_crowded_by_its_fair_part(which: str, other: dict[str, float]) -> None:
    a, b = two()
    a.running, b.running = 20, 64
    assert homes((a, b), its_regular(), ROOM, NOW) is a
    for name, value in other.items():
        setattr({"a": a, "b": b}[which], name, value)
    assert homes((a, b), its_regular(), ROOM, NOW) is b
    assert "crowd_s" not in {
        name for seen in homes_seen((a, b), its_regular(), ROOM, NOW) for name in seen.parts
    }


def test_who_is_not_ready_has_no_part_in_it() -> None:
    a, b = two()
    c = endpoint("c", speed=SPEED, state=EndpointState.DRAINING)
    a.running, b.running, c.running = 4, 40, 300
    assert homes((a, b, c), its_regular(answer=1e6), ROOM, NOW) is a
    assert homes((c, b), its_regular(answer=1e6), ROOM, NOW) is b


def test_of_two_that_have_the_prompt_a_crowded_one_is_no_better_for_not_being_its_home() -> None:
    a, b = two()
    c = endpoint("c", speed=SPEED)
    a.running, b.running, c.running = 4, 61, 60
    one = its_regular(answer=1e6)
    one.cached = {"b": CACHED, "c": CACHED - 1}
    assert homes((a, b, c), one, ROOM, NOW) is a


def test_a_crowded_home_that_is_full_is_not_waited_for_if_it_would_be_left_with_room() -> None:
    a, b = two()
    a.running, b.running = 4, 60
    full = PoolSettings(routing="default", cap=60, saturation="concurrency")
    assert homes((a, b), its_regular(), full, NOW) is a
    assert homes((a, b), its_regular(), ROOM, NOW) is a
    assert homes((a, b), its_regular(answer=1.0), full, NOW) is None
    assert homes((a, b), its_regular(answer=1.0), ROOM, NOW) is b


def test_who_has_no_home_is_spread_by_what_waits() -> None:
    a, b = two()
    b.running = 60
    reads(a, 100_000)
    newcomer = ticket(answer := 100)
    newcomer.expected = answer * 1e4
    assert homes((a, b), newcomer, ROOM, NOW) is b


def test_a_receipt_tells_of_the_crowd() -> None:
    a, b = two()
    a.running, b.running = 4, 40
    seen = {each.endpoint: each for each in homes_seen((a, b), its_regular(), ROOM, NOW)}
    assert seen["b"].parts["crowd_s"] == pytest.approx(over(b, a) * WRITE_TOKENS * ANSWER / SPEED)
    assert "crowd_s" not in seen["a"].parts
    for each in seen.values():
        assert sum(each.parts.values()) == pytest.approx(each.value)


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


# -- what is told -----------------------------------------------------------------------------------


@st.composite
def pools(draw: st.DrawFn) -> tuple[list[Endpoint], Ticket]:
    """Some endpoints with more or less to do, and a prompt of which some have more or less."""
    there = places.endpoints(draw(st.integers(2, 5)))
    prompt = draw(st.sampled_from((1, 10, 40))) * 1000
    cached = dict[str, int]()
    for number, each in enumerate(there):
        each.turn, each.cold = number, draw(st.integers(0, 9))
        each.begun = draw(st.integers(0, 3))
        each.running = draw(st.sampled_from((0, 3, 20, 60, 90)))
        each.speed = SPEED * draw(st.sampled_from((1.0, 1.0, 3.3)))
        each.share = draw(st.sampled_from((1.0, 1.0, 0.3)))
        each.slowness = draw(st.sampled_from((1.0, 1.0, 4.7)))
        each.kept = draw(st.sampled_from((1.0, 0.7)))
        if waits := draw(st.integers(0, 45) | st.just(0)):
            reads(each, 1000 * waits)
        if part := draw(st.sampled_from((0, 0, 9, 99))):
            cached[each.name] = prompt * part // 100
    cached = dict(sorted(cached.items(), key=lambda had: -had[1]))
    home = next((name for name, tokens in cached.items() if 10 * tokens >= prompt), "")
    one = ticket(prompt, home=home, reuse=draw(st.sampled_from((0.2, 0.9))), cached=cached, prefix=(1,))
    one.expected = draw(st.sampled_from((0.0, 5.0, 700.0)))
    return there, one


@given(pools())
def test_who_is_chosen_is_the_one_that_the_receipt_says_costs_least(
    pool: tuple[list[Endpoint], Ticket],
) -> None:
    there, one = pool
    costs = {seen.endpoint: sum(seen.parts.values()) for seen in homes_seen(there, one, ROOM, NOW)}
    chosen = homes(there, one, ROOM, NOW)
    assert chosen is not None
    assert costs[chosen.name] == pytest.approx(min(costs.values()))
