"""Charges in a real database: they add up, whoever writes them and however late."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from maitred.store.rows import Account
from maitred.store.store import ROWS_AT_ONCE, Store


def with_store(tmp_path: Path, work: Callable[[Store], Awaitable[None]]) -> None:
    async def main() -> None:
        store = Store.open(f"sqlite:///{tmp_path}/book")
        await store.prepare()
        await work(store)
        await store.close()

    asyncio.run(main())


def spent(day: str, tokens: int, money: int = 0, holder: str = "tenant a") -> Account:
    return Account(holder, day, day[:7], tokens, tokens, money, money)


def test_charges_add_up_and_a_new_period_begins_anew(tmp_path: Path) -> None:
    async def work(store: Store) -> None:
        steps = [
            (spent("2026-11-29", 1, 10), Account("tenant a", "2026-11-29", "2026-11", 1, 1, 10, 10)),
            (spent("2026-11-29", 2, 20), Account("tenant a", "2026-11-29", "2026-11", 3, 3, 30, 30)),
            (spent("2026-11-30", 4, 40), Account("tenant a", "2026-11-30", "2026-11", 4, 7, 40, 70)),
            (spent("2026-11-29", 8, 80), Account("tenant a", "2026-11-30", "2026-11", 4, 15, 40, 150)),
            (spent("2026-12-01", 16, 0), Account("tenant a", "2026-12-01", "2026-12", 16, 16, 0, 0)),
            (spent("2026-11-30", 32, 0), Account("tenant a", "2026-12-01", "2026-12", 16, 16, 0, 0)),
        ]
        for charge, row in steps:
            assert await store.charge([charge]) == [row]
        assert await store.accounts("2026-12") == [row]
        assert await store.accounts("2026-11") == []

    with_store(tmp_path, work)


def test_many_at_once(tmp_path: Path) -> None:
    async def work(store: Store) -> None:
        charges = [spent("2026-11-29", 5, holder=f"key {number}") for number in range(2 * ROWS_AT_ONCE + 1)]
        for total in (5, 10):
            rows = await store.charge(charges)
            assert {row.holder for row in rows} == {charge.holder for charge in charges}
            assert {row.day_tokens for row in rows} == {total}
        assert len(await store.accounts("2026-11")) == len(charges)
        assert await store.charge([]) == []

    with_store(tmp_path, work)


def test_two_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    async def work(store: Store) -> None:
        charges = [spent("2026-11-29", 1, holder=f"key {number}") for number in range(9)]
        await asyncio.gather(*(store.charge(charges) for _ in range(8)))
        assert {row.month_tokens for row in await store.accounts("2026-11")} == {8}

    with_store(tmp_path, work)
