"""Pickers: the best, and chance that is the same for the same question."""

from __future__ import annotations

from collections import Counter

import pytest

from maitred.core.pickers import PICKERS, MaxScore, Random, RandomTwo, WeightedRandom
from maitred.core.words import Endpoint
from tests.core.places import endpoint, endpoints, ticket

MANY = 4000


def picked(picker: str, scores: list[float], places: list[Endpoint] | None = None) -> Counter[str]:
    """Who gets many requests of different ids."""
    places = places or endpoints(len(scores))
    policy = PICKERS[picker]()
    return Counter(policy.pick(places, scores, ticket(name=f"r{number}")).name for number in range(MANY))


def test_the_highest_score_and_of_equals_the_one_served_longest_ago() -> None:
    places = [endpoint("a", turn=1), endpoint("b", turn=3), endpoint("c", turn=2)]
    assert MaxScore().pick(places, [0.5, 0.7, 0.7], ticket()).name == "c"
    assert MaxScore().pick(places, [0.7, 0.7, 0.7], ticket()).name == "a"
    assert MaxScore().pick(places, [0.0, 0.0, 0.1], ticket()).name == "c"


def test_random_is_even() -> None:
    shares = picked("random", [0.0, 0.5, 1.0, 0.2])
    assert all(abs(shares[name] / MANY - 0.25) < 0.03 for name in "abcd")


def test_weighted_random_is_by_score() -> None:
    shares = picked("weighted-random", [0.1, 0.0, 0.3, 0.6])
    assert shares["b"] == 0
    for name, share in (("a", 0.1), ("c", 0.3), ("d", 0.6)):
        assert abs(shares[name] / MANY - share) < 0.03
    even = picked("weighted-random", [0.0, 0.0])
    assert abs(even["a"] / MANY - 0.5) < 0.03


def test_of_two_at_random_the_better() -> None:
    shares = picked("random-two", [0.4, 0.3, 0.2, 0.1])
    for name, share in zip("abcd", (3 / 6, 2 / 6, 1 / 6, 0), strict=True):
        assert abs(shares[name] / MANY - share) < 0.03
    assert picked("random-two", [0.1]) == {"a": MANY}


@pytest.mark.parametrize("picker", [Random(), WeightedRandom(), RandomTwo()])
def test_chance_is_the_same_until_somebody_is_seated_even_for_an_id_said_twice(
    picker: Random | WeightedRandom | RandomTwo,
) -> None:
    places, scores = endpoints(5), [0.2] * 5
    assert len({picker.pick(places, scores, ticket()).name for _ in range(9)}) == 1
    seen = set()
    for turn in range(1, 40):
        places[0].turn = turn
        seen.add(picker.pick(places, scores, ticket()).name)
    assert seen == set("abcde")
