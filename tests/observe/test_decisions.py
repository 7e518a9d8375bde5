"""The log of decisions: newest first, in pages, and bounded both ways."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import structs

from maitred.core.events import Decided
from maitred.core.receipt import Candidate, Receipt
from maitred.core.words import Api, Identity, Leg, Request, Ticket
from maitred.observe import decisions as module
from maitred.observe.decisions import Decisions, Wanted
from tests.observe.events import endpoint, seat

RECEIPT = Receipt("default", "cost", "qwen/a:1", "", "approximate", "", 1, 0.5, 100, (Candidate("qwen/a:1"),))


def keep(log: Decisions, number: int, name: str = "r", model: str = "alias", where: str = "qwen/a:1") -> None:
    request = Request(name, Api.CHAT, model, "qwen")
    leg: Leg = seat(Ticket(request, Identity("canary-tenant"), 100.0, 130.0), 100.5, endpoint(where))
    leg.number, leg.receipt = number, structs.replace(RECEIPT, endpoint=where)
    log.hears[Decided](Decided(100.5, leg))


def told(log: Decisions, **wanted: Any) -> list[int]:
    page = log.page(Wanted(**wanted))
    return [msgspec.json.decode(each)["number"] for each in page.decisions]


def test_all_is_told_of_a_decision_and_nothing_of_who_asked() -> None:
    log = Decisions(9, wall=lambda: 1_700_000_000.5)
    keep(log, 7)
    page = log.page(Wanted())
    assert msgspec.json.decode(page.decisions[0]) == {
        "number": 7,
        "ts": 1_700_000_000_500,
        "id": "r",
        "model": "alias",
        "pool": "qwen",
        "band": "default",
        "receipt": msgspec.json.decode(msgspec.json.encode(RECEIPT)),
    }
    assert page.before is None
    assert b"canary" not in msgspec.json.encode(page)


def test_they_are_found_by_id_model_and_endpoint() -> None:
    log = Decisions(9)
    keep(log, 1, "r1")
    keep(log, 2, "r2", model="other", where="qwen/b:1")
    keep(log, 3, "r1", where="qwen/b:1")
    assert told(log) == [3, 2, 1]
    assert told(log, id="r1") == [3, 1]
    assert told(log, model="other") == [2]
    assert told(log, model="qwen") == [3, 2, 1]
    assert told(log, endpoint="qwen/b:1") == [3, 2]
    assert told(log, id="r1", endpoint="qwen/a:1") == [1]
    assert told(log, id="r") == []


def test_pages_go_on_where_the_last_one_ended() -> None:
    log = Decisions(99)
    for number in range(1, 8):
        keep(log, number, "even" if number % 2 == 0 else "odd")
    seen, before = [], None
    while True:
        page = log.page(Wanted(id="odd", before=before, limit=2))
        seen.append([msgspec.json.decode(each)["number"] for each in page.decisions])
        before = page.before
        if before is None:
            break
        keep(log, 100 + before, "odd")  # what comes meanwhile moves nothing
    assert seen == [[7, 5], [3, 1]]


def test_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Decisions(3)
    for number in range(1, 6):
        keep(log, number)
    assert told(log) == [5, 4, 3]
    log.keep = 1
    keep(log, 6)
    assert told(log) == [6]
    log.keep = 1000
    monkeypatch.setattr(module, "BYTES_MAX", 2 * len(log.page(Wanted()).decisions[0]) + 50)
    for number in range(7, 12):
        keep(log, number)
    assert told(log) == [11, 10]
