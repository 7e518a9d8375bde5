"""Conversations: made, read, changed and deleted, with their items."""

from __future__ import annotations

from msgspec import json

from maitred.core.outcome import Outcome
from maitred.responses.asked import Asked
from maitred.responses.back import tell_page
from maitred.responses.ids import CONVERSATION, mint
from maitred.responses.settled import settled
from maitred.store.state_rows import ConversationRow, NewItem
from maitred.wire.responses import conversations as wire
from maitred.wire.responses import lists
from maitred.wire.responses.items import Item


async def create(asked: Asked) -> Outcome:
    """Make one, empty or with its first items."""
    new = wire.decode_create(asked.exchange.body)
    now_ms = asked.site.now_ms()
    items = await settled(asked, new.input)
    metadata = json.encode(new.metadata)
    row = ConversationRow(mint(CONVERSATION), asked.tenant, metadata, now_ms, asked.expires_ms(now_ms))
    await asked.store.create_conversation(row, _new(items))
    return _tell(asked, row)


async def retrieve(asked: Asked) -> Outcome:
    """Answer GET of one."""
    return _tell(asked, await asked.store.conversation(asked.tenant, asked.ids[0]))


async def update(asked: Asked) -> Outcome:
    """Change its metadata."""
    metadata = json.encode(wire.decode_update(asked.exchange.body))
    return _tell(asked, await asked.store.update_conversation(asked.tenant, asked.ids[0], metadata))


async def delete(asked: Asked) -> Outcome:
    """Forget it."""
    await asked.store.delete_conversation(asked.tenant, asked.ids[0])
    asked.respond(wire.conversation_deleted(asked.ids[0]))
    return Outcome.COMPLETED


async def add_items(asked: Asked) -> Outcome:
    """Put items at its end."""
    items = await settled(asked, wire.decode_items(asked.exchange.body))
    now_ms = asked.site.now_ms()
    until_ms = asked.expires_ms(now_ms)
    rows = await asked.store.add_items(asked.tenant, asked.ids[0], _new(items), now_ms, until_ms)
    asked.respond(lists.page([Item(row.id, row.data) for row in rows], has_more=False))
    return Outcome.COMPLETED


async def list_items(asked: Asked) -> Outcome:
    """List its items."""
    store, tenant, id_ = asked.store, asked.tenant, asked.ids[0]
    await tell_page(asked, lambda page: store.conversation_items(tenant, id_, page))
    return Outcome.COMPLETED


async def item(asked: Asked) -> Outcome:
    """Answer GET of one of its items."""
    conversation_id, item_id = asked.ids
    asked.respond((await asked.store.item(asked.tenant, conversation_id, item_id)).data)
    return Outcome.COMPLETED


async def delete_item(asked: Asked) -> Outcome:
    """Forget one of its items."""
    conversation_id, item_id = asked.ids
    now_ms = asked.site.now_ms()
    return _tell(asked, await asked.store.delete_item(asked.tenant, conversation_id, item_id, now_ms))


def _new(items: list[Item]) -> list[NewItem]:
    return [NewItem(item.id, item.data) for item in items]


def _tell(asked: Asked, row: ConversationRow) -> Outcome:
    asked.respond(wire.conversation(row.id, row.created_ms // 1000, json.decode(row.metadata)))
    return Outcome.COMPLETED
