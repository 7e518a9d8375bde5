"""Clients that leave in the middle of a turn, and what is left of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from maitred.config.flow import Tenant
from maitred.config.responses import Kept
from maitred.net.memory import HIGH_WATER_BYTES
from maitred.store.state_rows import History
from tests.net.http import turns
from tests.proxy.upstream import DONE, FINISH, ROLE, USAGE, End, Plan, chunk, stream, word
from tests.responses.place import (
    RESPONSES,
    Remembering,
    call,
    events_of,
    in_real_time,
    remembering,
    says,
    streams,
    text_of,
    turn,
)

HANGS: Plan = stream(ROLE, word("Hel"), end=())
SLOW: Plan = [
    *stream(ROLE, word("Hel"), end=()),
    0.1,
    *map(chunk, (word("lo"), FINISH, USAGE, DONE)),
    b"0\r\n\r\n",
]
STAYS: dict[str, Any] = {"default_tenant": Tenant(responses=Kept(on_leave="finish"))}


async def left(it: Remembering, request: bytes, after: bytes) -> str:
    """Send this, leave after these words; the id of the response."""
    client = await it.place.client()
    client.send(request)
    await client.heard(after)
    head, _, rest = bytes(client.received).partition(b'"id":"resp_')
    assert head
    client.leave()
    await it.place.until(lambda: not it.place.app.journeys)
    return "resp_" + rest.partition(b'"')[0].decode()


@in_real_time
async def test_who_leaves_a_stream_stops_the_engine_and_what_was_delivered_is_kept_as_incomplete(
    url: str,
) -> None:
    async with remembering(url, HANGS, says("x")) as it:
        id_ = await left(it, turn(stream=True), b"Hel")
        await it.place.menu.asked[0].lost.wait()
        response = (await it.get(f"{RESPONSES}/{id_}")).json
        assert (response["status"], text_of(response)) == ("incomplete", "Hel")
        refused = await it.ask(turn(previous_response_id=id_))
        assert (refused.status, refused.json["error"]["param"]) == (400, "previous_response_id")
        assert len(it.place.menu.asked) == 1
        assert it.place.outcomes[0] == "client_gone"


@in_real_time
async def test_a_tenant_may_have_its_turns_finished(url: str) -> None:
    async with remembering(url, SLOW, says("x"), **STAYS) as it:
        id_ = await left(it, turn(stream=True), b"Hel")
        response = (await it.get(f"{RESPONSES}/{id_}")).json
        assert (response["status"], text_of(response)) == ("completed", "Hello")
        await it.turn("and?", previous_response_id=id_)
        assert it.told.said[1] == ("assistant", "Hello")


@in_real_time
async def test_nothing_stays_of_a_whole_answer_that_nobody_waited_for(url: str) -> None:
    async with remembering(url, (1e6,)) as it:
        client = await it.place.client()
        client.send(turn())
        asked = await it.place.menu.called()
        client.leave()
        await asked.lost.wait()
        await it.place.until(lambda: not it.place.app.journeys)
        assert it.rows("responses") == it.rows("items") == []


@in_real_time
async def test_a_conversation_is_free_when_its_client_has_left(url: str) -> None:
    async with remembering(url, HANGS, says("x")) as it:
        id_ = (await it.ask(call("POST", "/v1/conversations", {}))).json["id"]
        await left(it, turn(stream=True, conversation=id_), b"Hel")
        await it.turn("and?", conversation=id_)
        assert it.told.said == [("user", "and?")]


@in_real_time
async def test_who_is_deleted_in_the_middle_is_told_so_and_the_engine_stops(url: str) -> None:
    async with remembering(url, HANGS) as it:
        client = await it.place.client()
        client.send(turn(stream=True))
        await client.heard(b"Hel")
        id_ = it.rows("responses")[0]["id"]
        assert (await it.ask(call("DELETE", f"{RESPONSES}/{id_}"))).status == 200
        *_, last = events_of(await client.answer())
        assert (last["type"], last["code"]) == ("error", "not_found")
        assert it.place.menu.asked[0].lost.is_set()
        assert (await it.get(f"{RESPONSES}/{id_}")).status == 404


@in_real_time
async def test_an_engine_that_breaks_off_makes_a_response_that_failed(url: str) -> None:
    async with remembering(url, stream(ROLE, word("Hel"), end=(End.RESET,)), says("x")) as it:
        *_, last = events_of(await it.ask(turn(stream=True)))
        assert last["type"] == "response.failed"
        response = last["response"]
        assert (response["status"], text_of(response)) == ("failed", "Hel")
        assert response["error"]["code"] == "server_error"
        assert (await it.get(f"{RESPONSES}/{response['id']}")).json == response
        assert (await it.ask(turn(previous_response_id=response["id"]))).status == 400


@in_real_time
async def test_a_stream_that_was_refused_leaves_no_trace(url: str) -> None:
    async with remembering(url, streams("x")) as it:
        refused = await it.ask(turn(stream=True, model="gpt-9"))
        assert (refused.status, refused.json["error"]["code"]) == (404, "model_not_found")
        assert it.rows("responses") == []


@in_real_time
async def test_who_was_slow_and_left_does_not_hold_up_what_is_to_be_finished(url: str) -> None:
    large = [ROLE, *(word("x" * 40_000) for _ in range(8))]
    plan: Plan = stream(*large, FINISH, USAGE, DONE)
    async with remembering(url, plan, **STAYS) as it:
        client = await it.place.client()
        client.transport.pause_reading()
        client.send(turn(stream=True))
        connections = it.place.app.front.connections
        await it.place.until(lambda: any(c.unsent > HIGH_WATER_BYTES for c in connections.values()))
        client.leave()
        await it.place.until(lambda: not it.place.app.journeys)
        (row,) = it.rows("responses")
        assert row["status"] == "completed"


@in_real_time
async def test_who_left_before_anything_was_told_was_delivered_nothing(url: str) -> None:
    async with remembering(url, HANGS) as it:
        store = await it.place.app.memory()
        begins, goes_on = store.begin, asyncio.Event()

        async def begin(*what: Any) -> History:
            await goes_on.wait()
            return await begins(*what)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "begin", begin)
            client = await it.place.client()
            client.send(turn(stream=True))
            asked = await it.place.menu.called()
            await turns(100)  # in which the first words come, and are held
            client.leave()
            await asked.lost.wait()
            goes_on.set()
            await it.place.until(lambda: not it.place.app.journeys)
        assert it.rows("responses") == it.rows("items") == []
