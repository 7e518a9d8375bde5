"""What was said before: the turns that a response builds upon, or the items of a conversation.

One statement brings all of them, however many turns there were. It walks from the newest back to the first,
and no further than may be remembered.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

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
    known = (
        there.id.label("turn"),
        there.previous_id,
        there.root_id,
        there.status,
        there.reason,
        there.conversation_id,
        there.conversation_seq,
    )
    first = select(*known, there.item_bytes.label("total"), literal(0).label("depth")).where(
        there.id == _ID, there.tenant == _TENANT
    )
    walk = first.cte("walk", recursive=True)
    further = select(*known, walk.c.total + there.item_bytes, walk.c.depth + 1).where(
        there.id == walk.c.previous_id,
        there.tenant == _TENANT,
        walk.c.total <= _BYTES_MAX,
        walk.c.depth < _ITEMS_MAX,
    )
    walk = walk.union_all(further)
    joined = walk.outerjoin(items, items.c.response_id == walk.c.turn)
    return (
        select(*ITEM, *walk.c).select_from(joined).order_by(walk.c.depth, items.c.seq).limit(_ITEMS_MAX + 1)
    )


_WALK = _walking()

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
_END = 2**62


def of_chain(connection: Connection, tenant: str, id_: str, bounds: Bounds) -> History:
    """What was said up to this response. Raises NotKept, ChainBroken, StillRunning, NotChainable, TooLong."""
    asked = {"tenant": tenant, "id": id_, "bytes_max": bounds.bytes_max, "items_max": bounds.items_max}
    rows = connection.execute(_WALK, asked).all()
    if not rows:
        raise NotKept(id_)
    newest = rows[0]
    if newest.status in UNFINISHED:
        raise StillRunning(id_)
    if not chainable(newest.status, newest.reason):
        raise NotChainable(newest.status)
    turns = [list(turn) for _, turn in groupby(rows, key=lambda row: row.depth)]
    kept, bytes_left = _fitting(turns, bounds)
    said = [item_row(row) for turn in reversed(kept) for row in turn if row[0] is not None]
    oldest = rows[-1]
    if len(kept) < len(turns) or oldest.total > bounds.bytes_max:
        return _short(newest.root_id, said, bounds)
    if oldest.previous_id is not None:
        raise ChainBroken(id_)
    if oldest.conversation_id is None:
        return History(newest.root_id, said)
    before = _said(
        connection,
        tenant,
        oldest.conversation_id,
        Bounds(bounds.items_max - len(said), bytes_left, bounds.truncate),
        oldest.conversation_seq,
    )
    return History(newest.root_id, [*before.items, *said], before.dropped)


def of_conversation(connection: Connection, tenant: str, id_: str, bounds: Bounds) -> History:
    """All that was said in a conversation."""
    if connection.execute(_CONVERSATION, {"tenant": tenant, "id": id_}).first() is None:
        raise NotKept(id_)
    return _said(connection, tenant, id_, bounds, _END)


def listed(connection: Connection, tenant: str, which: ColumnElement[bool], page: Page) -> Listed:
    """A page of these items of this tenant. Raises NotKept where the cursor is none of them."""
    mine = select(*ITEM).where(which, items.c.tenant == tenant)
    order = items.c.seq.desc() if page.descending else items.c.seq
    if page.after is not None:
        seq = connection.execute(mine.where(items.c.id == page.after)).scalars(4).first()
        if seq is None:
            raise NotKept(page.after)
        mine = mine.where(items.c.seq < seq if page.descending else items.c.seq > seq)
    rows = connection.execute(mine.order_by(order).limit(page.limit + 1)).all()
    return Listed([item_row(row) for row in rows[: page.limit]], len(rows) > page.limit)


def _said(connection: Connection, tenant: str, id_: str, bounds: Bounds, before: int) -> History:
    """What was said in a conversation before the item of this `seq`."""
    asked = {"tenant": tenant, "id": id_, "before": before, "items_max": bounds.items_max}
    rows = connection.execute(_SAID, asked).all()
    kept = [row for row in rows[: bounds.items_max] if row.total <= bounds.bytes_max]
    if len(kept) == len(rows):
        return History(id_, [item_row(row) for row in reversed(kept)])
    cut = rows[len(kept)].response_id
    while cut is not None and kept and kept[-1].response_id == cut:  # no turn is cut in two
        kept.pop()
    return _short(id_, [item_row(row) for row in reversed(kept)], bounds)


def _fitting(turns: list[list[AnyRow]], bounds: Bounds) -> tuple[list[list[AnyRow]], int]:
    """The newest turns that fit, and how many bytes would still."""
    kept: list[list[AnyRow]] = []
    counted, bytes_left = 0, bounds.bytes_max
    for turn in turns:
        counted += len(turn)
        if counted > bounds.items_max or turn[0].total > bounds.bytes_max:
            break
        bytes_left = bounds.bytes_max - turn[0].total
        kept.append(turn)
    return kept, bytes_left


def _short(root_id: str, said: list[ItemRow], bounds: Bounds) -> History:
    if not bounds.truncate:
        raise TooLong
    return History(root_id, said, dropped=True)


def item_row(row: AnyRow) -> ItemRow:
    """A row of ITEM, as a value."""
    id_, data, output, response_id, seq = row[:5]
    return ItemRow(id_, data.encode(), output, response_id, seq)
