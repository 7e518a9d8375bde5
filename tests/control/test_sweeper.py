"""The sweeper does all that is due, part by part, and tells when it cannot."""

from __future__ import annotations

import asyncio

import pytest

from maitred.control.sweeper import PAUSE_S, Sweeper
from maitred.observe.findings import Findings
from maitred.store.rows import StoreError


class Due:
    """So many parts are due; `away` while it cannot be asked."""

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self.away = False
        self.asked: list[tuple[int, int]] = []

    async def sweep(self, now_ms: int, events_ttl_ms: int) -> bool:
        if self.away:
            raise StoreError("sqlite:///m.db: disk I/O error")
        self.asked.append((now_ms, events_ttl_ms))
        self.parts -= 1
        return self.parts > 0


class Slept:
    """A sleep that only counts, and ends the loop after some."""

    def __init__(self, most: int = 100) -> None:
        self.for_s: list[float] = []
        self._most = most

    async def __call__(self, seconds: float) -> None:
        self.for_s.append(seconds)
        if len(self.for_s) == self._most:
            raise asyncio.CancelledError


def test_all_that_is_due_is_done_and_then_rested() -> None:
    due, slept = Due(3), Slept(most=4)
    sweeper = Sweeper(due, Findings(), 10, 3600, wall=lambda: 7.5, sleep=slept)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(sweeper.run())
    assert slept.for_s == [PAUSE_S, PAUSE_S, 10, 10]
    assert due.asked == [(7500, 3_600_000)] * 4


def test_a_store_that_is_away_is_told_and_tried_again() -> None:
    due, findings = Due(1), Findings()
    sweeper = Sweeper(due, findings, 10, 3600, sleep=Slept())
    due.away = True
    assert asyncio.run(sweeper.work()) is not None
    assert [finding.kind for finding in findings.current()] == ["unswept"]
    due.away = False
    assert asyncio.run(sweeper.work()) is None
    assert list(findings.current()) == []
