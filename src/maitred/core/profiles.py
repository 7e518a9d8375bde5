"""Routing policies made of pieces: filters leave some endpoints, scorers weigh them, a picker picks one.

`RECIPES` holds the named ones, ours and emulations of other routers' rules. An emulation is our reading of
what another router documents, on our ledger, our keys and our queue: it says what a rule is worth, not what
that router is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from maitred.core.candidates import candidate, unable
from maitred.core.filters import FILTERS, able
from maitred.core.pickers import PICKERS, Picker
from maitred.core.receipt import Candidate
from maitred.core.recipe import Piece, Recipe
from maitred.core.scorers import SCORERS
from maitred.core.words import Endpoint, PoolSettings, Ticket

ROOM = Piece("room")
LEAST = Piece("least-requests")
BLIND = frozenset(
    (
        *("room", "context-length", "least-requests", "kv-use", "queue", "lora"),
        *PICKERS,
    )
)
"""Pieces that ask for nothing of a prompt but its length."""
RECIPES_MAX = 64
"""Recipes whose policies are kept ready: one for each pool that has its own, and those before a reload."""


class Profile:
    """A policy made of a recipe. It may be called as any policy is.

    Raises ValueError where there is no such piece, or not with these options.
    """

    __slots__ = ("_filters", "_keeps", "_pick", "_scorers", "_scores")

    def __init__(self, recipe: Recipe) -> None:
        filters = recipe.filters
        if all(piece.name != "room" for piece in filters):
            filters = (ROOM, *filters)
        self._filters = [piece.name for piece in filters]
        self._scorers = [piece.name for piece in recipe.scorers]
        self._keeps = tuple(made(FILTERS, piece).keep for piece in filters)
        self._scores = tuple((made(SCORERS, piece).score, piece.weight) for piece in recipe.scorers)
        picker: Picker = made(PICKERS, recipe.picker)
        self._pick = picker.pick

    def __call__(
        self, endpoints: Iterable[Endpoint], ticket: Ticket, limits: PoolSettings, now: float
    ) -> Endpoint | None:
        """The endpoint for this ticket; None where the filters leave none."""
        left: Sequence[Endpoint] = able(endpoints, ticket)
        for keep in self._keeps:
            if not left:
                return None
            left = keep(left, ticket, limits, now)
        if len(left) < 2:
            return left[0] if left else None
        sums = [0.0] * len(left)
        for score, weight in self._scores:
            scores = score(left, ticket, limits, now)
            sums = [so_far + weight * each for so_far, each in zip(sums, scores, strict=True)]
        return self._pick(left, sums, ticket)

    def explain(
        self, endpoints: Sequence[Endpoint], ticket: Ticket, limits: PoolSettings, now: float
    ) -> list[Candidate]:
        """Which filter left an endpoint out, and the scores of the others."""
        left: Sequence[Endpoint] = able(endpoints, ticket)
        rows = [candidate(each, ticket, now, unable(each, ticket)) for each in endpoints if each not in left]
        for name, keep in zip(self._filters, self._keeps, strict=True):
            before, left = left, keep(left, ticket, limits, now) if left else left
            why_not = "full" if name == ROOM.name else name
            rows += [candidate(each, ticket, now, why_not) for each in before if each not in left]
        if not left:
            return rows
        parts: list[dict[str, float]] = [{} for _ in left]
        for name, (score, weight) in zip(self._scorers, self._scores, strict=True):
            for part, each in zip(parts, score(left, ticket, limits, now), strict=True):
                part[name] = part.get(name, 0.0) + weight * each
        told = [(sum(part.values()), part) for part in parts]
        return rows + [
            candidate(each, ticket, now, "", value) for each, value in zip(left, told, strict=True)
        ]


def made(family: Mapping[str, Any], piece: Piece) -> Any:
    """The piece of a family by its name, with its options. Raises ValueError."""
    if piece.name not in family:
        raise ValueError(f"there is no {piece.name!r}")
    try:
        return family[piece.name](**dict(piece.options))
    except TypeError as error:
        raise ValueError(f"{piece.name}: {error}") from error


def asks_for_prefixes(recipe: Recipe) -> bool:
    """Whether a policy of this recipe looks at what is cached where; pieces from outside are thought to."""
    pieces = (*recipe.filters, *recipe.scorers, recipe.picker)
    return any(piece.name not in BLIND for piece in pieces)


profile = lru_cache(RECIPES_MAX)(Profile)
"""The policy of a recipe, made once."""


RANDOM_TWO = Recipe(scorers=(LEAST,), picker=Piece("random-two"))
"""The power of two choices: of two at random the one with fewer requests running."""

SESSION = Recipe(scorers=(Piece("session", weight=2.0), Piece("token-load")))
"""A session goes home unless waiting there costs more; else the least to be read."""

PREFIX_AFFINITY = Recipe(scorers=(Piece("prefix", weight=100.0), LEAST))
"""Where the most of the prompt is cached; of equals, to a hundredth of it, the fewest requests."""

TOKEN_LOAD = Recipe(scorers=(Piece("token-load"),))
"""Where the fewest tokens of prompts are to be read, what is cached taken off."""

KV_USE = Recipe(scorers=(Piece("kv-use"),))
"""Where the most KV cache is free."""

QUEUE = Recipe(scorers=(Piece("queue", weight=2.0), LEAST))
"""Where the fewest wait inside the engine; of about equals, the fewest requests."""

LORA = Recipe(scorers=(Piece("lora", weight=2.0), LEAST))
"""Each adapter at few endpoints, none of which has much more than its part; else the fewest requests."""

LLM_D = Recipe(
    filters=(
        Piece(
            "prefix-cache-affinity",
            (("threshold", 0.8), ("ttft_penalty_max_s", 18.0), ("prefill_tokens_per_s", 15_928)),
        ),
    ),
    scorers=(Piece("token-load"),),
)
"""Our emulation of llm-d 1.0, its guide "optimized baseline" (August 2026).

prefix-cache-affinity-filter with its defaults (0.80, no exploration, 18,000 ms at 15,928 tokens/s), then
token-load-scorer and max-score-picker. `room` comes first, as its saturation detectors are filters, too.
"""

LLM_D_BLEND = Recipe(
    scorers=(Piece("prefix", weight=3.0), Piece("queue", weight=2.0), Piece("kv-use", weight=2.0))
)
"""Our emulation of llm-d's built-in default, the blend of its guides until August 2026.

prefix-cache-scorer 3, queue-scorer 2, kv-cache-utilization-scorer 2, max-score-picker.
"""

SMG_CACHE_AWARE = Recipe(scorers=(Piece("cache-aware"),))
"""Our emulation of `cache_aware` of the SGLang router 0.1, now smg, with its defaults (0.5, 32, 1.0001).

Today's smg has 0.3, 64 and 1.5, which a recipe of one's own can say.
"""

PREFIX_HASH = Recipe(scorers=(Piece("prefix-hash", weight=2.0), LEAST))
"""Our emulation of prefix hashing with bounded loads as smg and KubeAI have it: 1 KB of the prompt, 1.25."""

RECIPES: dict[str, Recipe] = {
    "random-two": RANDOM_TWO,
    "session": SESSION,
    "prefix-affinity": PREFIX_AFFINITY,
    "token-load": TOKEN_LOAD,
    "kv-use": KV_USE,
    "queue": QUEUE,
    "lora": LORA,
    "llm-d": LLM_D,
    "llm-d-blend": LLM_D_BLEND,
    "smg-cache-aware": SMG_CACHE_AWARE,
    "prefix-hash": PREFIX_HASH,
}
"""The named policies that are made of pieces."""
