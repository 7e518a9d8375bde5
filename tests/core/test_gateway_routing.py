"""The policies inside a gateway: what is seated where, that none passes a cap, and that all replay."""

from __future__ import annotations

from random import Random

import pytest

from maitred.core.chooser import ROUTING
from maitred.core.journal import replay
from maitred.core.recipe import Piece, Recipe
from maitred.core.words import Facts, Load, Observed, PoolSettings, Settings
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
