"""Statements whose text is made once."""

from __future__ import annotations

from sqlalchemy import bindparam, create_engine, select, update

from maitred.store.ready import Ready
from maitred.store.tables import accounts

MONTH = Ready(update(accounts).where(accounts.c.holder == bindparam("of")).values(month="2026-11"))
ADD = Ready(accounts.insert())


def row(holder: str) -> dict[str, object]:
    spent = {"day_tokens": 1, "month_tokens": 2, "day_money": 3, "month_money": 2**40}
    return {"holder": holder, "day": "2026-10-31", "month": "2026-10", **spent}


def test_it_is_done_with_its_own_values_and_with_those_given() -> None:
    engine = create_engine("sqlite://", paramstyle="named")
    with engine.begin() as connection:
        accounts.create(connection)
        ADD.do_each(connection, [row("a"), row("b")])
        ADD.do_each(connection, [])
        assert MONTH.do(connection, {"of": "a"}).rowcount == 1
        assert MONTH.do(connection, {"of": "c"}).rowcount == 0
        found = connection.execute(select(accounts).order_by(accounts.c.holder)).mappings().all()
        assert [dict(each) for each in found] == [row("a") | {"month": "2026-11"}, row("b")]
    engine.dispose()
