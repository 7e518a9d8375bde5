"""Turns with tools in which something goes wrong: a tool, an engine, or a client that leaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from maitred.config.flow import Tenant
from maitred.config.mcp import Mcp, McpServer
from maitred.config.responses import Kept
from maitred.net.seams import Sockets
from tests.proxy.upstream import Plan, whole
from tests.responses.mcp_server import Calls, Told, asks_for, behaves, odd, rpc, streams_for
from tests.responses.place import (
    RESPONSES,
    Remembering,
    events_of,
    in_real_time,
    remembering,
    says,
    streams,
    text_of,
)
from tests.responses.place import turn as request

GOOD = {"content": [{"type": "text", "text": "well"}]}
CALL: Calls = ("s__t", {})
TOOLS: Any = [{"type": "mcp", "server_label": "s"}]
BROKEN: Plan = (whole(b'{"error":{"message":"on fire"}}', status=500),)
UNWILLING: Plan = (whole(b'{"error":{"message":"too odd","type":"invalid_request_error"}}', status=400),)


def well(_head: str, body: dict[str, Any]) -> bytes:
    return rpc(GOOD, body)


@asynccontextmanager
async def tooled(file: str, calls: Told, *plans: Plan, **sections: Any) -> AsyncIterator[Remembering]:
    """A gateway whose one tool answers its calls so."""
    network = Sockets()
    url, listener = await odd(network, behaves(calls))
    mcp = Mcp(servers={"s": McpServer(url, approval="never")})
    try:
        async with remembering(file, *plans, mcp=mcp, network=network, **sections) as it:
            yield it
    finally:
        listener.close()


@in_real_time
async def test_a_server_that_is_away_is_an_item_and_the_model_answers_without(file: str) -> None:
    mcp = Mcp(servers={"s": McpServer("http://127.0.0.1:1/mcp", approval="never")})
    async with remembering(file, says("alone"), streams("alone"), mcp=mcp, network=Sockets()) as it:
        whole_ = await it.turn(tools=TOOLS)
        events = events_of(await it.ask(request(tools=TOOLS, stream=True)))
        for response in (whole_, events[-1]["response"]):
            listed, message = response["output"]
            assert "cannot be reached" in listed["error"]
            assert listed["tools"] == []
            assert message["type"] == "message"
        assert "response.mcp_list_tools.failed" in [event["type"] for event in events]
        assert all("tools" not in body for body in it.told.bodies)


@pytest.mark.parametrize("stream", [False, True])
@in_real_time
async def test_what_the_engine_refuses_before_any_call_leaves_no_trace(file: str, stream: bool) -> None:
    async with tooled(file, well, UNWILLING) as it:
        answer = await it.ask(request(tools=TOOLS, stream=stream))
        assert (answer.status, answer.json["error"]["message"]) == (400, "too odd")
        assert it.rows("responses") == []
        refused = await it.ask(request(tools=TOOLS, stream=stream, model="gpt-9"))
        assert refused.status == 404
        assert it.rows("responses") == []


@pytest.mark.parametrize("plan", [BROKEN, UNWILLING])
@in_real_time
async def test_an_engine_that_fails_after_a_call_ends_a_response_that_keeps_it(file: str, plan: Plan) -> None:
    async with tooled(file, well, asks_for(CALL), plan) as it:
        response = await it.turn(tools=TOOLS)
        assert (response["status"], response["error"]["code"]) == ("failed", "server_error")
        assert [item["type"] for item in response["output"]] == ["mcp_list_tools", "mcp_call"]
        assert (await it.get(f"{RESPONSES}/{response['id']}")).json == response
        assert (await it.ask(request(previous_response_id=response["id"]))).status == 400


@in_real_time
async def test_also_in_a_stream(file: str) -> None:
    async with tooled(file, well, streams_for(CALL), BROKEN) as it:
        *_, last = events_of(await it.ask(request(tools=TOOLS, stream=True)))
        assert last["type"] == "response.failed"
        assert [item["type"] for item in last["response"]["output"]] == ["mcp_list_tools", "mcp_call"]
        assert (await it.get(f"{RESPONSES}/{last['response']['id']}")).json == last["response"]


@in_real_time
async def test_who_leaves_while_a_tool_runs_ends_the_call_and_the_turn(file: str) -> None:
    called = asyncio.Event()

    def hangs(_head: str, _body: dict[str, Any]) -> None:
        called.set()

    async with tooled(file, hangs, streams_for(CALL)) as it:
        client = await it.place.client()
        client.send(request(tools=TOOLS, stream=True))
        await called.wait()
        await client.heard(b"response.mcp_call_arguments.done")
        client.leave()
        await it.place.until(lambda: not it.place.app.journeys)
        [row] = it.rows("responses")
        assert (row["status"], row["reason"]) == ("incomplete", "left")
        assert len(it.place.menu.asked) == 1


@in_real_time
async def test_a_turn_that_is_to_be_finished_makes_its_calls(file: str) -> None:
    stays = {"default_tenant": Tenant(responses=Kept(on_leave="finish"))}
    async with tooled(file, well, streams_for(CALL), streams("done"), **stays) as it:
        client = await it.place.client()
        client.send(request(tools=TOOLS, stream=True))
        await client.heard(b"response.created")
        client.leave()
        await it.place.until(lambda: not it.place.app.journeys)
        [row] = it.rows("responses")
        assert row["status"] == "completed"
        response = (await it.get(f"{RESPONSES}/{row['id']}")).json
        assert [item["type"] for item in response["output"]] == ["mcp_list_tools", "mcp_call", "message"]


@in_real_time
async def test_a_model_that_calls_what_it_was_not_offered_is_not_asked_for_ever(file: str) -> None:
    async with tooled(file, well, *(asks_for(CALL),) * 4) as it:
        response = await it.turn(tools=TOOLS, max_tool_calls=1)
        assert ["tools" in body for body in it.told.bodies] == [True, False]
        assert [item["type"] for item in response["output"]] == ["mcp_list_tools", "mcp_call"]


@in_real_time
async def test_of_what_was_approved_no_more_is_called_than_may_be(file: str) -> None:
    called: list[Any] = []

    def counts(head: str, body: dict[str, Any]) -> bytes:
        called.append(body)
        return well(head, body)

    names = [f"mcpr_{at}" for at in range(5)]
    asked = {"type": "mcp_approval_request", "server_label": "s", "name": "t", "arguments": "{}"}
    word = {"type": "mcp_approval_response", "approve": True}
    said = [{**asked, "id": name} for name in names] + [
        {**word, "approval_request_id": name} for name in names
    ]
    async with tooled(file, counts, says("done")) as it:
        response = await it.turn(said, tools=TOOLS, max_tool_calls=2)
        states = [item["status"] for item in response["output"] if item["type"] == "mcp_call"]
        assert states == ["completed"] * 2 + ["failed"] * 3
        assert len(called) == 2


@in_real_time
async def test_an_approval_of_nothing_is_refused(file: str) -> None:
    word = {"type": "mcp_approval_response", "approval_request_id": "mcpr_0", "approve": True}
    async with tooled(file, well, says("x")) as it:
        for tools in (TOOLS, None):
            refused = await it.ask(request([word], tools=tools))
            assert (refused.status, refused.json["error"]["param"]) == (400, "input")
        assert it.told.bodies == []


@in_real_time
async def test_a_background_response_has_tools_too(file: str) -> None:
    async with tooled(file, well, asks_for(CALL), says("done")) as it:
        response = await it.turn(tools=TOOLS, background=True)
        while response["status"] in ("queued", "in_progress"):
            response = (await it.get(f"{RESPONSES}/{response['id']}")).json
        assert response["status"] == "completed"
        assert [item["type"] for item in response["output"]] == ["mcp_list_tools", "mcp_call", "message"]
        assert text_of(response) == "done"


@in_real_time
async def test_what_the_engine_is_told_is_one_message_for_each_call(file: str) -> None:
    async with tooled(file, well, asks_for(CALL, CALL), says("done")) as it:
        await it.turn(tools=TOOLS)
        messages = it.told.bodies[-1]["messages"]
        assert [message["role"] for message in messages].count("tool") == 2
        assert json.loads(messages[1]["tool_calls"][0]["function"]["arguments"]) == {}
