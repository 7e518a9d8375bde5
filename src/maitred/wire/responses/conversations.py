"""The Conversations API's bodies: a conversation is metadata and items."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Raw, Struct
from msgspec.json import Decoder, encode

from maitred.wire.responses.create import Metadata, check_metadata
from maitred.wire.responses.input import Input, read_input
from maitred.wire.responses.reading import Closed, read_body

ADDED_ITEMS_MAX = 20
"""Items added at once."""

_Items = Annotated[list[Raw], Meta(max_length=ADDED_ITEMS_MAX)]


class _Create(Closed, frozen=True):
    items: _Items | None = None
    metadata: Metadata | None = None


class _Update(Closed, frozen=True):
    metadata: Metadata | None


class _Add(Closed, frozen=True):
    items: Annotated[_Items, Meta(min_length=1)]


class NewConversation(Struct, frozen=True):
    """A conversation to be made."""

    metadata: dict[str, str]
    input: Input


_create, _update, _add = Decoder(_Create), Decoder(_Update), Decoder(_Add)


def decode_create(body: bytes) -> NewConversation:
    """Read what POST /v1/conversations says; nothing is enough. Raises Refusal."""
    said = read_body(_create, body) if body else _Create()
    check_metadata(said.metadata)
    return NewConversation(said.metadata or {}, read_input(said.items, "items"))


def decode_update(body: bytes) -> dict[str, str]:
    """Read the metadata that takes the place of a conversation's. Raises Refusal."""
    metadata = read_body(_update, body).metadata
    check_metadata(metadata)
    return metadata or {}


def decode_items(body: bytes) -> Input:
    """Read items to be added. Raises Refusal."""
    return read_input(read_body(_add, body).items, "items")


def conversation(conversation_id: str, created_s: int, metadata: dict[str, str]) -> bytes:
    """Return a conversation as clients see it."""
    return encode(
        {"id": conversation_id, "object": "conversation", "created_at": created_s, "metadata": metadata}
    )


def conversation_deleted(conversation_id: str) -> bytes:
    """Return the answer to a deletion."""
    return encode({"id": conversation_id, "object": "conversation.deleted", "deleted": True})
