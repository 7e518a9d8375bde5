"""What is learned of how fast endpoints read and write, who shares a speed, and who is an outlier."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maitred.core import saturation, speed
from maitred.core.speed import ALIKE, SLOW, TOLD_MIN, expect, share, tpot_s, ttft_s
from maitred.core.words import (
    SPEED_GUESS,
    Api,
    Endpoint,
    EndpointState,
    Identity,
    Leg,
    Request,
    Ticket,
    Usage,
)

TOKENS = (500, 2000, 8000, 30_000)


def endpoint(name: str = "p/a", tokens_per_s: float = 0.0, told: int = TOLD_MIN) -> Endpoint:
    """One that has shown so much already."""
    made = Endpoint(name, "p", "", EndpointState.READY)
    if tokens_per_s:
        made.reads.slope, made.reads.told = 1 / tokens_per_s, told
    return made


@dataclass
class Place:
    """A pool, and a clock that its streams move on."""

    endpoints: list[Endpoint]
    now: float = 1000.0
    legs: int = 0

    def seat(self, at: Endpoint, tokens: int = 1000) -> Leg:
        ticket = Ticket(Request("r", Api.CHAT, "m", "p", stream=True), Identity(), self.now, self.now + 30)
        ticket.prompt_tokens = ticket.fresh = tokens
        self.legs += 1
        leg = Leg(self.legs, ticket, at, 0, 1, self.now, fresh=tokens, reserved=tokens)
        saturation.reserve(leg, self.now)
        leg.sent_at = self.now
        return leg

    def begin(self, leg: Leg, ttft_s: float) -> None:
        self.now = leg.answered_at = leg.seated_at + ttft_s
        saturation.first_token(leg, self.now)

    def end(self, leg: Leg, pace_s: float = 0.02, tokens: int = 101, cached: int = 0) -> None:
        self.now = max(self.now, leg.answered_at + pace_s * (tokens - 1))
        saturation.give_back(leg, self.now)
        usage = Usage(leg.ticket.prompt_tokens, cached, tokens)
        speed.learn(leg, usage, self.endpoints, self.now)

    def stream(self, at: Endpoint, ttft_s: float, pace_s: float = 0.02, tokens: int = 1000) -> None:
        leg = self.seat(at, tokens)
        self.begin(leg, ttft_s)
        self.end(leg, pace_s)


# -- one endpoint -----------------------------------------------------------------------------------


def test_it_learns_how_long_first_tokens_take() -> None:
    one = endpoint()
    place = Place([one])
    assert (one.speed, ttft_s(one, 0)) == (SPEED_GUESS, 0.05)
    for number in range(400):
        tokens = TOKENS[number % 4]
        place.stream(one, 0.1 + tokens / 16_000, tokens=tokens)
    assert ttft_s(one, 10_000) == pytest.approx(0.725, rel=0.02)
    assert one.speed == pytest.approx(16_000, rel=0.02)
    assert one.reads.error < 0.1


def test_who_is_read_after_others_waits_for_them_and_what_is_cached_is_not_read() -> None:
    one = endpoint()
    place = Place([one])
    for number in range(200):
        tokens, cached = TOKENS[number % 4], TOKENS[number // 4 % 4] // 4
        first, second = place.seat(one, tokens), place.seat(one, 10_000)
        place.begin(first, 0.1 + tokens / 16_000)
        place.begin(second, 0.1 + (tokens + 10_000 - cached) / 16_000)
        place.end(first)
        place.end(second, cached=cached)
    assert ttft_s(one, 10_000) == pytest.approx(0.725, rel=0.02)


def test_a_prompt_that_is_half_read_is_half_ahead() -> None:
    one = endpoint(tokens_per_s=1000.0)
    share([one])
    place = Place([one])
    place.seat(one, 1000)
    place.now += 0.5
    assert place.seat(one, 1000).ahead == pytest.approx(500)


def test_it_learns_how_long_later_tokens_take_beside_others() -> None:
    one = endpoint()
    place = Place([one])
    for number in range(400):
        legs = [place.seat(one) for _ in range(1 + number % 8 * 10)]
        place.begin(legs[0], 0.1)
        place.end(legs[0], 0.02 + 0.001 * len(legs))
        for leg in legs[1:]:
            saturation.give_back(leg, place.now)
    for running in (1, 40, 70):
        assert tpot_s(one, running) == pytest.approx(0.02 + 0.001 * running, rel=0.03)
    assert one.writes.error < 0.1


def test_who_ran_only_for_a_while_counts_for_as_long() -> None:
    one = endpoint()
    place = Place([one])
    leg, beside = place.seat(one), place.seat(one)
    place.begin(leg, 0.1)
    before = leg.busy_s
    place.now += 1.0
    saturation.give_back(beside, place.now)
    place.end(leg, 0.04)
    assert one.busy_s - before == pytest.approx(2 * 1.0 + 3.0)


@pytest.mark.parametrize("what", ["not sent", "not answered", "at once", "another engine"])
def test_what_teaches_nothing_of_reading(what: str) -> None:
    one = endpoint()
    place = Place([one])
    leg = place.seat(one)
    place.begin(leg, 0.0 if what == "at once" else 0.5)
    if what == "not sent":
        leg.sent_at = 0.0
    if what == "not answered":
        leg.answered_at = 0.0
    if what == "another engine":
        one.incarnation += 1
    place.end(leg)
    assert (one.reads.told, one.speed) == (0, SPEED_GUESS)


@pytest.mark.parametrize(("tokens", "pace_s"), [(1, 0.02), (101, 0.0)])
def test_an_answer_of_one_token_or_all_at_once_has_no_pace(tokens: int, pace_s: float) -> None:
    one = endpoint()
    place = Place([one])
    leg = place.seat(one)
    place.begin(leg, 0.5)
    place.end(leg, pace_s, tokens)
    assert (one.writes.told, one.paced, one.tpot_s) == (0, 0, 0.0)


def test_what_was_learned_is_forgotten_with_the_engine() -> None:
    one = endpoint()
    place = Place([one])
    for _ in range(TOLD_MIN):
        place.stream(one, 0.1)
    one.slowness = 9.0
    speed.forget(one)
    new = endpoint()
    for name in ("reads", "writes", "speed", "tpot_s", "paced", "slowness"):
        assert getattr(one, name) == getattr(new, name)


# -- many -------------------------------------------------------------------------------------------


def pool(*speeds: float) -> list[Endpoint]:
    return [endpoint(f"p/{number}", each) for number, each in enumerate(speeds)]


def test_those_that_are_alike_share_one_speed() -> None:
    endpoints = pool(9_000, 10_000, 11_000, 11_500)
    share(endpoints)
    assert [each.speed for each in endpoints] == pytest.approx([(9 * 10 * 11 * 11.5) ** 0.25 * 1000] * 4)


def test_a_real_difference_shows() -> None:
    endpoints = pool(30_000, 9_500, 29_000, 10_000)
    share(endpoints)
    fast, slow = endpoints[0].speed, endpoints[1].speed
    assert [each.speed for each in endpoints] == [fast, slow, fast, slow]
    assert [fast, slow] == pytest.approx([29_500, 9_750], rel=0.01)


def test_one_that_has_told_little_is_thought_to_be_much_like_its_peers() -> None:
    new, young = endpoint("p/new"), endpoint("p/young", 100.0, told=TOLD_MIN // 2)
    share([new, young, *pool(10_000, 10_000)])
    assert [new.speed, young.speed] == pytest.approx([10_000, 1000])


def test_what_was_said_of_it_counts_as_far_as_it_was_right_of_its_peers() -> None:
    new, peers = endpoint("p/new"), pool(10_000, 10_000)
    expect(new, 2000.0)
    assert new.speed == pytest.approx(1 / new.reads.slope) == 2000
    for each in peers:
        expect(each, 8000.0)
    assert peers[0].speed != 8000  # it has shown another one
    share([new, *peers])
    assert new.speed == pytest.approx(2500)


def test_where_nobody_has_told_much_the_more_told_counts_more() -> None:
    new, young, older = endpoint("p/new"), endpoint("p/a", 1000.0, told=1), endpoint("p/b", 8000.0, told=2)
    share([new, young, older])
    assert new.speed == pytest.approx(4000.0)
    assert 1000 < young.speed < 4000 < older.speed < 8000


def test_where_nobody_has_told_anything_the_guess_stays() -> None:
    new = endpoint("p/new")
    share([new])
    assert new.speed == SPEED_GUESS


def test_only_those_that_are_ready_have_a_say() -> None:
    one, gone = pool(10_000, 11_000)
    gone.state = EndpointState.EJECTED
    share([one, gone])
    assert [one.speed, gone.speed] == pytest.approx([10_000, SPEED_GUESS])


@given(st.lists(st.floats(0.01, 1e7), min_size=1, max_size=20))
def test_shared_speeds_keep_the_order_and_lie_within_what_was_learned(speeds: list[float]) -> None:
    endpoints = pool(*speeds)
    share(endpoints)
    endpoints.sort(key=lambda each: each.reads.slope)
    for faster, slower in pairwise(endpoints):
        assert faster.speed >= slower.speed
        assert (faster.speed == slower.speed) == (slower.reads.slope <= ALIKE * faster.reads.slope)
    assert endpoints[0].speed <= 1.001 * max(speeds)
    assert endpoints[-1].speed >= 0.999 * min(speeds)


# -- outliers ---------------------------------------------------------------------------------------


def test_an_endpoint_that_reads_far_slower_than_its_fastest_peer_is_an_outlier_until_it_recovers() -> None:
    slow, fast = endpoint("p/a"), endpoint("p/b")
    place = Place([slow, fast])
    for _ in range(TOLD_MIN - 1):
        place.stream(fast, 0.2, tokens=10_000)
        place.stream(slow, 2.0, tokens=10_000)
        assert (slow.slowness, fast.slowness) == (1.0, 1.0)  # a few say little
    for _ in range(90):
        place.stream(fast, 0.2, tokens=10_000)
        place.stream(slow, 2.0, tokens=10_000)
    assert slow.slowness == pytest.approx(fast.speed * slow.reads.slope)
    assert slow.slowness > SLOW
    assert fast.slowness == 1.0
    for _ in range(600):
        place.stream(slow, 0.4, tokens=10_000)
    assert slow.slowness == 1.0  # twice as slow is no outlier


def test_who_shares_a_speed_with_those_between_is_an_outlier_all_the_same() -> None:
    endpoints = pool(*[8000] * 5, 4300, 2300, 1200)
    share(endpoints)
    fastest, *_, slowest = endpoints
    assert fastest.speed == slowest.speed
    Place(endpoints).stream(slowest, 0.05 + 1000 / 1200, tokens=1000)
    assert slowest.slowness == pytest.approx(fastest.speed / 1200, rel=0.05)
    assert slowest.slowness > SLOW


def test_an_endpoint_that_writes_far_slower_than_its_fastest_peer_is_an_outlier_until_it_recovers() -> None:
    slow, fast = endpoint("p/a"), endpoint("p/b")
    place = Place([slow, fast])
    for _ in range(TOLD_MIN - 1):
        place.stream(fast, 0.1, pace_s=0.01)
        place.stream(slow, 0.1, pace_s=0.09)
    assert (slow.slowness, fast.slowness) == (1.0, 1.0)  # a few say little
    for _ in range(60):
        place.stream(fast, 0.1, pace_s=0.01)
        place.stream(slow, 0.1, pace_s=0.03)
    assert (slow.slowness, fast.slowness) == (1.0, 1.0)  # three times as slow is no outlier
    for _ in range(60):
        place.stream(slow, 0.1, pace_s=1.0)
    assert slow.slowness == pytest.approx(100, rel=0.05)
    for _ in range(60):
        place.stream(slow, 0.1, pace_s=0.01)
    assert slow.slowness == 1.0


@pytest.mark.parametrize("when", [0, 2 * TOLD_MIN])
def test_one_stream_that_hung_makes_no_outlier(when: int) -> None:
    one, peer = endpoint("p/a"), endpoint("p/b")
    place = Place([one, peer])
    for number in range(3 * TOLD_MIN):
        place.stream(peer, 0.1)
        place.stream(one, 0.1, pace_s=2.0 if number == when else 0.02)
        assert one.slowness == 1.0


def test_a_peer_of_which_little_is_known_makes_nobody_slow() -> None:
    one, peer = endpoint("p/a"), endpoint("p/b", 1e6, told=TOLD_MIN - 1)
    place = Place([one, peer])
    for _ in range(2 * TOLD_MIN):
        place.stream(one, 0.5, tokens=10_000)
    assert peer.speed > 4 * one.speed
    assert one.slowness == 1.0
