"""Model listings: our names, the engines' fields, one order."""

from __future__ import annotations

import json

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
