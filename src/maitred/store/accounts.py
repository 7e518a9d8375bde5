"""The one statement by which accounts grow. Several gateways add to them, so nobody ever writes a total."""

from __future__ import annotations

from sqlalchemy import ColumnElement, case
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import ReturningInsert

from maitred.store.tables import accounts


def charging(insert: sqlite.Insert | postgresql.Insert) -> ReturningInsert[tuple[object, ...]]:
    """The insertion of charges: onto what is there of their day and month, and giving what is there then.

    Charges of a later period begin it anew; those of an earlier one, written late, leave the newer as it is.
    """
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
