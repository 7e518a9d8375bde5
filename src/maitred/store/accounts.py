"""Accounts, on a connection. Several gateways add to them, so nobody ever writes a total."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs
from sqlalchemy import ColumnElement, Connection, case, delete, select
from sqlalchemy.sql.dml import ReturningInsert

from maitred.store.dialects import insertion
from maitred.store.rows import Account
from maitred.store.tables import accounts

ROWS_AT_ONCE = 250


def spent(connection: Connection, month: str) -> list[Account]:
    """What everybody has spent in this month, and in the last day of it that he spent in."""
    asked = select(accounts).where(accounts.c.month == month)
    return [Account(**row) for row in connection.execute(asked).mappings()]


def charge(connection: Connection, charges: Sequence[Account]) -> list[Account]:
    """Add these to what is there, and tell what is there now. No holder may be twice."""
    added = _charging(connection.dialect.name)
    found: list[Account] = []
    for start in range(0, len(charges), ROWS_AT_ONCE):
        rows = [structs.asdict(charge) for charge in charges[start : start + ROWS_AT_ONCE]]
        found += [Account(**row) for row in connection.execute(added, rows).mappings()]
    return found


def prune(connection: Connection, before: str) -> bool:
    """Delete accounts of months before this one, some at a time; whether there may be more of them.

    Rows that somebody is charging are passed by: so neither waits for the other's.
    """
    old = accounts.alias()
    found = select(old.c.holder).where(old.c.month < before).limit(ROWS_AT_ONCE)
    pruned = delete(accounts).where(accounts.c.holder.in_(found.with_for_update(skip_locked=True)))
    return connection.execute(pruned).rowcount >= ROWS_AT_ONCE


def _charging(dialect: str) -> ReturningInsert[tuple[object, ...]]:
    """The insertion of charges: onto what is there of their day and month, and giving what is there then.

    Charges of a later period begin it anew; those of an earlier one, written late, leave the newer as it is.
    """
    insert = insertion(accounts, dialect)
    there, new = accounts.c, insert.excluded

    def grown(period: str, amount: str) -> ColumnElement[int]:
        return case(
            (new[period] == there[period], there[amount] + new[amount]),
            (new[period] > there[period], new[amount]),
            else_=there[amount],
        )

    def latest(period: str) -> ColumnElement[str]:
        return case((new[period] > there[period], new[period]), else_=there[period])

    grown_by = {
        f"{period}_{unit}": grown(period, f"{period}_{unit}")
        for period in ("day", "month")
        for unit in ("tokens", "money")
    }
    values = {"day": latest("day"), "month": latest("month"), **grown_by}
    return insert.on_conflict_do_update(index_elements=["holder"], set_=values).returning(accounts)
