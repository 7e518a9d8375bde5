"""What was said before: the turns that a response builds upon, or the items of a conversation.

One statement brings all of them, however many turns there were. It walks from the newest back to the first,
and no further than may be remembered.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from msgspec import structs
from sqlalchemy import BindParameter, ColumnElement, Connection, Row, Select, bindparam, func, literal, select

from maitred.store.state_rows import (
    UNFINISHED,
    Bounds,
    ChainBroken,
    History,
    ItemRow,
    Listed,
    NotChainable,
    NotKept,
    Page,
    StillRunning,
    TooLong,
    chainable,
    possible,
)
from maitred.store.state_tables import conversations, items, responses

AnyRow = Row[*tuple[Any, ...]]
ITEM = (items.c.id, items.c.data, items.c.output, items.c.response_id, items.c.seq)
_TENANT: BindParameter[str] = bindparam("tenant")
_ID: BindParameter[str] = bindparam("id")
_BYTES_MAX: BindParameter[int] = bindparam("bytes_max")
_ITEMS_MAX: BindParameter[int] = bindparam("items_max")


def _walking() -> Select[Any]:
    there = responses.c
    known = (there.id.label("turn"), there.previous_id, there.conversation_id)
    first = select(
        *known, there.item_bytes.label("bytes"), there.item_count.label("count"), literal(0).label("depth")
    ).where(there.id == _ID, there.tenant == _TENANT)
    walk = first.cte("walk", recursive=True)
    further = select(
        *known, walk.c.bytes + there.item_bytes, walk.c.count + there.item_count, walk.c.depth + 1
    ).where(
        there.id == walk.c.previous_id,
        there.tenant == _TENANT,
        walk.c.bytes <= _BYTES_MAX,
        walk.c.count <= _ITEMS_MAX,
    )
    walk = walk.union_all(further)
    joined = walk.outerjoin(items, items.c.response_id == walk.c.turn)
    return select(*ITEM[:3], walk.c.turn, items.c.seq, *list(walk.c)[1:]).select_from(joined)


_NEWEST = select(responses.c.status, responses.c.reason, responses.c.root_id).where(
    responses.c.id == _ID, responses.c.tenant == _TENANT
)
_WALK = _walking()
"""In no order: a database would carry all that was said through its sort."""
_SEQ, _BYTES, _COUNT, _DEPTH = itemgetter(4), 7, 8, itemgetter(9)
"""Places in a row of it, of which there may be thousands."""

_newest = (
    select(*ITEM, func.sum(items.c.bytes).over(order_by=items.c.seq.desc()).label("total"))
    .where(
        items.c.conversation_id == _ID,
        items.c.tenant == _TENANT,
        items.c.seq < bindparam("before"),
    )
    .order_by(items.c.seq.desc())
    .limit(_ITEMS_MAX + 1)
    .subquery()
)
_SAID = select(_newest).order_by(_newest.c.seq.desc())
_CONVERSATION = select(conversations.c.id).where(conversations.c.id == _ID, conversations.c.tenant == _TENANT)
_BEGINNING = select(responses.c.conversation_seq).where(responses.c.id == _ID, responses.c.tenant == _TENANT)
_END = 2**62


def of_chain(connection: Connection, tenant: str, id_: str, bounds: Bounds) -> History:
    """What was said up to this response. Raises NotKept, ChainBroken, StillRunning, NotChainable, TooLong."""
    asked = {
        "tenant": tenant,
        "id": possible(id_),
        "bytes_max": bounds.bytes_max,
        "items_max": bounds.items_max,
    }
    newest = connection.execute(_NEWEST, asked).first()
    if newest is None:
        raise NotKept(id_)
    if newest.status in UNFINISHED:
        raise StillRunning(id_)
    if not chainable(newest.status, newest.reason):
        raise NotChainable(newest.status)
    rows = connection.execute(_WALK, asked).all()
    if not rows:  # it was deleted a moment ago
        raise NotKept(id_)
    oldest = max(rows, key=_DEPTH)
    fit = [row for row in rows if row[_BYTES] <= bounds.bytes_max and row[_COUNT] <= bounds.items_max]
    said = [row for row in fit if row[0] is not None]
    said.sort(key=_SEQ)
    said.sort(key=_DEPTH, reverse=True)
    history = History(newest.root_id, [item_row(row) for row in said])
    if len(fit) < len(rows):
        return _short(history, bounds)
    if oldest.previous_id is not None:
        raise ChainBroken(id_)
    if oldest.conversation_id is None:
        return history
    if not _is_kept(connection, tenant, oldest.conversation_id):
        raise ChainBroken(id_)
    left = Bounds(bounds.items_max - oldest[_COUNT], bounds.bytes_max - oldest[_BYTES], bounds.truncate)
    seq = connection.execute(_BEGINNING, {"tenant": tenant, "id": oldest.turn}).scalar() or 0
    before = _said(connection, tenant, oldest.conversation_id, left, seq)
    return History(newest.root_id, [*before.items, *history.items], before.dropped)


def of_conversation(connection: Connection, tenant: str, id_: str, bounds: Bounds) -> History:
    """All that was said in a conversation."""
    if not _is_kept(connection, tenant, possible(id_)):
        raise NotKept(id_)
    return _said(connection, tenant, id_, bounds, _END)


def listed(connection: Connection, tenant: str, which: ColumnElement[bool], page: Page) -> Listed:
    """A page of these items of this tenant. Raises NotKept where the cursor is none of them."""
    mine = select(*ITEM).where(which, items.c.tenant == tenant)
    order = items.c.seq.desc() if page.descending else items.c.seq
    if page.after is not None:
        seq = connection.execute(mine.where(items.c.id == possible(page.after))).scalars(4).first()
        if seq is None:
            raise NotKept(page.after)
        mine = mine.where(items.c.seq < seq if page.descending else items.c.seq > seq)
    rows = connection.execute(mine.order_by(order).limit(page.limit + 1)).all()
    return Listed([item_row(row) for row in rows[: page.limit]], len(rows) > page.limit)


def _is_kept(connection: Connection, tenant: str, conversation_id: str) -> bool:
    return connection.execute(_CONVERSATION, {"tenant": tenant, "id": conversation_id}).first() is not None


def _said(connection: Connection, tenant: str, id_: str, bounds: Bounds, before: int) -> History:
    """What was said in a conversation before the item of this `seq`."""
    asked = {"tenant": tenant, "id": id_, "before": before, "items_max": bounds.items_max}
    rows = connection.execute(_SAID, asked).all()
    kept = [row for row in rows[: bounds.items_max] if row.total <= bounds.bytes_max]
    cut = rows[len(kept)].response_id if len(kept) < len(rows) else None
    while cut is not None and kept and kept[-1].response_id == cut:  # no turn is cut in two
        kept.pop()
    history = History(id_, [item_row(row) for row in reversed(kept)])
    return history if len(kept) == len(rows) else _short(history, bounds)


def _short(history: History, bounds: Bounds) -> History:
    if not bounds.truncate:
        raise TooLong
    return structs.replace(history, dropped=True)


def item_row(row: AnyRow) -> ItemRow:
    """A row that begins with ITEM, as a value."""
    return ItemRow(row[0], row[1].encode(), row[2], row[3], row[4])
