"""A filter, a scorer, and two whole policies for maitred. README.md says how they get there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from maitred.core.filters import able
from maitred.core.recipe import Piece, Recipe
from maitred.core.saturation import SATURATION
from maitred.core.words import Endpoint, PoolSettings, Ticket


class Fresh(Struct, frozen=True):
    """Endpoints whose metrics were read within `age_s`; all, where there are none.

    In a file the option is `age`, a duration: `{name: fresh, age: 5s}`.
    """

    age_s: float = 15.0

    def keep(
        self, endpoints: Sequence[Endpoint], ticket: Ticket, limits: PoolSettings, now: float
    ) -> Sequence[Endpoint]:
        """Some of those given, in their order."""
        return [each for each in endpoints if now - each.observed_at <= self.age_s] or endpoints


class Calm(Struct, frozen=True):
    """The fewer requests ever put out of the KV cache there, the better."""

    def score(
        self, endpoints: Sequence[Endpoint], ticket: Ticket, limits: PoolSettings, now: float
    ) -> Sequence[float]:
        """One score for each, 0 to 1."""
        put_out = [(each.load.preemptions or 0) if each.load is not None else 0 for each in endpoints]
        most = max(put_out) or 1
        return [1 - each / most for each in put_out]


CALM_FIRST = Recipe(
    filters=(Piece("fresh", (("age_s", 5.0),)),), scorers=(Piece("calm", weight=2.0), Piece("least-requests"))
)
"""A policy put together from pieces, its own and maitred's."""


def first(endpoints: Iterable[Endpoint], ticket: Ticket, limits: PoolSettings, now: float) -> Endpoint | None:
    """A policy that is one function: the first in the list that may have it and has room."""
    full = SATURATION[limits.saturation]
    return next((each for each in able(endpoints, ticket) if not full(each, ticket, limits, now)), None)
