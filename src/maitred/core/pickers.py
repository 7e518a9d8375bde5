"""Which of the endpoints that are left, by their scores: the last step of a routing policy made of pieces.

What is random here follows from the request's id and from who was seated last, so that the same question has
the same answer, and a journal replays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from maitred.core.mix import key_of, mix, uniform
from maitred.core.words import Endpoint, Ticket


class Picker(Protocol):
    """Picks one endpoint."""

    def pick(self, endpoints: Sequence[Endpoint], scores: Sequence[float], ticket: Ticket) -> Endpoint:
        """One of these, of which there is at least one; each has its score."""
        ...


class MaxScore(Struct, frozen=True):
    """The highest score; of equals the one served longest ago."""

    def pick(self, endpoints: Sequence[Endpoint], scores: Sequence[float], ticket: Ticket) -> Endpoint:
        """The best."""
        best, most = endpoints[0], scores[0]
        for endpoint, score in zip(endpoints, scores, strict=True):
            if score > most or (score == most and endpoint.turn < best.turn):
                best, most = endpoint, score
        return best


class Random(Struct, frozen=True):
    """Any, whatever the scores."""

    def pick(self, endpoints: Sequence[Endpoint], scores: Sequence[float], ticket: Ticket) -> Endpoint:
        """One of them."""
        return endpoints[_chance(endpoints, ticket) % len(endpoints)]


class WeightedRandom(Struct, frozen=True):
    """Any, each as likely as its score is high; where all are 0, any.

    By keys u ** (1 / score), of which the highest wins (Efraimidis and Spirakis, 2006).
    """

    def pick(self, endpoints: Sequence[Endpoint], scores: Sequence[float], ticket: Ticket) -> Endpoint:
        """One of them."""
        chance = _chance(endpoints, ticket)
        best, most = None, -1.0
        for number, (endpoint, score) in enumerate(zip(endpoints, scores, strict=True)):
            if score > 0 and (key := uniform(mix(chance, number)) ** (1 / score)) > most:
                best, most = endpoint, key
        return best or endpoints[chance % len(endpoints)]


class RandomTwo(Struct, frozen=True):
    """Two at random, and of these the one with the higher score (the power of two choices)."""

    def pick(self, endpoints: Sequence[Endpoint], scores: Sequence[float], ticket: Ticket) -> Endpoint:
        """The better of two."""
        if len(endpoints) == 1:
            return endpoints[0]
        chance = _chance(endpoints, ticket)
        first = chance % len(endpoints)
        second = (first + 1 + mix(chance, 1) % (len(endpoints) - 1)) % len(endpoints)
        return endpoints[first] if scores[first] >= scores[second] else endpoints[second]


def _chance(endpoints: Sequence[Endpoint], ticket: Ticket) -> int:
    """A number as good as random. With the last turn in it, as clients may repeat an id."""
    return mix(key_of(ticket.request.id), max([endpoint.turn for endpoint in endpoints]))


PICKERS: dict[str, Callable[..., Picker]] = {
    "max-score": MaxScore,
    "random": Random,
    "weighted-random": WeightedRandom,
    "random-two": RandomTwo,
}
"""The pickers by name. Each is a frozen Struct; its fields are its options."""
