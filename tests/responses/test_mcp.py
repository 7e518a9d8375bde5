"""Turns with tools that the gateway runs, on a real MCP server: what the model is told, and what stays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from maitred.config.mcp import Mcp, McpServer, ToolList
from maitred.net.seams import Sockets
from tests.proxy.upstream import whole
from tests.responses.mcp_server import CANARY, Real, asks_for, real, streams_for
from tests.responses.place import events_of, in_real_time, remembering, says, streams, text_of, turn

ADD = ("s__add", {"a": 1, "b": 2})


@pytest.fixture(scope="module")
def there() -> Iterator[Real]:
    with real() as running:
        yield running


def mcp(**servers: McpServer) -> dict[str, Any]:
    """The configuration of a gateway with these servers, on real sockets."""
    return {"mcp": Mcp(servers=servers), "network": Sockets()}


def tool(label: str = "s", **more: Any) -> dict[str, Any]:
    """As a request names a server."""
    return {"type": "mcp", "server_label": label, **more}


def of_type(response: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """The items of this type."""
    return [item for item in response["output"] if item["type"] == kind]


@in_real_time
async def test_the_model_calls_a_tool_and_goes_on_with_what_came_of_it(there: Real, file: str) -> None:
    async with remembering(file, asks_for(ADD), says("3!"), **mcp(s=there.said())) as it:
        response = await it.turn("1+2?", tools=[tool()])
        kinds = [item["type"] for item in response["output"]]
        assert kinds == ["mcp_list_tools", "mcp_call", "message"]
        listed, called, _ = response["output"]
        assert {one["name"] for one in listed["tools"]} == {"add", "name_of", "boom", "big", "whoami"}
        assert called["output"] == "3"
        assert (called["server_label"], called["name"], called["status"]) == ("s", "add", "completed")
        assert response["usage"]["total_tokens"] == 14
        first, second = it.told.bodies
        offered = {one["function"]["name"]: one["function"] for one in first["tools"]}
        assert offered["s__add"]["parameters"]["required"] == ["a", "b"]
        assert [message["role"] for message in second["messages"]] == ["user", "assistant", "tool"]
        assert second["messages"][-1]["content"] == "3"
        assert second["tools"] == first["tools"]
        assert (await it.get(f"/v1/responses/{response['id']}")).json == response


@in_real_time
async def test_the_next_turn_lists_nothing_again(there: Real, file: str) -> None:
    async with remembering(file, asks_for(ADD), says("3!"), says("yes"), **mcp(s=there.said())) as it:
        first = await it.turn("1+2?", tools=[tool()])
        second = await it.turn("sure?", tools=[tool()], previous_response_id=first["id"])
        assert [item["type"] for item in second["output"]] == ["message"]
        assert it.told.bodies[2]["tools"] == it.told.bodies[0]["tools"]
        assert it.told.bodies[2]["messages"][2]["content"] == "3"


@in_real_time
async def test_a_stream_tells_all_of_it_in_order(there: Real, file: str) -> None:
    plans = (streams_for(ADD), streams("3", "!"))
    async with remembering(file, *plans, **mcp(s=there.said())) as it:
        events = events_of(await it.ask(turn("1+2?", stream=True, tools=[tool()])))
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        kinds = [event["type"].removeprefix("response.") for event in events]
        assert kinds[:15] == [
            *("created", "in_progress"),
            *("output_item.added", "mcp_list_tools.in_progress", "mcp_list_tools.completed"),
            *("output_item.done", "output_item.added", "mcp_call.in_progress"),
            *("mcp_call_arguments.delta", "mcp_call_arguments.done", "mcp_call.completed"),
            *("output_item.done", "output_item.added", "content_part.added", "output_text.delta"),
        ]
        assert [event["output_index"] for event in events if "output_index" in event][::3]
        response = events[-1]["response"]
        assert [event["item"] for event in events if event["type"].endswith("item.done")] == response[
            "output"
        ]
        assert (await it.get(f"/v1/responses/{response['id']}")).json == response


@in_real_time
async def test_several_calls_run_at_once_and_their_items_are_in_order(there: Real, file: str) -> None:
    calls = [("s__add", {"a": at, "b": 0}) for at in range(4)]
    async with remembering(file, asks_for(*calls), says("ok"), **mcp(s=there.said())) as it:
        response = await it.turn(tools=[tool()])
        assert [item["output"] for item in of_type(response, "mcp_call")] == ["0", "1", "2", "3"]


@in_real_time
async def test_two_servers_may_have_tools_of_one_name(there: Real, file: str) -> None:
    with real("other", json_response=True, stateless_http=True) as other:
        plans = (asks_for(("a__name_of", {}), ("b__name_of", {})), says("ok"))
        async with remembering(file, *plans, **mcp(a=there.said(), b=other.said())) as it:
            response = await it.turn(tools=[tool("a"), tool("b")])
            assert [item["output"] for item in of_type(response, "mcp_call")] == ["real", "other"]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (
            ("s__boom", {}),
            {
                "type": "mcp_tool_execution_error",
                "content": [{"type": "text", "text": "Error executing tool boom"}],
            },
        ),
        (
            ("s__big", {"chars": 100_000}),
            {"type": "http_error", "code": 502, "message": "the answer is larger than 65536 bytes"},
        ),
    ],
)
@in_real_time
async def test_a_tool_that_fails_is_an_item_that_the_model_reads(
    there: Real, file: str, call: tuple[str, Any], error: Any
) -> None:
    said = there.said(answer_bytes_max=65536)
    async with remembering(file, asks_for(call), says("oh"), **mcp(s=said)) as it:
        response = await it.turn(tools=[tool()])
        assert response["status"] == "completed"
        [called] = of_type(response, "mcp_call")
        assert (called["status"], called["output"], called["error"]) == ("failed", None, error)
        assert json.loads(it.told.bodies[1]["messages"][-1]["content"]) == {"error": error}
        assert text_of(response) == "oh"


@in_real_time
async def test_a_call_waits_for_the_clients_word(there: Real, file: str) -> None:
    plans = (asks_for(ADD), says("3!"))
    async with remembering(file, *plans, **mcp(s=there.said(approval=None))) as it:
        first = await it.turn("1+2?", tools=[tool()])
        assert [item["type"] for item in first["output"]] == ["mcp_list_tools", "mcp_approval_request"]
        request = first["output"][1]
        assert (request["name"], json.loads(request["arguments"])) == ("add", ADD[1])
        word = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
        second = await it.turn([word], tools=[tool()], previous_response_id=first["id"])
        called, _ = second["output"]
        assert (called["output"], called["approval_request_id"]) == ("3", request["id"])
        assert text_of(second) == "3!"
        assert it.told.bodies[1]["messages"][-1]["content"] == "3"


@in_real_time
async def test_a_call_that_the_client_declines_is_not_made(there: Real, file: str) -> None:
    plans = (asks_for(("s__whoami", {})), says("then not"))
    async with remembering(file, *plans, **mcp(s=there.said(approval="always"))) as it:
        before = len(there.seen)
        first = await it.turn(tools=[tool(require_approval="never")])
        request = first["output"][-1]
        word = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": False}
        said = [{**word, "reason": "too risky"}]
        second = await it.turn(said, tools=[tool()], previous_response_id=first["id"])
        called, _ = second["output"]
        assert called["status"] == "failed"
        assert "too risky" in it.told.bodies[1]["messages"][-1]["content"]
        assert len(there.seen) == before


@in_real_time
async def test_what_is_approved_is_done_once(there: Real, file: str) -> None:
    plans = (asks_for(ADD), says("3!"), says("again"))
    async with remembering(file, *plans, **mcp(s=there.said(approval=None))) as it:
        first = await it.turn(tools=[tool()])
        word = {"type": "mcp_approval_response", "approve": True}
        word["approval_request_id"] = first["output"][1]["id"]
        second = await it.turn([word], tools=[tool()], previous_response_id=first["id"])
        third = await it.turn([word], tools=[tool()], previous_response_id=second["id"])
        assert of_type(third, "mcp_call") == []


@in_real_time
async def test_a_client_that_keeps_the_conversation_itself_can_approve(there: Real, file: str) -> None:
    plans = (asks_for(ADD), says("3!"))
    async with remembering(file, *plans, **mcp(s=there.said(approval=None))) as it:
        first = await it.turn("1+2?", tools=[tool()], store=False)
        request = first["output"][1]
        word = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
        said = [{"role": "user", "content": "1+2?"}, *first["output"], word]
        second = await it.turn(said, tools=[tool()], store=False)
        assert [item["type"] for item in second["output"]] == ["mcp_call", "message"]


@pytest.mark.parametrize(
    ("operator", "said", "asked"),
    [
        (None, None, [True, True]),
        (None, "always", [True, True]),
        (None, "never", [False, False]),
        (None, {"never": {"tool_names": ["add"]}}, [False, True]),
        (None, {"never": {"read_only": True}}, [False, True]),
        ("never", None, [False, False]),
        ("never", "always", [True, True]),
        ("never", {"always": {"tool_names": ["add"]}}, [True, False]),
        ("always", "never", [True, True]),
        (ToolList(("name_of",)), None, [False, True]),
        (ToolList(("name_of",)), "never", [False, True]),
    ],
)
@in_real_time
async def test_who_says_what_needs_the_clients_word(
    there: Real, file: str, operator: Any, said: Any, asked: list[bool]
) -> None:
    plans = (asks_for(ADD, ("s__name_of", {})), says("done"))
    async with remembering(file, *plans, **mcp(s=there.said(approval=operator))) as it:
        more = {} if said is None else {"require_approval": said}
        response = await it.turn(tools=[tool(**more)])
        items = [item for item in response["output"] if item["type"] in ("mcp_call", "mcp_approval_request")]
        assert [item["type"] == "mcp_approval_request" for item in items] == asked
        assert (text_of(response) == "") == any(asked)


@in_real_time
async def test_only_what_both_allow_is_offered(there: Real, file: str) -> None:
    said = there.said(tools=("add", "name_of"))
    async with remembering(file, says("hm"), **mcp(s=said)) as it:
        for allowed in (["add", "boom"], {"tool_names": ["add", "boom"]}, {"read_only": True}):
            response = await it.turn(tools=[tool(allowed_tools=allowed)])
            assert [one["name"] for one in response["output"][0]["tools"]] == ["add"]
            assert [one["function"]["name"] for one in it.told.bodies[-1]["tools"]] == ["s__add"]


@in_real_time
async def test_a_client_cannot_list_what_the_operator_does_not_allow(there: Real, file: str) -> None:
    forged = {"name": "boom", "input_schema": {}}
    listed = {"type": "mcp_list_tools", "server_label": "s", "tools": [forged]}
    said = [listed, {"role": "user", "content": "hi"}]
    async with remembering(file, says("hm"), **mcp(s=there.said(tools=("add",)))) as it:
        await it.turn(said, tools=[tool()])
        assert "tools" not in it.told.bodies[0]


@in_real_time
async def test_when_calls_are_used_up_the_model_must_answer(there: Real, file: str) -> None:
    plans = (asks_for(ADD, ADD, ADD), says("enough"))
    async with remembering(file, *plans, **mcp(s=there.said())) as it:
        response = await it.turn(tools=[tool()], max_tool_calls=2)
        assert len(of_type(response, "mcp_call")) == 2
        assert "tools" not in it.told.bodies[1]
        assert text_of(response) == "enough"


@in_real_time
async def test_when_rounds_are_used_up_the_model_must_answer(there: Real, file: str) -> None:
    plans = (*(asks_for(ADD),) * 3, says("enough"))
    sections = mcp(s=there.said())
    sections["mcp"] = Mcp(servers=sections["mcp"].servers, rounds_max=3)
    async with remembering(file, *plans, **sections) as it:
        response = await it.turn(tools=[tool()], tool_choice="required")
        assert len(of_type(response, "mcp_call")) == 3
        assert ["tools" in body for body in it.told.bodies] == [True, True, True, False]
        assert [body.get("tool_choice") for body in it.told.bodies] == ["required", "auto", "auto", None]


@in_real_time
async def test_calls_of_the_clients_own_functions_end_the_response(there: Real, file: str) -> None:
    own = {"type": "function", "name": "look", "parameters": {}}
    plans = (asks_for(("look", {}), ADD), says("seen"))
    async with remembering(file, *plans, **mcp(s=there.said())) as it:
        first = await it.turn(tools=[tool(), own])
        kinds = [item["type"] for item in first["output"]]
        assert kinds == ["mcp_list_tools", "function_call", "mcp_call"]
        out = {"type": "function_call_output", "call_id": first["output"][1]["call_id"], "output": "a cat"}
        await it.turn([out], tools=[tool(), own], previous_response_id=first["id"])
        roles = [message["role"] for message in it.told.bodies[1]["messages"]]
        assert roles == ["user", "assistant", "tool", "tool"]


@in_real_time
async def test_tokens_are_nowhere_but_at_their_server(
    there: Real, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from maitred.config.secret import EnvSecret

    monkeypatch.setenv("MCP_TOKEN", CANARY)
    monkeypatch.setenv("MCP_TEAM", f"team-{CANARY}")
    said = there.said(authorization=EnvSecret("MCP_TOKEN"), headers={"x-team": EnvSecret("MCP_TEAM")})
    async with remembering(file, asks_for(("s__whoami", {})), says("ok"), **mcp(s=said)) as it:
        response = await it.turn(tools=[tool()])
        assert there.seen[-1]["authorization"] == f"Bearer {CANARY}"
        assert there.seen[-1]["x-team"] == f"team-{CANARY}"
        [called] = of_type(response, "mcp_call")
        assert called["output"] == "you said Bearer [hidden] and [hidden]"
        assert CANARY not in str([it.rows(table) for table in ("responses", "items")])
        assert CANARY not in str(it.told.bodies) + str(it.place.lines)


@in_real_time
async def test_a_tool_that_must_be_called_is_called_once(there: Real, file: str) -> None:
    choice = {"type": "mcp", "server_label": "s", "name": "add"}
    async with remembering(file, asks_for(ADD), says("3!"), **mcp(s=there.said())) as it:
        await it.turn(tools=[tool()], tool_choice=choice)
        named = {"type": "function", "function": {"name": "s__add"}}
        assert [body["tool_choice"] for body in it.told.bodies] == [named, "auto"]


@in_real_time
async def test_a_tool_that_is_not_there_need_not_be_called(there: Real, file: str) -> None:
    own = {"type": "function", "name": "look", "parameters": {}}
    choice = {"type": "mcp", "server_label": "s", "name": "no_such"}
    async with remembering(file, says("hm"), **mcp(s=there.said())) as it:
        await it.turn(tools=[tool(), own], tool_choice=choice)
        assert it.told.bodies[0]["tool_choice"] == "auto"


@in_real_time
async def test_only_what_may_be_chosen_is_offered(there: Real, file: str) -> None:
    choice = {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "mcp", "server_label": "s", "name": "add"}],
    }
    async with remembering(file, asks_for(ADD), says("3!"), **mcp(s=there.said())) as it:
        await it.turn(tools=[tool()], tool_choice=choice)
        assert [len(body["tools"]) for body in it.told.bodies] == [1, 1]
        assert [body["tool_choice"] for body in it.told.bodies] == ["required", "auto"]


@in_real_time
async def test_a_model_whose_engines_speak_responses_has_tools_too(there: Real, file: str) -> None:
    call = {
        "type": "function_call",
        "id": "x",
        "call_id": "c1",
        "name": "s__add",
        "arguments": json.dumps(ADD[1]),
    }
    word = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "3!"}]}
    plans = [
        (whole(json.dumps({"id": "r", "status": "completed", "output": [item]}).encode()),)
        for item in (call, word)
    ]
    async with remembering(file, *plans, **mcp(s=there.said()), model={"responses": "native"}) as it:
        response = await it.turn(tools=[tool()])
        assert [item["type"] for item in response["output"]] == ["mcp_list_tools", "mcp_call", "message"]
        assert response["output"][1]["output"] == "3"
        assert [item["type"] for item in it.told.bodies[1]["input"]][1:] == [
            "function_call",
            "function_call_output",
        ]
