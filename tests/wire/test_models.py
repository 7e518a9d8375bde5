"""Model listings: our names, the engines' fields, one order."""

from __future__ import annotations

import json

import pytest

from maitred.wire import models

CARD = {"id": "Qwen/Qwen3", "object": "model", "created": 7, "owned_by": "vllm", "max_model_len": 4096}
BARE = {"object": "model", "created": 0, "owned_by": "maitred"}


def test_cards_keep_their_fields_under_our_names() -> None:
    assert json.loads(models.listing([("q", CARD), ("a", {})])) == {
        "object": "list",
        "data": [BARE | {"id": "a"}, CARD | {"id": "q"}],
    }
    assert json.loads(models.one("q", CARD)) == CARD | {"id": "q"}


def test_order_and_duplicates_of_the_input_do_not_show() -> None:
    listing = models.listing([("a", CARD), ("c", {}), ("b", {}), ("a", {})])
    assert listing == models.listing([("b", {}), ("a", CARD), ("c", {})])
    assert json.loads(models.listing([])) == {"object": "list", "data": []}


# -- for Anthropic's clients --------------------------------------------------------------------------

KNOWN = {
    "type": "model",
    "id": "q",
    "display_name": "q",
    "created_at": "1970-01-01T00:00:07Z",
    "lifecycle": "active",
}
UNKNOWN = KNOWN | {"id": "a", "display_name": "a", "created_at": "1970-01-01T00:00:00Z"}


def test_anthropics_cards_have_its_members_alone() -> None:
    listing = models.listing([("q", CARD), ("a", {}), ("q", {})], anthropic=True)
    assert json.loads(listing) == {
        "data": [UNKNOWN, KNOWN],
        "has_more": False,
        "first_id": "a",
        "last_id": "q",
    }
    assert json.loads(models.one("q", CARD, anthropic=True)) == KNOWN


def test_an_empty_list_begins_and_ends_with_nothing() -> None:
    empty = {"data": [], "has_more": False, "first_id": None, "last_id": None}
    assert json.loads(models.listing([], anthropic=True)) == empty


@pytest.mark.parametrize("created", [-1, 253_402_300_800, 10**30, "yesterday", None, 1.5])
def test_a_time_that_is_none_is_unknown(created: object) -> None:
    assert json.loads(models.one("a", {"created": created}, anthropic=True)) == UNKNOWN
