"""How much each tenant has in the store."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, LargeBinary, Table, cast, func, select

from maitred.store.state_rows import TableStats
from maitred.store.state_tables import conversations, events, items, jobs, responses

_CONTENT = {
    conversations: conversations.c.metadata,
    items: items.c.data,
    responses: responses.c.snapshot,
    jobs: jobs.c.request,
    events: events.c.data,
}


def stats(connection: Connection) -> list[TableStats]:
    """Rows and bytes of content by table and tenant. It reads whole tables."""
    found: list[TableStats] = []
    for table, content in _CONTENT.items():
        tenant = table.c.tenant
        size = func.coalesce(func.sum(_size(connection, table, content)), 0)
        asked = select(tenant, func.count(), size).group_by(tenant).order_by(tenant)
        found += [TableStats(str(table.name), *row) for row in connection.execute(asked)]
    return found


def _size(connection: Connection, table: Table, content: ColumnElement[Any]) -> ColumnElement[Any]:
    if table is items:
        return items.c.bytes
    if connection.dialect.name == "sqlite":  # whose length of a text is in characters
        return func.length(cast(content, LargeBinary))
    return func.octet_length(content)
