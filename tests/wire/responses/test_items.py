"""Items: every form in which they come, and the one in which they are kept."""

from __future__ import annotations

import json
from typing import Any

import pytest

from maitred.core.outcome import Refusal
from maitred.wire.responses.input import settle
from tests.wire.responses.parts import SEAL, asked, minting, parsed, settled

TEXT = {"type": "input_text", "text": "hi"}
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low"}
SAID = {"type": "output_text", "text": "hello", "annotations": []}

SHORT = SEAL.close("a", "in short 👋")
WITHOUT_STATUS = {
    "compaction", "mcp_approval_request", "mcp_approval_response", "mcp_call", "mcp_list_tools",
    "custom_tool_call", "custom_tool_call_output",
}  # fmt: skip
KINDS: list[dict[str, Any]] = [
    {"type": "message", "role": "user", "content": [TEXT, IMAGE]},
    {"type": "message", "role": "developer", "content": [TEXT]},
    {"type": "message", "role": "assistant", "id": "msg_9", "status": "completed", "content": [SAID]},
    {"type": "message", "role": "assistant", "phase": "commentary", "content": [SAID]},
    {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": None},
    {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}", "caller": None},
    {"type": "function_call_output", "call_id": "c", "output": "42"},
    {"type": "function_call_output", "call_id": "c", "output": [TEXT, IMAGE], "status": "completed"},
    {"type": "custom_tool_call", "call_id": "c", "name": "shell", "input": "ls"},
    {"type": "custom_tool_call_output", "call_id": "c", "output": "a b"},
    {"type": "mcp_list_tools", "server_label": "s", "tools": [{"name": "t", "input_schema": {}}]},
    {"type": "mcp_call", "server_label": "s", "name": "t", "arguments": "{}", "output": "42"},
    {
        "type": "mcp_call",
        "server_label": "s",
        "name": "t",
        "arguments": "{}",
        "status": "failed",
        "error": {"type": "http_error", "code": 500, "message": "m"},
    },
    {"type": "mcp_approval_request", "server_label": "s", "name": "t", "arguments": "{}"},
    {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": False, "reason": "no"},
    {"type": "compaction", "encrypted_content": SHORT},
]


@pytest.mark.parametrize("item", KINDS, ids=lambda item: item["type"])
def test_kept_in_the_form_that_the_official_client_reads(item: dict[str, Any]) -> None:
    [kept] = settled([item])
    told = parsed(kept.data)
    assert told.id == kept.id != "msg_9"
    assert told.type == item["type"]
    for name, value in item.items():
        if name in ("output", "content", "text"):
            assert json.loads(kept.data)[name] == _with_defaults(value)
        elif name != "id":
            assert json.loads(kept.data)[name] == value


def _with_defaults(value: Any) -> Any:
    if isinstance(value, list):
        return [part | {"logprobs": []} if part["type"] == "output_text" else part for part in value]
    return value


@pytest.mark.parametrize("item", KINDS, ids=lambda item: item["type"])
def test_what_is_kept_can_be_said_again(item: dict[str, Any]) -> None:
    [kept] = settled([item])
    [again] = settled([json.loads(kept.data)])
    assert again == kept


def test_text_alone_is_the_users() -> None:
    [kept] = settled("hi")
    assert json.loads(kept.data) == {
        "type": "message", "id": "msg_1", "role": "user", "status": "completed", "content": [TEXT]
    }  # fmt: skip


@pytest.mark.parametrize("role", ["user", "system", "developer"])
def test_messages_made_easy(role: str) -> None:
    assert settled([{"role": role, "content": "hi"}]) == settled(
        [{"type": "message", "role": role, "content": [TEXT]}]
    )


def test_what_a_model_said_is_output_however_it_comes() -> None:
    kept = [settled([{"role": "assistant", "content": content}]) for content in ("hello", [SAID])]
    kept.append(settled([{"role": "assistant", "content": [{"type": "input_text", "text": "hello"}]}]))
    assert kept[0] == kept[1] == kept[2]


@pytest.mark.parametrize("item", [item for item in KINDS if item["type"] not in WITHOUT_STATUS])
def test_null_is_as_good_as_no_status(item: dict[str, Any]) -> None:
    [kept] = settled([{name: value for name, value in item.items() if name != "status"} | {"status": None}])
    assert parsed(kept.data).status == "completed"


def test_ids_are_ours() -> None:
    item = {"role": "assistant", "type": "message", "id": "msg_theirs", "content": "a"}
    kept = settled([item, item])
    assert [one.id for one in kept] == ["msg_1", "msg_2"]


@pytest.mark.parametrize("reference", [{"id": "msg_5"}, {"type": "item_reference", "id": "msg_5"}])
def test_a_reference_becomes_a_copy(reference: dict[str, str]) -> None:
    [old] = settled([{"role": "assistant", "content": "before"}])
    create = asked(input=[reference, {"role": "user", "content": "hi"}])
    assert create.input.references == ("msg_5",)
    copy, _ = settle(create.input, minting(), {"msg_5": old.data.replace(b"msg_1", b"msg_5")})
    assert copy == old


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"role": "user", "content": "hi", "name": "me"}, "input[0].name"),
        ({"role": "user"}, "input[0].content"),
        ({"role": "tool", "content": "x"}, "input[0].role"),
        ({"type": "web_search_call"}, "input[0].type"),
        ({"type": "local_shell_call"}, "input[0].type"),
        ({"text": "hi"}, "input[0].text"),
        ({"role": "user", "content": [TEXT, {"type": "input_file"}]}, "input[0].content[1].type"),
        ({"role": "user", "content": [{**IMAGE, "file_id": "f"}]}, "input[0].content[0].file_id"),
        ({"role": "user", "content": [SAID]}, "input[0].content[0].type"),
        ({"role": "system", "content": [IMAGE]}, "input[0].content[0].type"),
        ({"role": "assistant", "content": [IMAGE]}, "input[0].content[0].type"),
        ({"role": "user", "content": [{**TEXT, "prompt_cache_breakpoint": {}}]},
         "input[0].content[0].prompt_cache_breakpoint"),
        ({"type": "reasoning", "summary": [], "encrypted_content": "x"}, "input[0].encrypted_content"),
        ({"type": "compaction", "encrypted_content": "gAAAAB"}, "input[0].encrypted_content"),
        ({"type": "function_call", "name": "f", "arguments": "{}"}, "input[0].call_id"),
        ({"type": "function_call_output", "output": "x"}, "input[0].call_id"),
        ({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "namespace": "n"},
         "input[0].namespace"),
    ],
)  # fmt: skip
def test_refused_by_name(item: dict[str, Any], param: str) -> None:
    with pytest.raises(Refusal) as caught:
        settled([item])
    assert caught.value.param == param


def test_approvals_name_their_requests_under_ids_of_ours() -> None:
    request = {"type": "mcp_approval_request", "server_label": "s", "name": "t", "arguments": "{}"}
    said: list[dict[str, Any]] = [
        {**request, "id": "mcpr_theirs"},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_theirs", "approve": True},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_kept", "approve": True},
    ]
    asked_, own, kept = [json.loads(item.data) for item in settled(said)]
    assert asked_["id"] != "mcpr_theirs"
    assert own["approval_request_id"] == asked_["id"]
    assert kept["approval_request_id"] == "mcpr_kept"
