"""What is on the disk before it is told: ends of turns, and not their beginnings."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection

from maitred.store.connections import lanes
from maitred.store.lane import Lane
from maitred.store.store import Store
from tests.store.place import on_loop

OFF, ON = {"sqlite": "1", "postgresql": "off"}, {"sqlite": "2", "postgresql": "on"}


def level(connection: Connection) -> str:
    """How the commit of this transaction will be made."""
    shown = {"sqlite": "PRAGMA synchronous", "postgresql": "SHOW synchronous_commit"}
    return str(connection.exec_driver_sql(shown[connection.dialect.name]).scalar())


async def levels(lane: Lane) -> list[str]:
    """Of what must outlive a loss of power, of what need not, and of the former again."""
    return [await lane.submit(level, durable=durable) for durable in (True, False, True)]


@on_loop
async def test_only_what_need_not_outlive_a_loss_of_power_is_told_before(url: str) -> None:
    store = Store.open(url)
    reading, writing = lanes(store)
    dialect = url.partition(":")[0]
    assert await levels(writing) == [ON[dialect], OFF[dialect], ON[dialect]]
    reading.close()
    writing.close()
    await store.close()


@on_loop
async def test_a_file_may_be_said_to_be_worth_less(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/maitred.db", full=False)
    reading, writing = lanes(store)
    assert await levels(writing) == [OFF["sqlite"]] * 3
    reading.close()
    writing.close()
    await store.close()
