"""When an endpoint is full, by each policy, and what is learned of how much it can take."""

from __future__ import annotations

import math
from itertools import count
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from maitred.core import saturation
from maitred.core.saturation import (
    AHEAD,
    BUSY_KV,
    BUSY_WAITING,
    CAP_PERIOD_S,
    CAP_START,
    LEFT,
    SATURATION,
    STALE_S,
    first_cap,
    has_room,
    opens_at,
)
from maitred.core.words import (
    Api,
    Endpoint,
    EndpointState,
    Facts,
    Identity,
    Leg,
    Load,
    PoolSettings,
    Request,
    Settings,
    Ticket,
)

NOW = 1000.0
AUTO = PoolSettings(cap=0)
NUMBERS = count(1)


def endpoint(name: str = "p/a", **more: object) -> Endpoint:
    return Endpoint(name, "p", "", EndpointState.READY, **more)  # type: ignore[arg-type]


def ticket(prompt_tokens: int = 0, need: int = 0, rank: int = 0, *, stream: bool = True) -> Ticket:
    made = Ticket(Request("r", Api.CHAT, "m", "p", stream), Identity(), NOW, NOW + 30)
    made.prompt_tokens, made.need, made.rank = prompt_tokens, need or prompt_tokens, rank
    made.fresh = prompt_tokens
    return made


def full(place: Endpoint, one: Ticket, limits: PoolSettings = AUTO, now: float = NOW) -> bool:
    return SATURATION[limits.saturation](place, one, limits, now)


def leg(place: Endpoint, one: Ticket, now: float = NOW) -> Leg:
    """One that holds what its ticket needs, and was sent."""
    made = Leg(next(NUMBERS), one, place, 0, 1, now, fresh=one.fresh, reserved=one.need)
    saturation.reserve(made, now)
    made.sent_at = now
    return made


@given(
    st.integers(0, 9), st.sampled_from([0.1, 0.5, 1.0]), st.sampled_from([0.0, NOW + 1]),
    st.integers(900, 960), st.sampled_from([None, 0, 1000]), st.integers(0, 3), st.integers(20, 50),
    st.sampled_from([0, 4, 8]),
)  # fmt: skip
@example(running=1, share=1.0, rests_until=0.0, reserved=950, kv=1000, rank=2, need=20, cap=0)
def test_without_a_goal_auto_is_kv_tokens_to_the_letter(  # it is written out, to be quick
    running: int,
    share: float,
    rests_until: float,
    reserved: int,
    kv: int | None,
    rank: int,
    need: int,
    cap: int,
) -> None:
    place = endpoint(
        running=running,
        share=share,
        rests_until=rests_until,
        reserved=reserved,
        facts=Facts(kv_tokens=kv),
        cap=6,
    )
    one = ticket(need=need, rank=rank)
    limits = PoolSettings(cap=cap)
    assert saturation.all_full(place, one, limits, NOW) is saturation.kv_full(place, one, limits, NOW)


# -- places -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", SATURATION)
def test_places_bound_every_policy(policy: str) -> None:
    limits = PoolSettings(cap=4, saturation=policy)
    assert not full(endpoint(running=3), ticket(), limits)
    assert full(endpoint(running=4), ticket(), limits)


@pytest.mark.parametrize("policy", SATURATION)
def test_an_endpoint_that_rests_is_full(policy: str) -> None:
    place, limits = endpoint(rests_until=NOW + 5), PoolSettings(saturation=policy)
    assert full(place, ticket(), limits)
    assert not full(place, ticket(), limits, NOW + 5)


def test_a_lower_band_leaves_places_to_those_above_it() -> None:
    limits = PoolSettings(cap=100)
    room = [100 - LEFT * 100 * rank for rank in range(3)]
    for rank, most in enumerate(room):
        assert not full(endpoint(running=int(most) - 1), ticket(rank=rank), limits)
        assert full(endpoint(running=int(most)), ticket(rank=rank), limits)
    assert not full(endpoint(), ticket(rank=40), PoolSettings(cap=1))  # one place is anybody's


def test_a_slow_start_has_part_of_the_places() -> None:
    limits = PoolSettings(cap=100)
    assert not full(endpoint(running=24, share=0.25), ticket(), limits)
    assert full(endpoint(running=25, share=0.25), ticket(), limits)


def test_whether_there_is_room_at_all() -> None:
    limits = PoolSettings(cap=2)
    assert has_room([endpoint(running=2), endpoint(running=1)], limits, NOW)
    assert not has_room([endpoint(running=2), endpoint(rests_until=NOW + 1)], limits, NOW)
    gone = endpoint()
    gone.state = EndpointState.EJECTED
    assert not has_room([gone], limits, NOW)


# -- the KV cache -----------------------------------------------------------------------------------

KV = Facts(kv_tokens=1000)


@pytest.mark.parametrize("policy", ["kv-tokens", "auto"])
def test_what_is_reserved_and_needed_fits_the_cache(policy: str) -> None:
    limits = PoolSettings(saturation=policy)
    place = endpoint(facts=KV, running=1, reserved=700)
    assert not full(place, ticket(need=300), limits)
    assert full(place, ticket(need=301), limits)
    assert not full(place, ticket(need=301), PoolSettings(saturation="concurrency"))


def test_an_empty_endpoint_takes_what_is_larger_than_its_cache() -> None:
    place = endpoint(facts=KV)
    assert not full(place, ticket(need=5000))
    leg(place, ticket(need=5000))
    assert full(place, ticket(need=1))


def test_a_lower_band_leaves_cache_to_those_above_it() -> None:
    place = endpoint(facts=KV, running=1, reserved=500)
    assert full(place, ticket(need=490, rank=1))
    assert not full(place, ticket(need=480, rank=1))
    assert not full(place, ticket(need=490))


def test_an_answer_longer_than_thought_takes_more() -> None:
    place = endpoint(facts=KV)
    held = leg(place, ticket(prompt_tokens=100, need=150))
    saturation.grow(held, 48)
    assert place.reserved == 150
    saturation.grow(held, 64)
    saturation.grow(held, 80)
    assert place.reserved == 180
    saturation.give_back(held, NOW)
    assert (place.reserved, place.unread, place.running, held.reserved) == (0, 0, 0, 0)


# -- what the engine says ---------------------------------------------------------------------------

BY_WORD = PoolSettings(saturation="utilization")


@pytest.mark.parametrize("load", [Load(waiting=BUSY_WAITING), Load(kv_use=BUSY_KV)])
def test_an_engine_that_is_busy_by_its_own_word_is_full_while_that_is_fresh(load: Load) -> None:
    place = endpoint(load=load, observed_at=NOW)
    assert full(place, ticket(), BY_WORD, NOW + STALE_S - 0.1)
    assert not full(place, ticket(), BY_WORD, NOW + STALE_S)  # an old word stops nothing


@pytest.mark.parametrize("load", [None, Load(running=99, waiting=99, kv_use=1.0)])
def test_without_a_fresh_word_our_own_ledger_says_when_it_is_full(load: Load | None) -> None:
    """Nor is silence taken for idleness."""
    place = endpoint(facts=KV, load=load, observed_at=NOW - 60, running=1, reserved=700)
    assert not full(place, ticket(need=300), BY_WORD)
    assert full(place, ticket(need=301), BY_WORD)


def test_a_signal_stuck_at_nought_does_not_open_places() -> None:
    place = endpoint(load=Load(), observed_at=NOW, running=4)
    assert full(place, ticket(), PoolSettings(cap=4, saturation="utilization"))


def test_other_policies_do_not_listen_to_it() -> None:
    place = endpoint(load=Load(waiting=99, kv_use=1.0), observed_at=NOW)
    assert not full(place, ticket())


# -- prompts not yet read ---------------------------------------------------------------------------

GOAL = PoolSettings(ttft_s=2.0)
RATE = 1000.0


def test_so_many_prompts_lie_ahead_as_leave_the_goal_within_reach() -> None:
    place = endpoint(speed=RATE)
    one = ticket(prompt_tokens=int(AHEAD * 2.0 * RATE))
    leg(place, one)
    assert not full(place, one, GOAL)
    assert full(place, ticket(rank=1), GOAL)  # who comes below waits outside
    leg(place, ticket(prompt_tokens=1))
    assert full(place, one, GOAL)
    assert not full(place, one, PoolSettings())  # without a goal nothing is late


def test_only_a_first_token_shows_that_a_prompt_was_read() -> None:
    place = endpoint(speed=RATE)
    plain = leg(place, ticket(prompt_tokens=2000, stream=False))
    assert not full(place, ticket(), GOAL)  # nothing would tell when this one was read
    assert saturation.backlog_s(place) == 0.0
    saturation.give_back(plain, NOW)
    stream = leg(place, ticket(prompt_tokens=2000), NOW + 10)
    assert full(place, ticket(), GOAL, NOW + 20)  # it should have been read, and was not
    assert opens_at([place], GOAL, NOW + 10) == math.inf
    assert saturation.backlog_s(place) == 2.0
    saturation.first_token(stream, NOW + 20)
    assert place.unread == 0
    assert not full(place, ticket(), GOAL, NOW + 20)


def test_the_timer_rings_when_metrics_that_say_busy_are_old() -> None:
    busy = endpoint(load=Load(waiting=99), observed_at=NOW - 5)
    assert opens_at([busy], BY_WORD, NOW) == NOW + STALE_S - 5
    assert opens_at([busy], AUTO, NOW) == math.inf


def test_the_timer_rings_at_the_end_of_a_rest() -> None:
    resting, other = endpoint(rests_until=NOW + 7), endpoint(rests_until=NOW + 9)
    assert opens_at([other, resting], AUTO, NOW) == NOW + 7
    assert opens_at([other, resting], AUTO, NOW + 7) == NOW + 9
    assert opens_at([other, resting], AUTO, NOW + 9) == math.inf


# -- automatic caps ---------------------------------------------------------------------------------


def ends(place: Endpoint, tpot_s: float, now: float, limits: PoolSettings) -> None:
    """An answer ends where tokens take so long."""
    place.tpot_s = tpot_s
    saturation.served(place, limits, now)


def test_where_an_automatic_cap_begins() -> None:
    assert first_cap(endpoint()) == CAP_START
    assert first_cap(endpoint(facts=Facts(slots=4))) == 4


def test_an_automatic_cap_rises_while_it_binds_and_no_faster_than_engines_show_it() -> None:
    place, limits = endpoint(cap=40, busiest=60), PoolSettings(cap=0, tpot_s=0.05)
    for passed_s in (0.0, 0.5, CAP_PERIOD_S - 0.1):
        ends(place, 0.02, NOW + passed_s, limits)
    assert place.cap == 42
    place.busiest = 40
    ends(place, 0.02, NOW + CAP_PERIOD_S, limits)
    assert place.cap == 42  # no more than 40 ran; it did not bind
    place.busiest = 41
    ends(place, 0.02, NOW + CAP_PERIOD_S, limits)
    assert place.cap == 44


def test_plain_answers_raise_an_automatic_cap_too() -> None:
    place = endpoint(cap=4)
    held = [leg(place, ticket(stream=False)) for _ in range(4)]
    for each in held:  # all are gone by the time the cap is looked at: it did bind
        saturation.give_back(each, NOW)
    saturation.served(place, AUTO, NOW)
    assert (place.cap, place.busiest) == (5, 0)


def test_an_automatic_cap_falls_where_tokens_come_too_slowly() -> None:
    place, limits = endpoint(cap=40, busiest=50, running=10), PoolSettings(cap=0, tpot_s=0.05)
    ends(place, 0.10, NOW, limits)
    assert (place.cap, place.busiest) == (36, 10)
    ends(place, 0.10, NOW + CAP_PERIOD_S, limits)
    assert place.cap == 9  # of what ran, not of what might
    for period in range(2, 99):
        ends(place, 0.10, NOW + period * CAP_PERIOD_S, limits)
    assert place.cap == 1


@pytest.mark.parametrize(
    ("load", "before", "cap"),
    [
        (Load(waiting=1), None, 36),
        (Load(preemptions=3), 2, 36),
        (Load(preemptions=3), 3, 40),
        (Load(preemptions=3), None, 40),  # the first reading: those may be old
        (Load(running=99, kv_use=1.0), None, 40),
    ],
)
def test_what_waits_inside_an_engine_or_was_put_out_lowers_its_cap(
    load: Load, before: int | None, cap: int
) -> None:
    place = endpoint(cap=40, busiest=40, load=load)
    saturation.observed(place, before, Settings(default=AUTO), NOW)
    assert place.cap == cap
    fixed = endpoint(busiest=40, load=Load(waiting=9))
    saturation.observed(fixed, None, Settings(default=PoolSettings(cap=40)), NOW)
    assert fixed.cap == 0


@pytest.mark.parametrize(("busiest", "cap"), [(19, 40), (20, 18)])
def test_what_waits_inside_an_engine_of_which_we_have_little_is_none_of_ours(busiest: int, cap: int) -> None:
    place = endpoint(cap=40, busiest=busiest, load=Load(waiting=9))
    saturation.observed(place, None, Settings(default=AUTO), NOW)
    assert place.cap == cap


def test_what_was_learned_of_an_engine_is_forgotten_with_it() -> None:
    learned: dict[str, Any] = {"speed": RATE, "cap": 7, "cap_at": NOW, "rests_until": NOW + 9}
    place = endpoint(**learned)
    saturation.forget(place)
    for name in learned:
        assert getattr(place, name) == getattr(endpoint(), name)


# -- too late ---------------------------------------------------------------------------------------


def test_who_can_no_longer_have_its_first_token_in_time_is_too_late() -> None:
    place, one = endpoint(speed=RATE), ticket(prompt_tokens=500)
    one.ttft_s = 2.0  # 1.8 s planned, half a second to read it: 1.3 s of waiting
    assert not saturation.too_late(one, place, NOW + 1.29)
    assert saturation.too_late(one, place, NOW + 1.31)
    leg(place, ticket(prompt_tokens=400), NOW + 1.0)  # and less behind another
    assert saturation.too_late(one, place, NOW + 1.0)


def test_a_prompt_that_cannot_be_read_in_time_may_wait_a_little_all_the_same() -> None:
    place, one = endpoint(speed=RATE), ticket(prompt_tokens=60_000)
    one.ttft_s = 2.0
    assert not saturation.too_late(one, place, NOW + AHEAD * 2.0)
    assert saturation.too_late(one, place, NOW + AHEAD * 2.0 + 0.01)
