"""The policies inside a gateway: what is seated where, that none passes a cap, and that all replay."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from maitred.core.blocks import SOON_S
from maitred.core.chooser import ROUTING
from maitred.core.journal import replay
from maitred.core.recipe import Piece, Recipe
from maitred.core.words import Facts, KvEvents, Leg, Load, Observed, PoolSettings, Settings, Usage
from tests.core.hall import Hall, limited

CHANCE = Recipe(scorers=(Piece("prefix"), Piece("session", weight=2.0)), picker=Piece("weighted-random"))


@pytest.mark.parametrize("routing", [*ROUTING.names, CHANCE])
def test_no_cap_is_passed_all_are_seated_in_the_end_and_the_journal_replays(routing: str | Recipe) -> None:
    hall, rng = Hall(Settings(default=PoolSettings(cap=3, routing=routing))), Random(3)
    hall.address(p="abcd")
    for name in list(hall.gateway.table.by_name):
        hall.probe(name, facts=Facts(kv_tokens=100_000, context_tokens=8000, adapters=("law",)))
    seated = 0
    for number in range(120):
        hall.now += 0.05
        root = rng.randrange(9) << 32
        hall.accept(
            prompt_tokens=1000,
            blocks=tuple(root + place for place in range(rng.randrange(1, 60))),
            block_tokens=16,
            session=f"s{rng.randrange(9)}",
            adapter=rng.choice(["", "", "law"]),
        )
        if number % 10 == 0:
            hall.gateway.update(
                Observed("p/a:1", Load(rng.randrange(9), rng.randrange(9), rng.random())), hall.now
            )
        seated += len(hall.seated())
        assert max(hall.running().values()) <= 3
        running = [ticket for ticket in hall.tickets if ticket.legs and ticket.outcome is None]
        if len(running) > 8:
            hall.finish(rng.choice(running))
    while running := [ticket for ticket in hall.tickets if ticket.legs and ticket.outcome is None]:
        hall.finish(running[0])
        seated += len(hall.seated())
    assert seated == 120
    assert replay(hall.lines) == len(hall.lines) - 1


def test_a_prompt_waits_for_the_endpoint_that_has_it_where_its_policy_says_so() -> None:
    recipe = Recipe((Piece("prefix-cache-affinity"), Piece("room")), (Piece("token-load"),))
    hall = Hall(limited(cap=1, routing=recipe))
    hall.open(p="ab")
    blocks = tuple(range(60))
    first = hall.seat(prompt_tokens=960, blocks=blocks, block_tokens=16)
    again = hall.accept(prompt_tokens=960, blocks=blocks, block_tokens=16)
    assert hall.seated() == []
    assert sorted(hall.running().values()) == [0, 1]
    hall.finish(first.ticket)
    assert hall.seated() == [again]
    assert again.legs[0].endpoint is first.endpoint


KEYS = tuple(range(60))


def asks(hall: Hall, keys: tuple[int, ...] = KEYS) -> Leg:
    return hall.seat(prompt_tokens=960, prompt_exact=True, blocks=keys, block_tokens=16)


def tells(hall: Hall, host: str, **more: Any) -> None:
    hall.gateway.update(KvEvents(f"p/{host}:1", **more), hall.now)


def test_who_tells_is_believed_whatever_was_thought() -> None:
    hall = Hall(Settings(default=PoolSettings(routing="default")))
    hall.open(p="ab")
    first = asks(hall)
    assert (first.thought, first.exact, first.fresh) == (0, False, 960)
    assert (asks(hall).endpoint, asks(hall).thought) == (first.endpoint, 960)
    mine, other = first.endpoint.name[2], "ab".replace(first.endpoint.name[2], "")
    tells(hall, mine, cleared=True)
    tells(hall, other, stored=KEYS[:40], cleared=True)
    again = asks(hall)
    assert again.endpoint is not first.endpoint
    assert (again.thought, again.exact, again.fresh) == (640, True, 320)
    assert replay(hall.lines) == len(hall.lines) - 1


def test_who_does_not_tell_is_guessed_beside_who_does() -> None:
    hall = Hall(Settings(default=PoolSettings(routing="default")))
    hall.open(p="ab")
    first = asks(hall)
    mine, other = first.endpoint.name[2], "ab".replace(first.endpoint.name[2], "")
    tells(hall, other, stored=KEYS[:10], cleared=True)
    again = asks(hall)
    assert (again.endpoint, again.thought, again.exact) == (first.endpoint, 960, False)
    assert again.ticket.cached == {f"p/{mine}:1": 960, f"p/{other}:1": 160}
    assert list(again.ticket.cached.values()) == [960, 160]


def test_what_was_just_sent_to_who_tells_is_expected_there() -> None:
    hall = Hall(Settings(default=PoolSettings(routing="default")))
    hall.open(p="ab")
    for host in "ab":
        tells(hall, host, cleared=True)
    first = asks(hall)
    assert asks(hall).endpoint is first.endpoint
    hall.now += SOON_S + 1
    late = asks(hall)
    assert (late.thought, late.exact) == (0, True)


def test_what_a_restarted_engine_told_before_is_forgotten() -> None:
    hall = Hall(Settings(default=PoolSettings(routing="default")))
    hall.address(p="a")
    hall.probe("p/a:1", facts=Facts(model="p", started_at=1e6))
    tells(hall, "a", stored=KEYS, cleared=True)
    assert asks(hall).exact
    hall.probe("p/a:1", facts=Facts(model="p", started_at=2e6))
    assert not asks(hall, tuple(range(100, 160))).exact
    tells(hall, "a", stored=KEYS[:5])
    assert not asks(hall).exact
    tells(hall, "a", stored=KEYS[:5], cleared=True)
    assert asks(hall).exact


def test_what_who_leaves_has_told_is_forgotten() -> None:
    hall = Hall(Settings(default=PoolSettings(routing="default")))
    hall.open(p="ab")
    tells(hall, "a", stored=KEYS, cleared=True)
    blocks = hall.gateway._pools["p"].blocks
    hall.address(p="b")
    assert not len(blocks)


def test_what_is_found_of_what_was_thought_bounds_what_is_predicted() -> None:
    hall = Hall(Settings(default=PoolSettings(routing="default")))
    hall.open(p="a")
    for _ in range(10):
        hall.finish(asks(hall).ticket, usage=Usage(960, 480, 1))
    assert (asks(hall).thought, asks(hall).fresh) == (960, 480)


def test_events_of_who_is_not_listed_are_of_no_use() -> None:
    hall = Hall(Settings(default=PoolSettings(routing="default")))
    tells(hall, "a", cleared=True)
    assert not hall.gateway._pools
