"""Killed the hard way, in the middle of commits: what was said to be kept is kept, and nothing is by half."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest
from sqlalchemy import Connection, func, select

from maitred.store.rows import StoreError
from maitred.store.state import StateStore
from maitred.store.state_rows import COMPLETED, FAILED, RUNNING
from maitred.store.state_tables import items, responses
from maitred.store.store import Store
from tests.store.place import ALL, LEASE, end, kept, new, on_loop, remembering, turn
from tests.store.postgres import Postgres

ROOT = Path(__file__).parents[2]


def killed_after(url: str, salt: str, lines: int) -> list[tuple[str, str, int]]:
    """What a program said that kept turns, until it was killed after so many."""
    environ = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.store.dying", url, salt],
        stdout=subprocess.PIPE,
        env=environ,
        cwd=ROOT,
        text=True,
    )
    assert child.stdout is not None
    with child.stdout as said:
        heard = [said.readline() for _ in range(lines)]
        child.send_signal(signal.SIGKILL)
        heard += said.readlines()  # what it still said before it was dead
    assert child.wait() == -signal.SIGKILL
    return [
        (tenant, id_, int(turns))
        for tenant, id_, turns in (line.split() for line in heard if line[-1:] == "\n")
    ]


def halves(connection: Connection) -> list[str]:
    """Responses that have other items than they should."""
    counted = (
        select(items.c.response_id, func.count().label("there")).group_by(items.c.response_id).subquery()
    )
    there = func.coalesce(counted.c.there, 0)
    asked = (
        select(responses.c.id)
        .outerjoin(counted, counted.c.response_id == responses.c.id)
        .where((there != responses.c.item_count) | ((responses.c.status == COMPLETED) & (there != 2)))
    )
    return list(connection.execute(asked).scalars())


@pytest.mark.parametrize("lines", [3, 40])
def test_a_gateway_that_is_killed_leaves_whole_turns(url: str, lines: int) -> None:
    @on_loop
    async def prepare() -> None:
        store = Store.open(url)
        await store.upgrade()
        await store.close()

    @on_loop
    async def look() -> None:
        async with remembering(url) as state:
            assert await state._read("halves", halves) == []
            for tenant, id_, turns in told:
                history = await state.history(tenant, id_, ALL)
                assert len(history.items) == 2 * turns
            await state.sweep(LEASE + 1, 0)
            unfinished = select(responses.c.id).where(responses.c.status == RUNNING)
            assert await state._read("running", lambda c: c.execute(unfinished).all()) == []
            lost = select(func.count()).where(responses.c.status == FAILED)
            assert await state._read("lost", lambda c: c.execute(lost).scalar_one()) <= 4
            assert await state._read("halves", halves) == []
            await kept(state)

    prepare()
    told = killed_after(url, f"k{lines}", lines)
    assert len(told) >= lines
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as book:
            assert book.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    look()


async def keeps_on(state: StateStore, told: list[str], number: int) -> None:
    """Turn after turn, each written down once the store has said that it is kept."""
    with suppress(StoreError):
        while True:
            response = new(f"t{number}")
            if len(told) % 2:
                await state.begin(response, ALL, 0, 1)
                await state.finish(end(response, turn("q", "a")))
            else:
                await state.keep(response, end(response, turn("q", "a")))
            told.append(response.id)


def completed(connection: Connection) -> set[str]:
    return set(connection.execute(select(responses.c.id).where(responses.c.status == COMPLETED)).scalars())


@on_loop
async def test_a_server_that_is_killed_forgets_nothing_that_it_said_is_kept(server: Postgres) -> None:
    async with remembering(server.make("killed")) as state:
        told: list[str] = []
        for _ in range(3):
            before = len(told)
            running = [asyncio.create_task(keeps_on(state, told, number)) for number in range(6)]
            while len(told) < before + 30:
                await asyncio.sleep(0.001)
            await asyncio.to_thread(server.kill)
            await asyncio.gather(*running)
            await asyncio.to_thread(server.start)
            known = await state._read("kept", completed)
            assert set(told) <= known
            assert len(known) <= len(told) + 6 * 3
            assert await state._read("halves", halves) == []
