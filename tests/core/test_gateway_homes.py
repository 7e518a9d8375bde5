"""The default policy inside a gateway: who goes home, who waits for it, whom that holds up."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from maitred.core import pool
from maitred.core.homes import MISS, STREAM_TOKENS
from maitred.core.journal import replay
from maitred.core.outcome import FailureKind
from maitred.core.pool import REUSE_FIRST, REUSE_GUESS, REUSE_WEIGHT
from maitred.core.words import SPEED_GUESS, KvEvents, Leg, Phase, PoolSettings, Settings, Ticket, Usage
from tests.core.hall import Hall, limited

BLOCK = 16
TOKENS = 960
AGAIN_S = (1 + MISS) * TOKENS / SPEED_GUESS


def opened(hosts: str = "ab", **limits: Any) -> Hall:
    """One pool of these, by the default policy."""
    hall = Hall(limited(**{"routing": "default", "cap": 2, "saturation": "concurrency"} | limits))
    hall.open(p=hosts)
    return hall


def asks(hall: Hall, root: int, tokens: int = TOKENS, **more: Any) -> Ticket:
    """A prompt of this root comes."""
    blocks = tuple((root << 20) + place for place in range(tokens // BLOCK))
    return hall.accept(prompt_tokens=tokens, prompt_exact=True, blocks=blocks, block_tokens=BLOCK, **more)


def sits(hall: Hall, root: int, **more: Any) -> Leg:
    """It comes, and is seated."""
    ticket = asks(hall, root, **more)
    assert ticket in hall.seated()
    return ticket.legs[0]


def settled(hall: Hall, root: int) -> str:
    """It comes, is served, and has a home from then on."""
    leg = sits(hall, root)
    begins(hall, leg)
    hall.finish(leg.ticket, usage=Usage(TOKENS, 0, 10))
    return leg.endpoint.name


def begins(hall: Hall, leg: Leg) -> None:
    """Its first token comes."""
    hall.gateway.sent(leg, hall.now)
    hall.gateway.answered(leg, hall.now)


def fills(hall: Hall, name: str) -> list[Leg]:
    """All places there are taken, by prompts that are read already; those that came elsewhere leave again."""
    kept: list[Leg] = []
    for root in range(1000, 1050):
        if hall.running()[name] == 2:
            return kept
        leg = sits(hall, root)
        begins(hall, leg)
        if leg.endpoint.name == name:
            kept.append(leg)
        else:
            hall.finish(leg.ticket)
    raise AssertionError


def test_whoever_comes_again_goes_home() -> None:
    hall = opened("abcd")
    homes = {root: settled(hall, root) for root in range(1, 13)}
    assert set(Counter(homes.values()).values()) == {3}
    for root in (5, 3, 12, 1, 7):
        leg = sits(hall, root)
        assert leg.endpoint.name == leg.ticket.home == homes[root]
        assert (leg.fresh, leg.ticket.fresh) == (0, 0)
        hall.finish(leg.ticket)


def test_what_is_cached_needs_no_room_and_is_not_read() -> None:
    hall = opened(kv_reserve=0.0)
    home = settled(hall, 1)
    leg = sits(hall, 1, tokens=TOKENS + 320)
    assert leg.endpoint.name == home
    assert (leg.ticket.need, leg.reserved, leg.unread, leg.fresh) == (320, 320, 320, 320)
    assert hall.endpoint(home).reserved == hall.endpoint(home).unread == 320
    begins(hall, leg)
    assert (hall.endpoint(home).unread, leg.fresh) == (0, 320)
    hall.gateway.progress(leg, 32, hall.now)
    assert hall.endpoint(home).reserved == 352
    hall.finish(leg.ticket)
    assert (hall.endpoint(home).reserved, hall.endpoint(home).reading) == (0, {})


@pytest.mark.parametrize("end", ["finishes", "leaves", "fails"])
def test_what_no_leg_uses_any_more_makes_room(end: str) -> None:
    hall = opened("a")
    leg = sits(hall, 1)
    prefixes = hall.gateway._pools["p"].prefixes
    assert prefixes is not None
    held = prefixes._held[leg.endpoint.name]
    assert (len(held.users), len(held.idle)) == (TOKENS // BLOCK, 0)
    match end:
        case "finishes":
            hall.finish(leg.ticket)
        case "leaves":
            hall.gateway.leave(leg, None, hall.now)
        case "fails":
            hall.fail(leg, FailureKind.RESET)
    assert (len(held.users), held.tokens) == (0, TOKENS)
    hall.finish(leg.ticket)
    assert (len(held.users), held.tokens) == (0, TOKENS)


@pytest.mark.parametrize("to", ["p/b", "q/c"])
def test_a_leg_that_went_elsewhere_makes_room_there(to: str) -> None:
    hall = opened("a")
    leg = sits(hall, 1)
    hall.open(p="ab", q="c")
    hall.gateway.sent(leg, hall.now, f"{to}:1")
    hall.finish(leg.ticket)
    for name in {"p", leg.endpoint.pool}:
        prefixes = hall.gateway._pools[name].prefixes
        assert prefixes is not None
        assert {(len(held.users), held.tokens) for held in prefixes._held.values()} == {(0, TOKENS)}
    assert leg.endpoint.name == f"{to}:1"


def test_elsewhere_all_of_it_is_set_aside() -> None:
    hall = opened(kv_reserve=0.0, cap=1)
    home = settled(hall, 1)
    hall.probe(home, ok=False)
    leg = sits(hall, 1)
    assert leg.endpoint.name != home
    assert (leg.reserved, leg.unread) == (TOKENS, TOKENS)
    assert leg.reserved == hall.endpoint(leg.endpoint.name).reserved


def test_a_burst_of_which_nothing_was_heard_does_not_pile_up() -> None:
    hall = opened("abcd", cap=100)
    for root in range(40):
        asks(hall, root)
    assert len(hall.seated()) == 40
    assert set(hall.running().values()) == {10}


def test_a_burst_of_one_root_stays_where_that_is_read() -> None:
    hall = opened("abcd", cap=100)
    home = sits(hall, 7).endpoint
    for _ in range(15):
        asks(hall, 7)
    assert len(hall.seated()) == 15
    assert (home.running, home.unread) == (16, TOKENS)


def test_many_of_one_root_are_shared_when_the_home_has_more_to_do_than_a_miss_costs() -> None:
    hall = opened("ab", cap=1000)
    streams = (1 + MISS) * TOKENS / STREAM_TOKENS
    for _ in range(round(1.5 * streams)):
        asks(hall, 7)
    hall.seated()
    assert min(hall.running().values()) > 0.2 * streams


# -- a full home ------------------------------------------------------------------------------------


def held(hall: Hall) -> tuple[str, list[Leg], Ticket]:
    """A home, who fills it, and one that waits for it."""
    home = settled(hall, 1)
    there = fills(hall, home)
    waits = asks(hall, 1)
    assert hall.seated() == []
    return home, there, waits


def test_a_full_home_is_waited_for_and_others_are_not_held_up() -> None:
    hall = opened("ab")
    home, there, waits = held(hall)
    other = "p/b:1" if home == "p/a:1" else "p/a:1"
    cold = sits(hall, 2)
    assert cold.endpoint.name == other
    hall.finish(there[0].ticket)
    assert hall.seated() == [waits]
    assert waits.legs[0].endpoint.name == home


def test_those_of_one_home_keep_their_order() -> None:
    hall = opened("ab")
    _home, there, waits = held(hall)
    second = asks(hall, 1)
    hall.seated()
    for leg, ticket in zip(there, (waits, second), strict=True):
        hall.finish(leg.ticket)
        assert hall.seated() == [ticket]


def test_a_home_that_stays_full_is_given_up_after_what_it_takes_to_read_it_again() -> None:
    hall = opened("ab")
    home, _there, waits = held(hall)
    assert hall.gateway.next_wakeup() == hall.now + AGAIN_S
    hall.now += AGAIN_S
    assert hall.seated() == [waits]
    assert waits.legs[0].endpoint.name != home
    begins(hall, waits.legs[0])
    again = sits(hall, 1)  # and has a second home there
    assert again.endpoint is waits.legs[0].endpoint


def test_a_home_that_is_lost_is_waited_for_no_longer() -> None:
    hall = opened("ab")
    home, _there, waits = held(hall)
    hall.probe(home, ok=False)
    assert hall.seated() == [waits]


def test_who_waits_alone_for_its_home_is_seated_there_when_a_place_is_free() -> None:
    """Nobody else was ever in the queue."""
    hall = opened("ab", cap=1)
    home = settled(hall, 1)
    leg = sits(hall, 1)
    begins(hall, leg)
    waits = asks(hall, 1)
    assert hall.seated() == []
    assert hall.seated() == []
    hall.finish(leg.ticket)
    assert hall.seated() == [waits]
    assert waits.legs[0].endpoint.name == home


def test_what_was_cached_meanwhile_is_seen_when_it_is_ones_turn() -> None:
    hall = opened("ab", cap=1)
    first, cold = sits(hall, 1), sits(hall, 2)
    waits = asks(hall, 3), asks(hall, 3)
    assert hall.seated() == []
    hall.finish(first.ticket)
    assert hall.seated() == [waits[0]]
    hall.finish(cold.ticket)
    hall.seated()
    hall.finish(waits[0])
    hall.seated()
    assert waits[1].phase is Phase.DISPATCHED
    assert waits[1].cached == {"p/a:1": TOKENS}


# -- retries ----------------------------------------------------------------------------------------


def test_a_retry_goes_elsewhere_and_lives_there() -> None:
    hall = opened("ab")
    home = settled(hall, 1)
    leg = sits(hall, 1)
    assert hall.fail(leg, FailureKind.RESET)
    assert leg.ticket.home == ""
    assert hall.seated() == [leg.ticket]
    second = leg.ticket.legs[0]
    assert second.endpoint.name != home
    assert (second.fresh, second.unread) == (TOKENS, TOKENS)


def test_a_retry_goes_to_the_other_that_has_it() -> None:
    hall = opened("abc", cap=1)
    home = settled(hall, 1)
    leg = sits(hall, 1)
    hall.probe(home, ok=False)
    other = sits(hall, 1).endpoint.name
    hall.probe(home)
    hall.finish(hall.tickets[-1])
    assert leg.endpoint.name == home
    assert hall.fail(leg, FailureKind.RESET)
    assert leg.ticket.home == other
    assert hall.seated() == [leg.ticket]
    assert leg.ticket.legs[0].endpoint.name == other


# -- settings, engines ------------------------------------------------------------------------------


def test_a_reload_to_a_policy_that_does_not_ask_forgets_and_one_that_asks_begins_anew() -> None:
    hall = opened("ab")
    home = settled(hall, 1)
    fills(hall, home)
    waits = asks(hall, 1)
    assert hall.seated() == []
    hall.set(limited(routing="least-requests", cap=2, saturation="concurrency"))
    assert hall.gateway._pools["p"].prefixes is None
    assert hall.seated() == [waits]
    hall.set(limited(routing="default", cap=2, saturation="concurrency"))
    assert asks(hall, 1).cached == {}


def test_a_reload_to_another_that_asks_keeps_what_is_known() -> None:
    hall = opened("ab")
    home = settled(hall, 1)
    hall.set(limited(routing="llm-d", cap=2, saturation="concurrency"))
    assert asks(hall, 1).cached == {home: TOKENS}


def test_pools_know_nothing_of_each_other() -> None:
    blind = PoolSettings(routing="least-requests")
    hall = Hall(Settings(default=PoolSettings(routing="default"), pools={"q": blind}))
    hall.open(p="ab", q="cd")
    settled(hall, 1)
    assert asks(hall, 1).home
    assert asks(hall, 1, pool="q").cached == {}
    assert hall.gateway._pools["q"].prefixes is None


def test_a_new_incarnation_is_no_home_once_it_has_been_given_something() -> None:
    hall = opened("a")
    settled(hall, 1)
    hall.probe("p/a:1", ok=False)
    hall.probe("p/a:1")
    settled(hall, 2)
    assert asks(hall, 1).cached == {}
    assert hall.endpoint("p/a:1").begun == 1


def test_what_part_was_cached_is_known_of_those_who_come() -> None:
    hall = opened("ab")
    assert asks(hall, 1).reuse == REUSE_GUESS
    hall.seated()
    assert asks(hall, 2).reuse == pytest.approx(REUSE_GUESS * (1 - REUSE_FIRST))


def test_the_first_guess_of_that_counts_as_many_prompts_and_later_ones_fade() -> None:
    hall = opened("ab", cap=9999)
    reuse = []
    for number in range(1, 500):
        reuse.append(asks(hall, number).reuse)
        hall.seated()
    many, enough = round(1 / REUSE_FIRST) - 1, round(1 / REUSE_WEIGHT)
    for seen in (10, 100, enough - many):
        assert reuse[seen] == pytest.approx(REUSE_GUESS * many / (many + seen))
    assert reuse[-1] / reuse[-2] == pytest.approx(1 - REUSE_WEIGHT, abs=1e-5)


def test_beginnings_are_dealt_out_evenly_though_one_has_answered_sooner() -> None:
    """Who is always free first would else have all of them, and be the one that all wait for."""
    hall = opened("ab", cap=200)
    first, second = hall.endpoint("p/a:1"), hall.endpoint("p/b:1")
    slow: list[Ticket] = []
    for root in range(80):  # of which nobody comes again, so that soon it matters no more
        leg = sits(hall, root)
        begins(hall, leg)
        if leg.endpoint is second:
            slow.append(leg.ticket)
        if leg.endpoint is first or len(slow) > 5:
            hall.finish(leg.ticket if leg.endpoint is first else slow.pop(0))
        assert abs(first.begun - second.begun) <= 1


def test_who_fits_elsewhere_is_not_refused_for_one_that_waits_for_another_home() -> None:
    hall = opened("ab", queue_requests_max=1)
    held(hall)
    cold = asks(hall, 77)  # the queue is full, and an endpoint is empty
    assert hall.seated() == [cold]


def test_one_that_waits_for_its_home_keeps_no_empty_endpoint_from_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "HOLD_S", AGAIN_S / 4)
    hall = opened("ab")
    held(hall)
    asks(hall, 1)
    assert hall.seated() == []
    hall.now += AGAIN_S / 2  # longer than others may pass one that fits nowhere
    cold = asks(hall, 77)
    assert hall.seated() == [cold]


def test_beginnings_are_forgotten_with_the_policy_that_counts_them() -> None:
    hall = opened("ab")
    sits(hall, 1)
    endpoints = hall.gateway.table.by_name.values()
    assert sum(endpoint.begun for endpoint in endpoints) == 1
    hall.set(limited(routing="least-requests"))
    assert sum(endpoint.begun for endpoint in endpoints) == 0


@pytest.mark.parametrize("telling", [False, True])
def test_home_is_where_a_prompt_really_went(telling: bool) -> None:
    """By what is thought; and where engines tell, until they should have told of it."""
    hall = opened("ab", cap=9)
    for name in ("p/a:1", "p/b:1") if telling else ():
        hall.gateway.update(KvEvents(name, cleared=True), hall.now)
    leg = sits(hall, 1)
    other = "p/b:1" if leg.endpoint.name == "p/a:1" else "p/a:1"
    hall.gateway.sent(leg, hall.now, other)
    assert asks(hall, 1).cached[other] == TOKENS
    assert replay(hall.lines) == len(hall.lines) - 1
