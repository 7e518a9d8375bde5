"""Conversations: what clients may say, and what they are told."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.conversations import Conversation, ConversationDeletedResource

from maitred.core.outcome import Refusal
from maitred.wire.responses.conversations import (
    conversation,
    conversation_deleted,
    decode_create,
    decode_items,
    decode_update,
)

HI = {"role": "user", "content": "hi"}


def said(body: Any) -> bytes:
    return json.dumps(body).encode()


def test_made_of_nothing() -> None:
    for body in (b"", b"{}", said({"items": None, "metadata": None})):
        new = decode_create(body)
        assert (new.metadata, new.input.items) == ({}, [])


def test_made_with_items() -> None:
    new = decode_create(
        said({"items": [HI, {"type": "item_reference", "id": "msg_1"}], "metadata": {"a": "b"}})
    )
    assert new.metadata == {"a": "b"}
    assert new.input.references == ("msg_1",)


def test_changed_and_added_to() -> None:
    assert decode_update(said({"metadata": {"a": "b"}})) == {"a": "b"}
    assert decode_update(said({"metadata": None})) == {}
    assert len(decode_items(said({"items": [HI]})).items) == 1


@pytest.mark.parametrize(
    ("decode", "body", "param"),
    [
        (decode_create, {"item": []}, "item"),
        (decode_create, {"items": [HI] * 21}, "items"),
        (decode_create, {"items": [HI, {"role": "x", "content": ""}]}, "items[1].role"),
        (decode_create, {"metadata": {str(n): "" for n in range(17)}}, "metadata"),
        (decode_update, {}, "metadata"),
        (decode_update, {"metadata": {}, "items": []}, "items"),
        (decode_items, {}, "items"),
        (decode_items, {"items": []}, "items"),
        (decode_items, {"items": [HI] * 21}, "items"),
    ],
)
def test_refused_by_name(decode: Any, body: dict[str, Any], param: str) -> None:
    with pytest.raises(Refusal) as caught:
        decode(said(body))
    assert caught.value.param == param


def test_told() -> None:
    raw = conversation("conv_1", 5, {"a": "b"})
    told = Conversation.model_validate_json(raw, strict=True)
    assert (told.id, told.created_at, told.metadata) == ("conv_1", 5, {"a": "b"})
    gone = ConversationDeletedResource.model_validate_json(conversation_deleted("conv_1"), strict=True)
    assert (gone.id, gone.deleted) == ("conv_1", True)
