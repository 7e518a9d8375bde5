"""What is said to be made here is what is: the lease of no other turn is renewed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from maitred.responses.record import NO_HISTORY, Record
from maitred.store.state_rows import Bounds, History
from maitred.wire.responses import response
from maitred.wire.responses.create import decode
from tests.net.http import turns
from tests.responses.place import in_real_time


@in_real_time
async def test_a_turn_that_left_before_the_store_knew_of_it_does_not_run() -> None:
    goes_on = asyncio.Event()

    async def begin(*_: object) -> History:
        await goes_on.wait()
        return NO_HISTORY

    site = SimpleNamespace(running={}, now_ms=lambda: 0, lease_ms=0)
    asked: Any = SimpleNamespace(
        site=site,
        store=SimpleNamespace(begin=begin),
        tenant="a",
        idempotency_key="",
        expires_ms=lambda _now_ms: 0,
    )
    create = decode(b'{"model":"m","input":"hi"}')
    for leaves in (False, True):
        goes_on.clear()
        record = Record(asked, create, response.begin(create, f"resp_{leaves}", 0))
        record.begin(Bounds(1, 1, truncate=False), lambda: None, lambda: None)
        if leaves:
            record.leave()
        goes_on.set()
        await turns(10)
    assert list(site.running) == ["resp_False"]
