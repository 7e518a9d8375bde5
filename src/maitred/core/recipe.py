"""What a routing policy is put together from, as plain data: settings carry it, journals record it."""

from __future__ import annotations

from msgspec import Struct

Option = bool | int | float | str


class Piece(Struct, frozen=True, cache_hash=True):
    """One filter, scorer or picker: its name, what its options differ from the defaults in, its weight."""

    name: str
    options: tuple[tuple[str, Option], ...] = ()
    weight: float = 1.0


MAX_SCORE = Piece("max-score")


class Recipe(Struct, frozen=True, cache_hash=True):
    """Filters in their order, scorers with their weights, and the picker of one policy."""

    filters: tuple[Piece, ...] = ()
    scorers: tuple[Piece, ...] = ()
    picker: Piece = MAX_SCORE
