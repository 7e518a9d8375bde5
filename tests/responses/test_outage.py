"""The database is away, or comes back: stateful requests are refused before any engine hears of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from maitred.config.responses import Background, Responses
from maitred.store.rows import StoreError
from tests.proxy.place import WHOLE
from tests.responses.place import (
    CONVERSATIONS,
    RESPONSES,
    call,
    events_of,
    in_real_time,
    remembering,
    says,
    streams,
    text_of,
    turn,
)
from tests.store.postgres import Postgres

QUICK: dict[str, Any] = {"responses": Responses(background=Background(period_s=0.05))}


@contextmanager
def away(server: Postgres) -> Iterator[None]:
    """The database is killed, and started again afterwards."""
    server.kill()
    try:
        yield
    finally:
        server.start()


@in_real_time
async def test_without_the_database_only_what_needs_it_is_refused(server: Postgres, database: str) -> None:
    async with remembering(database, says("Hello")) as it:
        before = await it.turn()
        conversation = (await it.ask(call("POST", CONVERSATIONS, {}))).json["id"]
        asked = len(it.place.menu.asked)
        members: tuple[dict[str, Any], ...] = (
            {},
            {"stream": True},
            {"background": True},
            {"previous_response_id": before["id"]},
            {"previous_response_id": before["id"], "store": False},
            {"conversation": conversation},
        )
        requests = [turn(**more) for more in members]
        requests += [
            call("GET", f"{RESPONSES}/{before['id']}"),
            call("DELETE", f"{RESPONSES}/{before['id']}"),
        ]
        with away(server):
            for request in requests:
                refused = await it.ask(request)
                assert (refused.status, refused.json["error"]["code"]) == (503, "store_unavailable"), request
                assert refused.value(b"x-should-retry") == b"true"
                assert refused.value(b"retry-after") == b"1"
            assert len(it.place.menu.asked) == asked
            assert (await it.ask(WHOLE)).status == 200
            assert it.place.app.front.ready
        after = await it.turn("and?", previous_response_id=before["id"])
        assert text_of(after) == "Hello"


@in_real_time
async def test_a_database_that_is_away_at_the_start_is_used_once_it_is_there(
    server: Postgres, database: str
) -> None:
    with ExitStack() as stack:
        stack.enter_context(away(server))
        async with remembering(database, says("Hello"), **QUICK) as it:
            findings = it.place.app.findings
            assert (await it.ask(turn())).status == 503
            assert findings.counts()["memory_unreachable"] == 1
            stack.close()
            assert text_of(await it.turn()) == "Hello"
            await it.place.until(lambda: not findings.counts().get("memory_unreachable"))


@in_real_time
async def test_a_stream_whose_end_cannot_be_kept_says_so_and_so_does_the_finding(file: str) -> None:
    async with remembering(file, streams("Hel", "lo")) as it:
        store = await it.place.app.memory()

        async def finish(_end: object) -> None:
            raise StoreError("away")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "finish", finish)
            *_, last = events_of(await it.ask(turn(stream=True)))
        assert (last["type"], last["code"]) == ("error", "store_unavailable")
        assert it.place.app.findings.counts()["memory_unreachable"] == 1
