"""Seeing that the database answers: free while it does, and what has ended is noticed all the same."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from maitred.store.rows import StoreError
from maitred.store.state import StateStore
from maitred.store.store import Store
from tests.store import place
from tests.store.place import on_loop
from tests.store.postgres import Postgres


class Observed(list[str]):
    """The operations that were done, by name."""

    def __call__(self, operation: str, _seconds: float) -> None:
        self.append(operation)


@asynccontextmanager
async def remembering(url: str, observed: Observed) -> AsyncIterator[StateStore]:
    store = Store.open(url)
    await store.upgrade()
    state = StateStore(store, observed)
    await state.start()
    try:
        yield state
    finally:
        await state.close()
        await store.close()


@on_loop
async def test_what_answered_a_moment_ago_is_not_asked_again(url: str) -> None:
    observed = Observed()
    async with remembering(url, observed) as state:
        for _ in range(3):
            await state.check()
    assert observed == ["check"]


@on_loop
async def test_a_file_that_was_replaced_is_asked_again(tmp_path: Path) -> None:
    path, observed = tmp_path / "maitred.db", Observed()
    async with remembering(f"sqlite:///{path}", observed) as state:
        await state.check()
        path.rename(tmp_path / "away")
        path.touch()
        with pytest.raises(StoreError):
            await state.check()
    assert observed == ["check", "check"]


@on_loop
async def test_after_a_write_that_failed_what_can_only_be_read_is_not_enough(tmp_path: Path) -> None:
    path = tmp_path / "maitred.db"
    async with place.remembering(f"sqlite:///{path}", statement_s=0.05) as state:
        await state.seal()
        first = await place.kept(state)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError):
                await place.kept(state)
            assert (await state.response("a", first.id)).id == first.id
            with pytest.raises(StoreError):
                await state.check()
        await state.check()
        await place.kept(state)


@on_loop
async def test_a_server_that_was_killed_is_noticed_at_once_and_so_is_its_return(server: Postgres) -> None:
    observed = Observed()
    async with remembering(server.make("mortal"), observed) as state:
        await state.check()
        server.kill()
        for _ in range(2):
            with pytest.raises(StoreError):
                await state.check()
        server.start()
        await state.check()
    assert observed == ["check"] * 4
