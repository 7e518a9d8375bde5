"""The table of keys: read beside the requests, right while the store is there, and of use while it is not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import structs

from maitred.control.keys import READING_S, REFRESH_S, WHOLE_S, KeyTable, digest, mint
from maitred.core.limits import Limits
from maitred.core.words import Identity
from maitred.net.virtual import run
from maitred.observe.findings import Findings
from maitred.store.rows import KeyRow, SchemaError, StoreError

PEPPER = b"a pepper of the tests"
ROW = KeyRow("a", digest(PEPPER, b"key-a"), "support", 1, ("m",), ("chat",), ("band",), Limits(concurrent=2))
ROW_IDENTITY = Identity("support", "a", ("m",), ("chat",), ("band",), Limits(concurrent=2))
OTHER = KeyRow("b", digest(PEPPER, b"key-b"), "nightly", 2, expires_ms=5_000)


class Source:
    """A store that does as the test says. `reads` counts how often the keys themselves were asked for."""

    def __init__(self, *rows: KeyRow) -> None:
        self.rows: Sequence[KeyRow] = rows
        self.wrong: StoreError | None = None
        self.reads = self.prepared = 0

    async def prepare(self) -> None:
        await self.mark()
        self.prepared += 1

    async def mark(self) -> tuple[int | None, ...]:
        if self.wrong is not None:
            raise self.wrong
        return (len(self.rows), sum(row.revoked_ms is not None for row in self.rows))

    async def keys(self) -> Sequence[KeyRow]:
        self.reads += 1
        return self.rows


class Desk:
    """A table with its source, a clock that the test moves, and what was told of changes."""

    def __init__(self, *rows: KeyRow) -> None:
        self.now = 100.0
        self.changes = 0
        self.findings = Findings()
        self.source = Source(*rows)
        self.table = KeyTable(self.findings, lambda: self.now, self._changed)
        self.table.source = self.source

    def _changed(self) -> None:
        self.changes += 1

    def knows(self, key: bytes) -> Identity | None:
        """Whose key it is."""
        known = self.table.find(digest(PEPPER, key))
        return None if known is None else known.identity

    def refresh(self) -> StoreError | None:
        """Read once, after the usual time."""
        self.now += self.table.refresh_s
        return asyncio.run(self.table.refresh())

    @property
    def told(self) -> list[str]:
        return [finding.kind for finding in self.findings.current()]


def test_a_key_says_what_it_gives() -> None:
    desk = Desk(ROW, OTHER)
    assert (desk.knows(b"key-a"), desk.table.current) == (None, False)
    assert desk.refresh() is None
    assert desk.table.current
    assert desk.knows(b"key-a") == ROW_IDENTITY
    known = desk.table.find(OTHER.digest)
    assert known is not None
    assert (known.until, known.identity.key) == (5.0, "b")
    assert desk.knows(b"key-c") is None


def test_what_did_not_change_is_not_read_again() -> None:
    desk = Desk(ROW)
    for _ in range(3):
        desk.refresh()
    assert (desk.source.reads, desk.source.prepared, desk.changes) == (1, 1, 1)
    desk.source.rows = (ROW, OTHER)
    desk.refresh()
    assert (desk.source.reads, desk.changes) == (2, 2)
    assert desk.knows(b"key-b") is not None


def test_what_was_changed_by_hand_is_seen_after_a_while() -> None:
    desk = Desk(ROW)
    desk.refresh()
    desk.source.rows = (structs.replace(ROW, tenant="another"),)  # of which the mark tells nothing
    desk.refresh()
    assert (desk.source.reads, desk.knows(b"key-a")) == (1, ROW_IDENTITY)
    desk.now += WHOLE_S
    desk.refresh()
    assert (desk.source.reads, desk.changes) == (2, 2)
    assert (desk.knows(b"key-a") or ROW_IDENTITY).tenant == "another"
    desk.now += WHOLE_S
    desk.refresh()
    assert (desk.source.reads, desk.changes) == (3, 2)  # nobody has to be looked up anew


def test_a_revoked_key_is_gone_with_the_next_reading() -> None:
    desk = Desk(ROW, OTHER)
    desk.refresh()
    desk.source.rows = (structs.replace(ROW, revoked_ms=3), OTHER)
    assert desk.knows(b"key-a") is not None
    desk.refresh()
    assert desk.knows(b"key-a") is None
    assert desk.changes == 2


def test_b84_an_outage_leaves_the_table_as_it_was_and_is_told() -> None:
    desk = Desk(ROW)
    desk.refresh()
    desk.source.wrong = StoreError("postgresql at db: refused")
    for _ in range(3):
        assert desk.refresh() is desk.source.wrong
        assert desk.knows(b"key-a") is not None
        assert not desk.table.current
        assert desk.told == ["store_unreachable"]
    assert desk.table.age_s == 3 * REFRESH_S
    desk.source.wrong = None
    desk.refresh()
    assert (desk.table.current, desk.told, desk.table.age_s) == (True, [], 0)


def test_b84_a_start_without_the_store_ends_when_it_comes() -> None:
    desk = Desk(ROW)
    desk.source.wrong = SchemaError("run maitred db upgrade")
    assert isinstance(desk.refresh(), SchemaError)
    assert not desk.table.current
    desk.source.wrong = None
    desk.refresh()
    assert (desk.source.prepared, desk.table.current) == (1, True)


def test_a_reading_that_hangs_makes_the_table_old_too() -> None:
    desk = Desk(ROW)
    desk.refresh()
    desk.now += REFRESH_S + READING_S
    assert desk.table.current
    desk.now += 0.1
    assert not desk.table.current


def test_what_comes_while_it_is_read_is_read_the_next_time() -> None:
    desk = Desk(ROW)
    late = desk.source.keys

    async def keys() -> Sequence[KeyRow]:
        rows = await late()
        desk.source.rows = (ROW, OTHER)
        return rows

    desk.source.keys = keys  # type: ignore[method-assign]
    desk.refresh()
    assert desk.knows(b"key-b") is None
    desk.refresh()
    assert desk.knows(b"key-b") is not None


def test_it_reads_as_often_as_is_set() -> None:
    desk = Desk(ROW)

    async def main() -> None:
        reading = asyncio.create_task(desk.table.run())
        desk.table.refresh_s = 2.0
        await asyncio.sleep(2.5)
        assert desk.source.reads == 1
        desk.source.rows = ()
        await asyncio.sleep(2.0)
        assert desk.knows(b"key-a") is None
        reading.cancel()

    run(main())


def test_it_reads_at_once_when_it_is_asked_to() -> None:
    desk = Desk(ROW)

    async def main() -> None:
        reading = asyncio.create_task(desk.table.run())
        await asyncio.sleep(0.1)
        assert desk.source.reads == 0
        desk.table.hurry()
        await asyncio.sleep(0.1)
        assert desk.source.reads == 1
        reading.cancel()

    run(main())


def test_without_a_store_nothing_is_read_and_nothing_is_old() -> None:
    desk = Desk()
    desk.table.source = None
    assert desk.refresh() is None
    assert (desk.table.age_s, desk.table.current, desk.told) == (0.0, False, [])


def test_a_minted_key_tells_its_id_and_no_two_are_alike() -> None:
    made = [mint() for _ in range(100)]
    assert len({id_ for id_, _ in made}) == len({key for _, key in made}) == 100
    for id_, key in made:
        prefix, said, secret = key.split("_")
        assert (prefix, said, len(secret)) == ("mk", id_, 48)


def test_a_digest_needs_the_pepper() -> None:
    assert digest(PEPPER, b"key") != digest(b"another pepper", b"key")
    assert len(digest(PEPPER, b"key")) == 32


def test_it_is_known_whether_a_key_in_force_has_a_budget_in_money() -> None:
    for limits in (Limits(money_per_day=5), Limits(money_per_month=5)):
        dear = structs.replace(ROW, limits=limits)
        desk = Desk(OTHER, structs.replace(dear, revoked_ms=7))
        desk.refresh()
        assert not desk.table.budgeted
        desk.source.rows = [dear, OTHER]
        desk.refresh()
        assert desk.table.budgeted
