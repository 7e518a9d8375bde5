"""What was spent, written down beside the requests so that it outlives the process.

The core counts. Each period what it charged since is added to the book, and the book's answer tells what
other gateways have added: so a process that is killed forgets at most one period's charges, and who charges a
holder learns within a period what it spent elsewhere, and all others within READ_S. While the book is away
charges wait here. A write of which nobody knows whether it came through is done again: rather charged twice
than not at all.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, date, datetime
from typing import Protocol

from maitred.core.limits import Accounts, Charge, Charges, Periods, Spent
from maitred.observe.findings import Findings
from maitred.store.rows import Account, SchemaError, StoreError

PERIOD_S = 2.0
READ_S = 60.0
"""How often the whole month is read."""
DAY_S = 86_400
DAYS_MAX = 3
"""So many days' charges wait for a book that is away; those of earlier days are let go."""
STORE = "store"
EPOCH = date(1970, 1, 1).toordinal()


class AccountBook(Protocol):
    """Where accounts are kept; raises StoreError when they cannot be."""

    async def prepare(self) -> None:
        """See that it can be used."""

    async def accounts(self, month: str) -> Sequence[Account]:
        """All that have spent something in this month."""

    async def charge(self, charges: Sequence[Account]) -> Sequence[Account]:
        """Add these to what is there, all or none, and tell what is there now."""

    async def prune(self, before: str) -> bool:
        """Delete some of what is of months before this one; whether there may be more."""


class Accountant:
    """Keeps the book of one gateway. `period_s` may be changed at any time.

    `work` once before the first request, so that the core knows the day, and once after the last.
    `charged` gives what the core charged since it was last asked; `update` tells the core. `clock` is its
    clock, `wall` that of the world, both in seconds.
    """

    def __init__(
        self,
        book: AccountBook | None,
        charged: Callable[[], Iterable[Charges]],
        update: Callable[[Periods | Accounts], None],
        findings: Findings,
        clock: Callable[[], float],
        wall: Callable[[], float] = time.time,
        period_s: float = PERIOD_S,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.period_s = period_s
        self.book = book
        self._charged = charged
        self._update = update
        self._findings = findings
        self._clock = clock
        self._wall = wall
        self._sleep = sleep
        self._working = asyncio.Lock()
        self._periods: Periods | None = None
        self._read_at: float | None = None
        self._pruned: int | None = None  # the month in which there was nothing left to prune
        self._owed: dict[tuple[int, int], dict[str, Charge]] = {}  # by day and month
        self._known: dict[str, Spent] = {}  # what the core counts, of what the book has

    async def start(self) -> None:
        """Read the book. Raises SchemaError; that it is away is no error."""
        wrong = await self.work()
        if isinstance(wrong, SchemaError):
            raise wrong

    async def run(self) -> None:
        """Keep the book until cancelled; what is being written then is written to its end."""
        while True:
            await self._sleep(self.period_s)
            await asyncio.shield(self.work())

    async def work(self) -> StoreError | None:
        """Tell the core the day, write what is owed, and tell what others spent; what went wrong with it."""
        async with self._working:  # what is being written is still owed
            return await self._work()

    # -- parts ------------------------------------------------------------------------------------

    async def _work(self) -> StoreError | None:
        periods = self._follow_calendar()
        charged = self._charged()
        if self.book is None:
            return None
        for charges in charged:
            self._owe(charges)
        try:
            await self._write(self.book, periods)
        except StoreError as error:
            what = f"{error}; what is spent is not written down, and known to this gateway alone"
            self._findings.tell("accounts_unwritten", STORE, what, "see to the database")
            return error
        self._findings.settle("accounts_unwritten", STORE)
        return None

    async def _write(self, book: AccountBook, periods: Periods) -> None:
        now = self._clock()
        if self._read_at is None:
            await book.prepare()
        if self._read_at is None or now - self._read_at >= READ_S:
            self._learn(periods, await book.accounts(month_name(periods.month)))
            self._read_at = now
        for (day, month), by_holder in sorted(self._owed.items()):
            charges = Charges(day, month, by_holder)
            rows = await book.charge(rows_of(charges))
            del self._owed[day, month]
            self._count(periods, charges)
            self._learn(periods, rows)
        if self._pruned != periods.month and not await book.prune(month_name(periods.month - 1)):
            self._pruned = periods.month

    def _follow_calendar(self) -> Periods:
        """The day and month it is; of a new one the core is told."""
        now, told = periods_at(self._wall(), self._clock()), self._periods
        if told is not None and told.day >= now.day:
            return told
        self._update(now)
        self._periods = now
        if told is not None and told.month != now.month:
            self._known.clear()
        for spent in self._known.values():
            spent.tokens_per_day = spent.money_per_day = 0
        return now

    def _owe(self, charges: Charges) -> None:
        owed = self._owed.setdefault((charges.day, charges.month), {})
        for holder, charge in charges.by_holder.items():
            known = owed.setdefault(holder, Charge())
            known.tokens += charge.tokens
            known.money += charge.money
        while len(self._owed) > DAYS_MAX:
            del self._owed[min(self._owed)]

    def _count(self, periods: Periods, charges: Charges) -> None:
        """These are in the book now, and the core has counted them long since."""
        for holder, charge in charges.by_holder.items():
            known = self._known.setdefault(holder, Spent())
            if charges.day == periods.day:
                known.tokens_per_day += charge.tokens
                known.money_per_day += charge.money
            if charges.month == periods.month:
                known.tokens_per_month += charge.tokens
                known.money_per_month += charge.money

    def _learn(self, periods: Periods, rows: Iterable[Account]) -> None:
        """Tell the core what the book has and it does not know of."""
        day, month, news = day_name(periods.day), month_name(periods.month), {}
        for row in rows:
            if row.month != month:
                continue
            known, today = self._known.setdefault(row.holder, Spent()), row.day == day
            there = Spent(
                row.day_tokens if today else known.tokens_per_day,
                row.month_tokens,
                row.day_money if today else known.money_per_day,
                row.month_money,
            )
            if there != known:
                news[row.holder] = Spent(
                    there.tokens_per_day - known.tokens_per_day,
                    there.tokens_per_month - known.tokens_per_month,
                    there.money_per_day - known.money_per_day,
                    there.money_per_month - known.money_per_month,
                )
            self._known[row.holder] = there
        if news:
            self._update(Accounts(periods.day, periods.month, news))


def periods_at(wall_s: float, now: float) -> Periods:
    """The day and month of UTC at this wall time, which is `now` on the core's clock."""
    today = datetime.fromtimestamp(wall_s, UTC)
    day, month = int(wall_s // DAY_S), today.year * 12 + today.month - 1
    next_month = datetime((month + 1) // 12, (month + 1) % 12 + 1, 1, tzinfo=UTC).timestamp()
    return Periods(day, month, now + (day + 1) * DAY_S - wall_s, now + next_month - wall_s)


def day_name(day: int) -> str:
    """`2026-11-30`, for a number of days since 1970."""
    return date.fromordinal(EPOCH + day).isoformat()


def month_name(month: int) -> str:
    """`2026-11`, for a number of months."""
    return f"{month // 12:04}-{month % 12 + 1:02}"


def rows_of(charges: Charges) -> list[Account]:
    """Charges as the book takes them, by name: two gateways at once must not wait for each other."""
    day, month = day_name(charges.day), month_name(charges.month)
    return [
        Account(holder, day, month, charge.tokens, charge.tokens, charge.money, charge.money)
        for holder, charge in sorted(charges.by_holder.items())
    ]
