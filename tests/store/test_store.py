"""The store on both databases: what is kept comes back, and what goes wrong is one error with a reason."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, inspect
from sqlalchemy.engine import Inspector

from maitred.core.limits import Limits
from maitred.store import schema, state_tables, tables
from maitred.store.connections import AGAIN_S
from maitred.store.rows import Account, KeyRow, SchemaError, StoreError
from maitred.store.store import Store
from tests.store.place import on_loop
from tests.store.postgres import Postgres

KEY = KeyRow("a1", b"x" * 32, "support", 1)
FULL = KeyRow(
    id="b2",
    digest=bytes(range(32)),
    tenant="nächtlich",
    created_ms=2**40,
    models=("m", "n"),
    bands=("chat",),
    may_set=("band", "slo"),
    limits=Limits(requests_per_min=5, money_per_month=2 * 10**15),
    expires_ms=2**41,
    note="a note",
)


def charge(day: str, tokens: int, money: int = 0, holder: str = "tenant a") -> Account:
    return Account(holder, day, day[:7], tokens, tokens, money, money)


class Opened:
    """A store, upgraded, for the time of a test."""

    def __init__(self, url: str) -> None:
        self._store = Store.open(url)

    async def __aenter__(self) -> Store:
        await self._store.upgrade()
        await self._store.prepare()
        return self._store

    async def __aexit__(self, *_: object) -> None:
        await self._store.close()


@on_loop
async def test_keys_come_back_as_they_were_given(url: str) -> None:
    async with Opened(url) as store:
        await store.add_key(FULL)
        await store.add_key(KEY)
        assert await store.keys() == [KEY, FULL]
    async with Opened(url) as store:
        assert await store.keys() == [KEY, FULL]
        assert "x" * 8 not in repr(KEY)


@on_loop
async def test_a_key_is_kept_once(url: str) -> None:
    async with Opened(url) as store:
        await store.add_key(KEY)
        for same in (KeyRow("other", KEY.digest, "t", 2), KeyRow(KEY.id, b"y" * 32, "t", 2)):
            with pytest.raises(StoreError, match="this key is there already"):
                await store.add_key(same)
        assert await store.keys() == [KEY]


@on_loop
async def test_a_key_is_revoked_once_and_the_mark_tells(url: str) -> None:
    async with Opened(url) as store:
        marks = [await store.mark()]
        await store.add_key(KEY)
        marks.append(await store.mark())
        assert await store.revoke_key("a1", 7)
        marks.append(await store.mark())
        assert not await store.revoke_key("a1", 8)
        assert not await store.revoke_key("nobody", 8)
        assert await store.mark() == marks[-1]
        assert len(set(marks)) == 3
        assert [key.revoked_ms for key in await store.keys()] == [7]


@on_loop
async def test_charges_add_up_and_a_new_period_begins_anew(url: str) -> None:
    steps = [
        (charge("2026-11-29", 1, 10), Account("tenant a", "2026-11-29", "2026-11", 1, 1, 10, 10)),
        (charge("2026-11-29", 2, 20), Account("tenant a", "2026-11-29", "2026-11", 3, 3, 30, 30)),
        (charge("2026-11-30", 4, 40), Account("tenant a", "2026-11-30", "2026-11", 4, 7, 40, 70)),
        (charge("2026-11-29", 8, 80), Account("tenant a", "2026-11-30", "2026-11", 4, 15, 40, 150)),
        (charge("2026-12-01", 16, 0), Account("tenant a", "2026-12-01", "2026-12", 16, 16, 0, 0)),
        (charge("2026-11-30", 32, 0), Account("tenant a", "2026-12-01", "2026-12", 16, 16, 0, 0)),
    ]
    async with Opened(url) as store:
        for charged, there in steps:
            assert await store.charge([charged]) == [there]
    async with Opened(url) as store:
        assert await store.accounts("2026-12") == [there]
        assert await store.accounts("2026-11") == []


@on_loop
async def test_many_charges_are_written_in_parts(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maitred.store.accounts.ROWS_AT_ONCE", 10)
    charges = [charge("2026-11-29", 5, holder=f"key {number:02}") for number in range(25)]
    async with Opened(url) as store:
        for total in (5, 10):
            there = await store.charge(charges)
            assert [row.holder for row in there] == [row.holder for row in charges]
            assert {row.day_tokens for row in there} == {total}
        assert len(await store.accounts("2026-11")) == 25
        assert await store.charge([]) == []


@on_loop
async def test_gateways_that_charge_at_once_lose_nothing(url: str) -> None:
    charges = [charge("2026-11-29", 1, holder=f"key {number}") for number in range(9)]
    async with Opened(url) as store:
        await asyncio.gather(*(store.charge(charges) for _ in range(8)))
        assert {row.month_tokens for row in await store.accounts("2026-11")} == {8}


@on_loop
async def test_accounts_of_months_over_are_deleted_in_parts(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maitred.store.accounts.ROWS_AT_ONCE", 10)
    async with Opened(url) as store:
        await store.charge([charge("2026-09-30", 5, holder=f"key {number:02}") for number in range(25)])
        kept = [charge("2026-10-01", 5, holder="key 25"), charge("2026-11-01", 5, holder="key 26")]
        await store.charge(kept)
        assert [await store.prune("2026-10") for _ in range(4)] == [True, True, False, False]
        assert [await store.accounts(f"2026-{month:02}") for month in (9, 10, 11)] == [
            [],
            *([row] for row in kept),
        ]


@on_loop
async def test_who_prunes_and_who_charges_do_not_wait_for_each_other(server: Postgres) -> None:
    async with Opened(server.make("pruned")) as store:
        await store.charge([charge("2026-09-30", 5, holder=holder) for holder in ("key a", "key b")])
        with psycopg.connect(server.url("pruned")) as holder:
            holder.execute("UPDATE accounts SET month = '2026-11' WHERE holder = 'key a'")
            assert not await store.prune("2026-10")
        assert [row.holder for row in await store.accounts("2026-11")] == ["key a"]
        assert await store.accounts("2026-09") == []


@on_loop
async def test_upgrading_again_changes_nothing_and_two_may_do_it_at_once(bare: str) -> None:
    stores = [Store.open(bare) for _ in range(3)]
    versions = await asyncio.gather(*(store.upgrade() for store in stores))
    assert versions == [schema.newest()] * 3
    await stores[0].add_key(KEY)
    await stores[1].upgrade()
    assert await stores[2].keys() == [KEY]
    for store in stores:
        await store.close()


@on_loop
async def test_a_new_file_that_others_write_to_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite says at once that it is locked, not after its timeout, where it would change how it logs."""
    path = tmp_path / "maitred.db"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        waits: list[float] = []

        def over(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 2:
                other.rollback()

        clock = SimpleNamespace(monotonic=time.monotonic, sleep=over)
        monkeypatch.setattr("maitred.store.connections.time", clock)
        async with Opened(f"sqlite:///{path}") as store:
            assert await store.keys() == []
        assert len(waits) == 2


@on_loop
async def test_a_new_file_is_not_waited_for_longer_than_a_statement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "maitred.db"
    waits: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: sum(waits), sleep=waits.append)
    monkeypatch.setattr("maitred.store.connections.time", clock)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        store = Store.open(f"sqlite:///{path}", statement_s=0.5)
        with pytest.raises(StoreError, match="database is locked"):
            await store.prepare()
        await store.close()
    assert sum(waits) == pytest.approx(0.5, abs=2 * AGAIN_S)


def test_versions_are_those_of_the_migrations() -> None:
    scripts = ScriptDirectory(str(schema.MIGRATIONS))
    assert schema.newest() == scripts.get_current_head()
    assert sorted(script.revision for script in scripts.walk_revisions()) == schema.VERSIONS


OPENED = """
import asyncio, sys
from maitred.store.store import Store

async def opened():
    store = Store.open(sys.argv[1])
    await store.prepare()
    await store.close()

asyncio.run(opened())
print("alembic" in sys.modules)
"""


def test_what_is_of_this_version_already_is_opened_without_alembic(tmp_path: Path) -> None:
    def opened() -> str:
        said = [sys.executable, "-c", OPENED, f"sqlite:///{tmp_path}/maitred.db"]
        return subprocess.run(said, check=True, capture_output=True, text=True).stdout.strip()

    assert [opened(), opened()] == ["True", "False"]


@on_loop
async def test_the_tables_are_those_that_migrations_make(bare: str) -> None:
    def columns(inspector: Inspector) -> dict[str, object]:
        return {
            table: (
                [(c["name"], str(c["type"]), c["nullable"]) for c in inspector.get_columns(table)],
                sorted((i["name"], i["column_names"], i["unique"]) for i in inspector.get_indexes(table)),
            )
            for table in tables.metadata.tables
        }

    assert state_tables.items.metadata is tables.metadata
    async with Opened(bare) as store:
        there = create_engine(store.place.url)
        made = columns(inspect(there))
        there.dispose()
    written = create_engine("sqlite://") if store.place.is_file else create_engine(store.place.url)
    with written.begin() as plain:
        tables.metadata.drop_all(plain)
        tables.metadata.create_all(plain)
        assert columns(inspect(plain)) == made
    written.dispose()


# -- what goes wrong ----------------------------------------------------------------------------------


@on_loop
async def test_an_older_postgresql_is_not_upgraded_behind_anybodys_back(server: Postgres) -> None:
    store = Store.open(server.make("old"))
    with pytest.raises(SchemaError, match="are not made yet; run maitred db upgrade"):
        await store.prepare()
    await store.upgrade()
    await store.prepare()
    await store.close()


@on_loop
async def test_tables_of_a_later_program_are_left_alone(bare: str) -> None:
    async with Opened(bare) as store:
        later = create_engine(store.place.url)
        with later.begin() as connection:
            connection.exec_driver_sql("UPDATE maitred_version SET version_num = '9999'")
        later.dispose()
        for doing in (store.prepare, store.upgrade):
            with pytest.raises(SchemaError, match="of a later maitred"):
                await doing()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "maitred.db",
        "mysql://u:canary-pw@h/d",
        "sqlite://",
        "sqlite:///:memory:",
        "postgresql://h",
        "postgresql://h:port:canary-pw/d",
    ],
)
def test_a_url_that_is_none_is_told_without_repeating_it(url: str) -> None:
    with pytest.raises(StoreError, match="write sqlite:///PATH or postgresql://") as caught:
        Store.open(url)
    assert "canary" not in str(caught.value)


@on_loop
async def test_a_database_that_is_away_is_told_with_the_reason(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/nowhere/m.db")
    with pytest.raises(StoreError, match=r"nowhere/m\.db: unable to open database file"):
        await store.prepare()
    await store.close()
    store = Store.open("postgresql://me:canary-pw@127.0.0.1:1/m")
    for doing in (
        store.prepare,
        store.keys,
        store.mark,
        lambda: store.add_key(KEY),
        lambda: store.accounts("2026-11"),
    ):
        with pytest.raises(StoreError, match=r"^postgresql at 127.0.0.1: .*refused") as caught:
            await doing()
        assert "canary" not in str(caught.value)
    await store.close()


@on_loop
async def test_a_file_that_somebody_holds_is_waited_for_and_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maitred.store.place.STATEMENT_S", 0.05)
    async with Opened(f"sqlite:///{tmp_path}/m.db") as store:
        await store.add_key(KEY)
        holder = sqlite3.connect(tmp_path / "m.db", isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        assert await store.keys() == [KEY]  # who reads need not wait
        with pytest.raises(StoreError, match="database is locked"):
            await store.revoke_key(KEY.id, 1)
        holder.close()
        assert await store.revoke_key(KEY.id, 1)


@on_loop
async def test_a_file_that_is_put_in_place_of_a_bad_one_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    async with Opened(f"sqlite:///{path}") as store:
        await store.add_key(KEY)
    path.rename(tmp_path / "good.db")
    path.write_bytes(b"no database" * 1000)
    store = Store.open(f"sqlite:///{path}")
    with pytest.raises(StoreError, match="file is not a database"):
        await store.keys()
    (tmp_path / "good.db").rename(path)
    assert await store.keys() == [KEY]
    await store.close()


@on_loop
async def test_what_takes_too_long_is_given_up(server: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maitred.store.place.STATEMENT_S", 0.05)
    async with Opened(server.make("slow")) as store:
        with psycopg.connect(server.url("slow")) as holder:
            holder.execute("LOCK TABLE keys")
            with pytest.raises(StoreError, match="due to statement timeout"):
                await store.mark()
        assert await store.keys() == []


@on_loop
async def test_a_connection_that_died_is_replaced(server: Postgres) -> None:
    async with Opened(server.make("dying")) as store:
        await store.add_key(KEY)
        server.kill()
        with pytest.raises(StoreError):
            await store.keys()
        server.start()
        assert await store.keys() == [KEY]


@on_loop
async def test_a_file_that_was_deleted_is_an_error_until_the_next_start_makes_it_anew_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "maitred.store")
    url = f"sqlite:///{tmp_path}/kept.db"
    async with Opened(url) as store:
        await store.add_key(KEY)
        (tmp_path / "kept.db").unlink()
        with pytest.raises(StoreError, match="no such table"):
            await store.mark()
    caplog.clear()
    async with Opened(url) as store:
        assert await store.keys() == []
    async with Opened(url):
        assert caplog.messages == [f"{url} is new: there are no keys and no accounts in it"]
