"""What is on the disk before it is told: ends of turns, and not their beginnings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event

from maitred.store import turns
from maitred.store.connections import lanes
from maitred.store.store import Store
from tests.store.place import ALL, LEASE, NOW, end, new, on_loop, remembering, talk, turn
from tests.store.postgres import Postgres

OFF, ON = {"sqlite": "1", "postgresql": "off"}, {"sqlite": "2", "postgresql": "on"}


def level(connection: Connection) -> str:
    """How the commit of this transaction will be made."""
    shown = {"sqlite": "PRAGMA synchronous", "postgresql": "SHOW synchronous_commit"}
    return str(connection.exec_driver_sql(shown[connection.dialect.name]).scalar())


@on_loop
async def test_only_what_need_not_outlive_a_loss_of_power_is_told_before(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    levels: list[str] = []

    def noting(work: Callable[..., Any]) -> Callable[..., Any]:
        def noted(connection: Connection, *said: Any) -> Any:
            done = work(connection, *said)
            levels.append(level(connection))
            return done

        return noted

    monkeypatch.setattr(turns, "begin", noting(turns.begin))
    monkeypatch.setattr(turns, "finish", noting(turns.finish))
    async with remembering(url) as state:
        for _ in range(2):
            response = new(conversation_id=await talk(state))
            await state.begin(response, ALL, NOW, LEASE)
            await state.finish(end(response, turn("q", "a")))
    dialect = url.partition(":")[0]
    assert levels == [OFF[dialect], ON[dialect]] * 2


@on_loop
async def test_a_renewal_need_not_outlive_a_loss_of_power(url: str) -> None:
    response = new()

    def renewed(connection: Connection) -> tuple[set[str], str]:
        return turns.renew(connection, "m", [response.id], LEASE), level(connection)

    async with remembering(url):
        kept = lanes(Store.open(url).place, "test", 2)
        await kept.write(lambda c: turns.begin(c, "m", response, ALL, NOW, LEASE))
        done = await kept.write(renewed, durable=False)
        assert done == ({response.id}, OFF[url.partition(":")[0]])
        await kept.close()


@on_loop
async def test_a_file_may_be_said_to_be_worth_less(tmp_path: Path) -> None:
    kept = lanes(Store.open(f"sqlite:///{tmp_path}/maitred.db", full=False).place, "test", 2)
    assert kept.single is kept.writing
    levels = [await kept.write(level, durable=durable) for durable in (True, False, True)]
    assert levels == [OFF["sqlite"]] * 3
    await kept.close()


@on_loop
async def test_a_turn_goes_to_a_server_in_single_statements(server: Postgres) -> None:
    """Each is a trip; nothing is sent around them that begins or commits."""
    sent: list[bool] = []

    def told(_connection: Connection, cursor: Any, *_said: object) -> None:
        sent.append(cursor.connection.autocommit)

    async with remembering(server.make("trips")) as state:
        begun, kept = new(), new()
        event.listen(Engine, "before_cursor_execute", told)
        try:
            await state.keep(kept, end(kept, turn("q", "a")))
            assert sent == [True]
            await state.begin(begun, ALL, NOW, LEASE)
            await state.finish(end(begun, turn("q", "a")))
            assert sent == [True] * 3
        finally:
            event.remove(Engine, "before_cursor_execute", told)
