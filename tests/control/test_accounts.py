"""Accounts outlive the process, add up over several gateways, and wait for a book that is away."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from maitred.control.accounts import DAY_S, DAYS_MAX, READ_S, Accountant, AccountBook, periods_at
from maitred.core.holders import Party
from maitred.core.limiter import Limiter
from maitred.core.limits import FREE, Accounts, Limits, Periods, Price, Spent
from maitred.core.outcome import Outcome, Refusal
from maitred.core.words import Usage
from maitred.net import virtual
from maitred.observe.findings import Findings
from maitred.store.rows import Account, SchemaError, StoreError
from maitred.store.store import Store

NAME = "tenant team-a"
LIMITS = Limits(tokens_per_day=1000, tokens_per_month=5000)
PRICE = Price(prompt=1_000_000, output=1_000_000)
NOON = datetime(2026, 11, 29, 12, tzinfo=UTC).timestamp()


class Memory:
    """A book without a database."""

    def __init__(self) -> None:
        self.rows: dict[str, Account] = {}
        self.away = False
        self.asked_to_prune: list[str] = []

    async def prepare(self) -> None:
        await self._ask()

    async def accounts(self, month: str) -> Sequence[Account]:
        return [row for row in self.rows.values() if row.month == month]

    async def charge(self, charges: Sequence[Account]) -> Sequence[Account]:
        await self._ask()
        for new in charges:
            old = self.rows.get(new.holder, Account(new.holder, "", ""))
            day, month = old.day == new.day, old.month == new.month
            self.rows[new.holder] = Account(
                new.holder,
                new.day,
                new.month,
                new.day_tokens + day * old.day_tokens,
                new.month_tokens + month * old.month_tokens,
                new.day_money + day * old.day_money,
                new.month_money + month * old.month_money,
            )
        return [self.rows[new.holder] for new in charges]

    async def prune(self, before: str) -> bool:
        self.asked_to_prune.append(before)
        old = [name for name, row in self.rows.items() if row.month < before]
        for name in old[:1]:
            del self.rows[name]
        return bool(old)

    async def _ask(self) -> None:
        await asyncio.sleep(0)
        if self.away:
            raise StoreError("nowhere: gone")


class Gate:
    """One gateway's limiter and accountant; `now` is both clocks, from NOON on."""

    def __init__(self, book: AccountBook | None, now: float = 0.0) -> None:
        self.now = now
        self.limiter = Limiter()
        self.told: list[Periods | Accounts] = []
        self.findings = Findings()
        self.accountant = Accountant(
            book,
            self.limiter.charged,
            self._update,
            self.findings,
            lambda: self.now,
            lambda: NOON + self.now,
        )

    def _update(self, change: Periods | Accounts) -> None:
        self.told.append(change)
        if isinstance(change, Periods):
            self.limiter.follow(change)
        else:
            self.limiter.add(change, self.now)

    def work(self) -> None:
        asyncio.run(self.accountant.work())

    def spend(self, tokens: int, name: str = NAME) -> None:
        hold = self.limiter.take(Party([(name, LIMITS)]), tokens, 0, PRICE, self.now)
        assert hold is not None
        self.limiter.settle(hold, Usage(tokens, 0, 0), now=self.now)

    def refuses(self, tokens: int) -> bool:
        try:
            hold = self.limiter.take(Party([(NAME, LIMITS)]), tokens, 0, FREE, self.now)
        except Refusal as refusal:
            return refusal.outcome is Outcome.QUOTA_SPENT
        assert hold is not None
        self.limiter.settle(hold, None, self.now)
        return False

    @property
    def spent(self) -> Spent:
        return self.limiter.spent(NAME)


def test_the_calendar() -> None:
    noon = datetime(2026, 12, 31, 12, tzinfo=UTC).timestamp()
    periods = periods_at(noon, 100.0)
    assert periods == Periods(20_818, 2026 * 12 + 11, 100.0 + DAY_S / 2, 100.0 + DAY_S / 2)
    after = periods_at(noon + DAY_S, 100.0 + DAY_S)
    assert (after.day, after.month) == (20_819, 2027 * 12)
    assert after.month_ends_at == 100.0 + DAY_S / 2 + 31 * DAY_S


def test_what_was_spent_outlives_the_process() -> None:
    book = Memory()
    first = Gate(book)
    first.work()
    first.spend(900)
    first.work()
    first.spend(40)  # and then it is killed
    second = Gate(book)
    second.work()
    assert second.spent == Spent(900, 900, 900, 900)
    assert second.refuses(101)
    assert not second.refuses(100)


def test_several_gateways_add_up() -> None:
    book = Memory()
    one, two = Gate(book), Gate(book)
    for gate in (one, two):
        gate.work()
    for _ in range(3):
        one.spend(100)
        two.spend(200)
        one.work()
        two.work()
    assert two.spent == Spent(900, 900, 900, 900)
    assert one.spent.tokens_per_day == 700  # the last 200 were written after it last asked
    one.spend(50)
    one.work()
    assert one.spent == Spent(950, 950, 950, 950)
    assert book.rows[NAME].day_tokens == 950


def test_what_others_spend_is_learned_after_a_while_by_who_charges_nothing() -> None:
    book = Memory()
    one, two = Gate(book), Gate(book)
    for gate in (one, two):
        gate.work()
    one.spend(500)
    one.work()
    two.now = READ_S - 1
    two.work()
    assert two.spent == Spent()
    two.now = READ_S
    two.work()
    assert two.spent == Spent(500, 500, 500, 500)
    two.spend(100)
    two.now = 2 * READ_S  # read and written in one go: nothing is counted twice
    two.work()
    assert two.spent == Spent(600, 600, 600, 600)


def test_nothing_is_written_or_told_while_nothing_moves() -> None:
    book = Memory()
    gate = Gate(book)
    gate.work()
    gate.spend(100)
    gate.work()
    told = len(gate.told)
    book.rows.clear()
    gate.now = 10.0
    gate.work()
    assert not book.rows
    assert len(gate.told) == told == 1


def test_charges_wait_for_a_book_that_is_away() -> None:
    book = Memory()
    gate = Gate(book)
    book.away = True
    for _ in range(2):
        gate.work()
        gate.spend(100)
    assert [finding.kind for finding in gate.findings.current()] == ["accounts_unwritten"]
    assert gate.spent.tokens_per_day == 200
    book.away = False
    book.rows[NAME] = Account(NAME, "2026-11-29", "2026-11", 500, 600, 7, 8)
    gate.work()
    assert gate.findings.current() == []
    assert gate.spent == Spent(700, 800, 207, 208)
    assert book.rows[NAME].day_tokens == 700


def test_what_waits_is_bounded() -> None:
    book = Memory()
    gate = Gate(book)
    book.away = True
    for day in range(DAYS_MAX + 2):
        gate.now = float(day * DAY_S)
        gate.work()
        gate.spend(100)
    book.away = False
    gate.work()
    assert book.rows[NAME].month_tokens == 100 * DAYS_MAX  # of November 29th and 30th it has none


def test_a_day_and_a_month_end() -> None:
    book = Memory()
    gate = Gate(book)
    gate.work()
    gate.spend(1000)
    gate.work()
    gate.now = DAY_S / 2 - 0.5
    assert gate.refuses(1)
    gate.now = DAY_S / 2 + 0.5  # the 30th, of which nobody has told the core
    gate.spend(300)
    gate.work()
    assert gate.spent == Spent(300, 1300, 300, 1300)
    gate.now += DAY_S
    gate.work()
    assert gate.spent == Spent()
    gate.spend(100)
    gate.work()
    assert gate.spent == Spent(100, 100, 100, 100)
    assert book.rows[NAME] == Account(NAME, "2026-12-01", "2026-12", 100, 100, 100, 100)


def test_accounts_of_months_long_over_are_deleted_a_part_each_period() -> None:
    book = Memory()
    for number, month in enumerate(("2026-08", "2026-09", "2026-10", "2026-11")):
        book.rows[f"key {number}"] = Account(f"key {number}", f"{month}-28", month, 5, 5)
    gate = Gate(book)
    for left in (3, 2, 2, 2):
        gate.work()
        assert len(book.rows) == left
    assert book.asked_to_prune == ["2026-10"] * 3  # and not again in this month
    gate.now = DAY_S * 2
    for _ in range(3):
        gate.work()
    assert list(book.rows) == ["key 3"]
    assert book.asked_to_prune[3:] == ["2026-11"] * 2


def test_a_clock_put_back_repeats_no_day() -> None:
    book = Memory()
    gate = Gate(book)
    gate.now = DAY_S / 2
    gate.work()
    gate.spend(100)
    gate.now -= 1.0
    gate.work()
    gate.now += 1.0
    gate.work()
    assert gate.spent == Spent(100, 100, 100, 100)
    assert sum(isinstance(change, Periods) for change in gate.told) == 1
    assert book.rows[NAME].day == "2026-11-30"


def test_without_a_book_days_end_all_the_same() -> None:
    gate = Gate(None)
    for now in (0.0, DAY_S / 2):
        gate.now = now
        gate.work()
        gate.spend(700)
    assert gate.spent == Spent(700, 1400, 700, 1400)
    assert gate.findings.current() == []


def test_tables_of_another_version_stop_the_start() -> None:
    class Old(Memory):
        async def prepare(self) -> None:
            raise SchemaError("run maitred db upgrade")

    with pytest.raises(SchemaError):
        asyncio.run(Gate(Old()).accountant.start())
    book = Memory()
    book.away = True
    asyncio.run(Gate(book).accountant.start())


def test_it_works_each_period() -> None:
    async def main() -> None:
        book = Memory()
        gate = Gate(book)
        await gate.accountant.start()
        loop = asyncio.create_task(gate.accountant.run())
        await asyncio.sleep(0.5)
        gate.spend(100)
        await asyncio.sleep(1.0)
        assert not book.rows
        await asyncio.sleep(1.0)
        assert book.rows[NAME].day_tokens == 100
        loop.cancel()

    virtual.run(main())


def test_what_is_being_written_when_it_ends_is_not_written_twice() -> None:
    class Slow(Memory):
        async def charge(self, charges: Sequence[Account]) -> Sequence[Account]:
            rows = await super().charge(charges)
            await asyncio.sleep(1)
            return rows

    async def main() -> None:
        book = Slow()
        gate = Gate(book)
        await gate.accountant.start()
        gate.spend(100)
        loop = asyncio.create_task(gate.accountant.run())
        await asyncio.sleep(gate.accountant.period_s + 0.5)
        loop.cancel()
        gate.spend(10)
        await gate.accountant.work()
        assert book.rows[NAME].day_tokens == 110

    virtual.run(main())


def test_in_a_database(tmp_path: Path) -> None:
    spent = []

    async def live() -> None:
        store = Store.open(f"sqlite:///{tmp_path}/book")
        gate = Gate(store)
        await gate.accountant.work()
        gate.spend(300)
        await gate.accountant.work()
        spent.append(gate.spent.tokens_per_day)
        await store.close()

    asyncio.run(live())
    asyncio.run(live())
    assert spent == [300, 600]


@pytest.mark.parametrize(
    ("days", "today", "spent"),
    [
        (1, 0, Spent(0, 100, 0, 100)),
        (1, 10, Spent(10, 110, 10, 110)),
        (2, 0, Spent()),
        (2, 10, Spent(10, 10, 10, 10)),
    ],
    ids=["nothing today", "more today", "in another month", "more in another month"],
)
def test_a_charge_written_late_counts_where_it_belongs(days: int, today: int, spent: Spent) -> None:
    book = Memory()
    gate = Gate(book)
    gate.work()
    book.away = True
    gate.spend(100)
    gate.work()
    gate.now = (days - 0.5) * DAY_S + 1.0
    if today:
        gate.spend(today)
    book.away = False
    for _ in range(3):
        gate.work()
    assert gate.spent == spent
    told = [change for change in gate.told if isinstance(change, Accounts)]
    assert told == []
