"""Items as chat: what the model reads, the same however the items came to be known."""

from __future__ import annotations

import json
from typing import Any

import pytest

from maitred.core.outcome import Refusal
from maitred.core.words import Api
from maitred.wire import requests
from maitred.wire.responses import chat
from maitred.wire.responses.answer import read
from maitred.wire.responses.tools import FunctionTool, function_name
from tests.wire.responses.parts import CUSTOM, FUNCTION, asked, data, minting, settled, unseal, whole
from tests.wire.responses.test_items import SHORT

IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low"}
LOOK = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at": 1}'}
THOUGHT = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}


def body(items: list[dict[str, Any]] | str = "hi", *, stream: bool = False, **members: Any) -> dict[str, Any]:
    raw = chat.request(asked(**members), data(settled(items)), stream=stream, unseal=unseal)
    assert requests.decode(Api.CHAT, raw).model == "m"  # the door takes it
    told: dict[str, Any] = json.loads(raw)
    return told


def messages(items: list[dict[str, Any]], **members: Any) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = body(items, **members)["messages"]
    return told


def output(call_id: str = "c1", output: Any = "42") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def called(call_id: str = "c1", name: str = "look", arguments: str = '{"at": 1}') -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


# -- members ----------------------------------------------------------------------------------------


def test_the_least() -> None:
    assert body() == {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def test_streams_tell_their_usage() -> None:
    assert body(stream=True)["stream_options"] == {"include_usage": True}


def test_members_that_engines_are_told() -> None:
    said: dict[str, Any] = {
        "temperature": 0.5, "top_p": 0.25, "frequency_penalty": 1.0, "presence_penalty": -1.0,
        "prompt_cache_key": "k", "user": "u",
    }  # fmt: skip
    told = body(**said, max_output_tokens=9, reasoning={"effort": "high"}, top_logprobs=2)
    expected = {**said, "max_tokens": 9, "reasoning_effort": "high", "logprobs": True, "top_logprobs": 2}
    assert told == {**body(), **expected}


def test_members_that_are_the_gateways_alone() -> None:
    told = body(
        metadata={"a": "b"}, store=False, truncation="auto", service_tier="flex", safety_identifier="s",
        max_tool_calls=1, previous_response_id="resp_1", include=["reasoning.encrypted_content"],
    )  # fmt: skip
    assert told == body()


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, {"type": "json_object"}),
        (
            {"type": "json_schema", "name": "s", "schema": {"type": "object"}, "strict": True},
            {
                "type": "json_schema",
                "json_schema": {"name": "s", "schema": {"type": "object"}, "strict": True},
            },
        ),
    ],
)
def test_structured_output(form: dict[str, Any], told: dict[str, Any] | None) -> None:
    assert body(text={"format": form}).get("response_format") == told


# -- tools ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        (None, None),
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ({"type": "function", "name": "look"}, {"type": "function", "function": {"name": "look"}}),
        ({"type": "custom", "name": "shell"}, {"type": "function", "function": {"name": "shell"}}),
    ],
)
def test_choice(choice: Any, told: Any) -> None:
    asked_for = body(tools=[FUNCTION, CUSTOM], tool_choice=choice)
    assert asked_for.get("tool_choice") == told
    assert [tool["function"]["name"] for tool in asked_for["tools"]] == ["look", "shell"]


def test_only_allowed_tools_are_offered() -> None:
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "custom", "name": "shell"}]}
    told = body(tools=[FUNCTION, CUSTOM], tool_choice=allowed)
    assert [tool["function"]["name"] for tool in told["tools"]] == ["shell"]
    assert told["tool_choice"] == "required"


@pytest.mark.parametrize(("said", "told"), [(None, True), (True, True), (False, False)])
def test_engines_are_always_told_of_parallel_calls(said: bool | None, told: bool) -> None:
    assert body(tools=[FUNCTION], parallel_tool_calls=said)["parallel_tool_calls"] is told
    assert "parallel_tool_calls" not in body(parallel_tool_calls=said)


def test_a_function_is_told_whole() -> None:
    tool = {**FUNCTION, "description": "looks", "strict": True}
    function = {name: value for name, value in tool.items() if name != "type"}
    assert body(tools=[tool])["tools"] == [{"type": "function", "function": function}]


def test_a_custom_tool_is_a_function_of_one_text() -> None:
    [tool] = body(tools=[CUSTOM])["tools"]
    assert tool["function"]["parameters"]["required"] == ["input"]


def test_tools_of_servers_come_last() -> None:
    create = asked(tools=[FUNCTION, {"type": "mcp", "server_label": "s"}])
    served = FunctionTool(name=function_name("s", "t"))
    told = json.loads(chat.request(create, data(settled("hi")), stream=False, tools=[served]))
    assert [tool["function"]["name"] for tool in told["tools"]] == ["look", "s__t"]


# -- messages ---------------------------------------------------------------------------------------


def test_all_instructions_before_the_conversation_are_one_message() -> None:
    said = [
        {"role": "system", "content": "one"},
        {"role": "developer", "content": "two"},
        {"role": "user", "content": "hi"},
        {"role": "developer", "content": "later"},
    ]
    assert messages(said, instructions="first") == [
        {"role": "system", "content": "first\n\none\n\ntwo"},
        {"role": "user", "content": "hi"},
        {"role": "system", "content": "later"},
    ]


def test_what_a_model_said_at_once_is_one_message() -> None:
    told = messages(
        [{"role": "user", "content": "hi"}, THOUGHT, {"role": "assistant", "content": "see"}, LOOK]
    )
    assert told[1:] == [
        {
            "role": "assistant",
            "reasoning": "hm",
            "reasoning_content": "hm",
            "content": "see",
            "tool_calls": [called()],
        }
    ]


def test_parallel_calls_and_their_outputs() -> None:
    told = messages([LOOK, {**LOOK, "call_id": "c2"}, output("c2"), output("c1", "x")])
    assert told == [
        {"role": "assistant", "content": None, "tool_calls": [called(), called("c2")]},
        {"role": "tool", "tool_call_id": "c2", "content": "42"},
        {"role": "tool", "tool_call_id": "c1", "content": "x"},
    ]


def test_calls_one_after_the_other() -> None:
    told = messages([LOOK, output(), THOUGHT, {**LOOK, "call_id": "c2"}, output("c2")])
    assert [message["role"] for message in told] == ["assistant", "tool", "assistant", "tool"]
    assert told[2]["reasoning"] == "hm"


def test_whoever_speaks_in_between_ends_what_the_model_said() -> None:
    told = messages([{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}, LOOK])
    assert [message["role"] for message in told] == ["assistant", "user", "assistant"]
    told = messages([LOOK, output(), {**LOOK, "call_id": "c2"}, output("c2")])
    assert [message["role"] for message in told] == ["assistant", "tool", "assistant", "tool"]


def test_a_thought_after_words_begins_another_message() -> None:
    told = messages([{"role": "assistant", "content": "a"}, THOUGHT, {"role": "assistant", "content": "b"}])
    assert [(message["content"], message.get("reasoning")) for message in told] == [("a", None), ("b", "hm")]


def test_a_thought_alone() -> None:
    assert messages([THOUGHT])[0]["content"] == ""


def test_a_refusal_is_what_the_model_said() -> None:
    said = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}
    assert messages([said]) == [{"role": "assistant", "content": "no"}]


def test_images_and_lists() -> None:
    parts = [{"type": "input_text", "text": "see"}, IMAGE]
    told = [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": IMAGE["image_url"], "detail": "low"}},
    ]
    assert messages([{"role": "user", "content": parts}])[0]["content"] == told
    assert messages([LOOK, output(output=parts)])[1]["content"] == told


def test_custom_calls() -> None:
    call = {"type": "custom_tool_call", "call_id": "c1", "name": "shell", "input": 'say "hi"'}
    told = messages([call, {"type": "custom_tool_call_output", "call_id": "c1", "output": "hi"}])
    assert told[0]["tool_calls"] == [called("c1", "shell", '{"input":"say \\"hi\\""}')]
    assert told[1] == {"role": "tool", "tool_call_id": "c1", "content": "hi"}


@pytest.mark.parametrize(
    ("members", "told"),
    [
        ({"output": "42"}, "42"),
        ({"status": "failed", "error": {"type": "http_error"}}, '{"error":{"type":"http_error"}}'),
        ({"status": "incomplete"}, ""),
    ],
)
def test_calls_that_the_gateway_made(members: dict[str, Any], told: str) -> None:
    call = {"type": "mcp_call", "server_label": "s", "name": "t", "arguments": "{}", **members}
    assert messages([call]) == [
        {"role": "assistant", "content": None, "tool_calls": [called("mcp_1", "s__t", "{}")]},
        {"role": "tool", "tool_call_id": "mcp_1", "content": told},
    ]


def test_models_are_not_told_how_the_gateway_asked() -> None:
    told = messages([
        {"type": "mcp_list_tools", "server_label": "s", "tools": []},
        {"type": "mcp_approval_request", "server_label": "s", "name": "t", "arguments": "{}"},
        {"type": "mcp_approval_response", "approval_request_id": "x", "approve": True},
        {"role": "user", "content": "hi"},
    ])  # fmt: skip
    assert told == [{"role": "user", "content": "hi"}]


def test_a_compaction_stands_for_all_before_it() -> None:
    short = {"type": "compaction", "encrypted_content": SHORT}
    before: list[dict[str, Any]] = [{"role": "user", "content": "hi"}, short, LOOK]
    assert messages([*before, short, {"role": "user", "content": "and?"}], instructions="be brief") == [
        {"role": "system", "content": "be brief\n\nWhat was said so far, in short:\n\nin short 👋"},
        {"role": "user", "content": "and?"},
    ]


def test_a_compaction_that_can_no_longer_be_opened() -> None:
    kept = data(settled([{"type": "compaction", "encrypted_content": SHORT}]))
    with pytest.raises(Refusal) as caught:
        chat.request(asked(), kept, stream=False)
    assert caught.value.param == "input"


def test_an_output_without_its_call() -> None:
    with pytest.raises(Refusal) as caught:
        messages([output("c9"), {**LOOK, "call_id": "c9"}])
    assert caught.value.param == "input"


# -- the same conversation, known in two ways -------------------------------------------------------


def test_a_chain_reads_as_the_whole_said_at_once() -> None:
    """Three turns with tools and thoughts, kept item by item, and the same sent back by a client."""
    shell = called("c2", "shell", '{"input":"ls"}')
    answers = [
        whole("tool_calls", reasoning="first I look", tool_calls=[called("c1"), shell]),
        whole("tool_calls", reasoning="again", content="wait", tool_calls=[called("c3")]),
        whole("stop", content="it is 42"),
    ]  # fmt: skip
    inputs: list[list[dict[str, Any]]] = [
        [{"role": "user", "content": [{"type": "input_text", "text": "what is it?"}, IMAGE]}],
        [output("c1", [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]),
         {"type": "custom_tool_call_output", "call_id": "c2", "output": "x"}],
        [output("c3")],
        [{"role": "user", "content": "thanks"}],
    ]  # fmt: skip
    create, mint = asked(tools=[FUNCTION, CUSTOM]), minting()
    kept: list[bytes] = []
    explicit: list[dict[str, Any]] = []
    for said, answer in zip(inputs, [*answers, None], strict=True):
        kept += data(settled(said))
        explicit += said
        again = data(settled(explicit))
        assert chat.request(create, kept, stream=False) == chat.request(create, again, stream=False)
        if answer is not None:
            items = read(answer, create, mint).items
            kept += data(items)
            explicit += [json.loads(item.data) for item in items]
    roles = [message["role"] for message in json.loads(chat.request(create, kept, stream=False))["messages"]]
    assert roles == ["user", "assistant", "tool", "tool", "assistant", "tool", "assistant", "user"]


@pytest.mark.parametrize(
    ("of_chat", "told"),
    [
        (None, None),
        ("messages[3].content[0].image_url", "input"),
        ("max_tokens", "max_output_tokens"),
        ("response_format.json_schema", "text.format"),
        ("model", "model"),
    ],
)
def test_refusals_name_what_the_client_said(of_chat: str | None, told: str | None) -> None:
    assert chat.param(of_chat) == told
