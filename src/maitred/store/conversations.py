"""Conversations, and what clients do to their items themselves: not while a turn is running there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import structs
from sqlalchemy import BindParameter, Connection, bindparam, delete, func, select, update

from maitred.store import history
from maitred.store.history import AnyRow
from maitred.store.state_rows import ConversationRow, ItemRow, Listed, NewItem, NotKept, Page, possible
from maitred.store.state_tables import NEVER_MS, conversations, items
from maitred.store.turns import see_free
from maitred.store.written import insert_items

_C, _I = conversations.c, items.c
_ROW = (_C.id, _C.tenant, _C.metadata, _C.created_ms, _C.expires_ms)
_ID: BindParameter[str] = bindparam("id_")
_TENANT: BindParameter[str] = bindparam("tenant_")
_MINE = (_C.id == _ID, _C.tenant == _TENANT)
_FIND = select(*_ROW).where(*_MINE)
_SET = update(conversations).where(*_MINE).values(metadata=bindparam("new")).returning(*_ROW)
_KEEP = (
    update(conversations)
    .where(*_MINE, _C.expires_ms < bindparam("until"))
    .values(expires_ms=bindparam("until"))
)
_NEXT = select(func.coalesce(func.max(_I.seq) + 1, 0)).where(_I.conversation_id == _ID)
_IDS: BindParameter[list[str]] = bindparam("ids", expanding=True)
_WIPE = (
    delete(items).where(_I.conversation_id.in_(_IDS), _I.response_id.is_(None)),
    update(items).where(_I.conversation_id.in_(_IDS)).values(conversation_id=None),
    delete(conversations).where(_C.id.in_(_IDS)),
)
_ITEM = select(*history.ITEM).where(
    _I.id == bindparam("item"), _I.tenant == _TENANT, _I.conversation_id == _ID
)
_ITEMS = select(*history.ITEM).where(_I.id.in_(_IDS), _I.tenant == _TENANT)
_DROP_ITEM = delete(items).where(_I.id == bindparam("item"))


def conversation(connection: Connection, tenant: str, id_: str) -> ConversationRow:
    """This conversation. Raises NotKept, as all of these do."""
    return _conversation(connection.execute(_FIND, {"id_": possible(id_), "tenant_": tenant}).first(), id_)


def create(connection: Connection, new: ConversationRow, first: Sequence[NewItem]) -> None:
    """A new conversation, with what is said to have been said."""
    row = structs.asdict(new) | {"metadata": new.metadata.decode(), "turn": None}
    row["expires_ms"] = NEVER_MS if new.expires_ms is None else new.expires_ms
    connection.execute(conversations.insert(), row)
    _insert(connection, new.tenant, new.id, first, 0)


def set_metadata(connection: Connection, tenant: str, id_: str, metadata: bytes) -> ConversationRow:
    """Replace what the client wrote upon it."""
    asked = {"id_": possible(id_), "tenant_": tenant, "new": metadata.decode()}
    return _conversation(connection.execute(_SET, asked).first(), id_)


def remove(connection: Connection, tenant: str, id_: str) -> None:
    """Delete a conversation, and its items that are of no response, also while a turn is running."""
    conversation(connection, tenant, id_)
    wipe(connection, [id_])


def wipe(connection: Connection, ids: Sequence[str]) -> None:
    """Delete conversations."""
    for statement in _WIPE:
        connection.execute(statement, {"ids": ids})


def listed(connection: Connection, tenant: str, id_: str, page: Page) -> Listed:
    """A page of its items."""
    conversation(connection, tenant, id_)
    return history.listed(connection, tenant, _I.conversation_id == id_, page)


def item(connection: Connection, tenant: str, id_: str, item_id: str) -> ItemRow:
    """One of its items."""
    asked = {"id_": possible(id_), "tenant_": tenant, "item": possible(item_id)}
    row = connection.execute(_ITEM, asked).first()
    if row is None:
        raise NotKept(item_id)
    return history.item_row(row)


def items_of(connection: Connection, tenant: str, ids: Iterable[str]) -> dict[str, ItemRow]:
    """These items of the tenant, wherever they are; what is not his is left out."""
    asked = [id_ for id_ in ids if id_.isascii() and "\0" not in id_]
    rows = connection.execute(_ITEMS, {"ids": asked, "tenant_": tenant})
    return {row.id: history.item_row(row) for row in rows}


def add_items(
    connection: Connection, tenant: str, id_: str, new: Sequence[NewItem], now_ms: int, expires_ms: int | None
) -> list[ItemRow]:
    """Add items at the end. Raises Locked."""
    see_free(connection, tenant, id_, now_ms)
    until = NEVER_MS if expires_ms is None else expires_ms
    connection.execute(_KEEP, {"id_": id_, "tenant_": tenant, "until": until})
    seq = connection.execute(_NEXT, {"id_": id_}).scalar_one()
    return _insert(connection, tenant, id_, new, seq)


def remove_item(connection: Connection, tenant: str, id_: str, item_id: str, now_ms: int) -> ConversationRow:
    """Delete an item, also from the response that it is of. Raises Locked."""
    see_free(connection, tenant, id_, now_ms)
    item(connection, tenant, id_, item_id)
    connection.execute(_DROP_ITEM, {"item": item_id})
    return conversation(connection, tenant, id_)


def _insert(connection: Connection, tenant: str, id_: str, new: Sequence[NewItem], seq: int) -> list[ItemRow]:
    insert_items(connection, tenant, new, seq, conversation_id=id_)
    return [ItemRow(item.id, item.data, item.output, None, place) for place, item in enumerate(new, seq)]


def _conversation(row: AnyRow | None, id_: str) -> ConversationRow:
    if row is None:
        raise NotKept(id_)
    expires_ms = None if row.expires_ms == NEVER_MS else row.expires_ms
    return ConversationRow(row.id, row.tenant, row.metadata.encode(), row.created_ms, expires_ms)
