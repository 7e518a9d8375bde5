"""How rows are written: a response's and those of its items in two statements, on a PostgreSQL in one.

There each statement is a trip over the network, and one that stands alone needs no others to begin and to
commit it. A file is near, and knows no statement that writes to two tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from sqlalchemy import (
    ARRAY,
    Boolean,
    Connection,
    Select,
    String,
    Table,
    Text,
    bindparam,
    func,
    select,
    true,
)
from sqlalchemy.sql.dml import ReturningInsert, ReturningUpdate

from maitred.store.dialects import insertion
from maitred.store.ready import Ready
from maitred.store.state_rows import Finish, NewItem
from maitred.store.state_tables import events, items, responses

SERVER = "postgresql"
"""The dialect of a database that is not a file."""

Returning: TypeAlias = ReturningInsert[Any] | ReturningUpdate[Any]


def _new(table: Table, dialect: str) -> ReturningInsert[Any]:
    return insertion(table, dialect).on_conflict_do_nothing().returning(*table.primary_key)


_INSERT_NEW = {table.name: Ready(partial(_new, table)) for table in (responses, events)}
PASSING = func.set_config("synchronous_commit", "off", True)
"""What a statement returns on a PostgreSQL, where a loss of power may undo the transaction."""
_INSERT_PASSING = Ready(lambda dialect: _new(responses, dialect).returning(PASSING))
_INSERT_ITEMS = Ready(items.insert())


def insert_new(
    connection: Connection, table: Table, row: dict[str, object], *, passing: bool = False
) -> bool:
    """Insert a row; False where one like it is there. `passing`: a loss of power may undo it."""
    passing = passing and connection.dialect.name == SERVER
    statement = _INSERT_PASSING if passing else _INSERT_NEW[table.name]
    return statement.do(connection, row).first() is not None


def insert_items(
    connection: Connection, tenant: str, new: Sequence[NewItem], seq: int, **owner: str | None
) -> None:
    """Insert items, one after the other from this place on; `owner`: `response_id`, `conversation_id`."""
    rows = [
        {
            "id": item.id,
            "tenant": tenant,
            "response_id": owner.get("response_id"),
            "conversation_id": owner.get("conversation_id"),
            "seq": place,
            "output": item.output,
            "bytes": len(item.data),
            "data": item.data.decode(),
        }
        for place, item in enumerate(new, seq)
    ]
    _INSERT_ITEMS.do_each(connection, rows)


class Change(NamedTuple):
    """What is done to the row of a response: by itself, and with its items added where there was one."""

    alone: Ready
    with_items: Ready


def _with_items(change: Returning) -> Select[Any]:
    changed = change.cte("changed")
    said = (
        func.unnest(
            bindparam("item_ids", type_=ARRAY(Text)),
            bindparam("item_outputs", type_=ARRAY(Boolean)),
            bindparam("item_data", type_=ARRAY(Text)),
        )
        .table_valued("id", "output", "data", with_ordinality="place")
        .render_derived()
    )
    rows = select(
        said.c.id,
        bindparam("item_tenant", type_=String),
        changed.c.id,
        bindparam("item_conversation", type_=String),
        said.c.place + bindparam("item_before"),
        said.c.output,
        func.octet_length(said.c.data),
        said.c.data,
    ).select_from(changed.join(said, true()))
    added = items.insert().from_select([column.name for column in items.c], rows).cte("added")
    return select(changed.c.id).add_cte(added)


def inserting() -> Change:
    """A new row; nothing where one like it is there."""
    named = {column.name: bindparam(column.name, type_=column.type) for column in responses.c}
    with_items = Ready(lambda dialect: _with_items(_new(responses, dialect).values(named)))
    return Change(_INSERT_NEW[responses.name], with_items)


def updating(update: ReturningUpdate[Any]) -> Change:
    """A row as it becomes, where it is as it should be."""
    return Change(Ready(update), Ready(_with_items(update)))


def write(
    connection: Connection,
    change: Change,
    values: dict[str, object],
    end: Finish,
    *,
    conversation_id: str | None = None,
    seq: int = 0,
) -> bool:
    """Do this to the row of a response, and add its items from this place on; False where there was none."""
    if connection.dialect.name != SERVER:
        there = change.alone.do(connection, values).first() is not None
        if there:
            owner = {"response_id": end.id, "conversation_id": conversation_id}
            insert_items(connection, end.tenant, end.items, seq, **owner)
        return there
    said = {
        "item_tenant": end.tenant,
        "item_conversation": conversation_id,
        "item_before": seq - 1,
        "item_ids": [item.id for item in end.items],
        "item_outputs": [item.output for item in end.items],
        "item_data": [item.data.decode() for item in end.items],
    }
    return change.with_items.do(connection, values | said).first() is not None
