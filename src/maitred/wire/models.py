"""The answers to `GET /v1/models` and `GET /v1/models/{id}`: the engines' model cards under our names.

Clients of Anthropic's API get its cards, which have no room for what engines say; all others get OpenAI's.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec.json import encode

# What official clients require of a card, for engines that say nothing.
_CARD = {"id": "", "object": "model", "created": 0, "owned_by": "maitred"}
_YEAR_10000_S = 253_402_300_800


def listing(entries: list[tuple[str, dict[str, Any]]], *, anthropic: bool = False) -> bytes:
    """Return the list of models, sorted, from pairs of our name and the engine's card (or {}).

    Where a name comes twice its first card counts.
    """
    cards = dict(reversed(entries))
    names = sorted(cards)
    if not anthropic:
        return encode({"object": "list", "data": [_card(name, cards[name]) for name in names]})
    first, last = (names[0], names[-1]) if names else (None, None)
    data = [_anthropic_card(name, cards[name]) for name in names]
    return encode({"data": data, "has_more": False, "first_id": first, "last_id": last})


def one(name: str, card: Mapping[str, Any], *, anthropic: bool = False) -> bytes:
    """Return one model's card: the engine's own fields (`max_model_len` among them) under our name."""
    return encode(_anthropic_card(name, card) if anthropic else _card(name, card))


def _card(name: str, card: Mapping[str, Any]) -> dict[str, Any]:
    return {**_CARD, **card, "id": name}


def _anthropic_card(name: str, card: Mapping[str, Any]) -> dict[str, Any]:
    created = card.get("created")
    if not (isinstance(created, int) and 0 <= created < _YEAR_10000_S):
        created = 0  # Anthropic's word for unknown
    at = datetime.fromtimestamp(created, UTC)
    return {"type": "model", "id": name, "display_name": name, "created_at": at, "lifecycle": "active"}
