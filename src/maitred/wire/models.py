"""The answers to `GET /v1/models` and `GET /v1/models/{id}`: the engines' model cards under our names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.json import encode

# What official clients require of a card, for engines that say nothing.
_CARD = {"id": "", "object": "model", "created": 0, "owned_by": "maitred"}


def listing(entries: list[tuple[str, dict[str, Any]]]) -> bytes:
    """Return the list of models, sorted, from pairs of our name and the engine's card (or {}).

    Where a name comes twice its first card counts.
    """
    cards = dict(reversed(entries))
    return encode({"object": "list", "data": [_card(name, cards[name]) for name in sorted(cards)]})


def one(name: str, card: Mapping[str, Any]) -> bytes:
    """Return one model's card: the engine's own fields (`max_model_len` among them) under our name."""
    return encode(_card(name, card))


def _card(name: str, card: Mapping[str, Any]) -> dict[str, Any]:
    return {**_CARD, **card, "id": name}
