"""The request: what is read of it, and what is refused by its name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.responses import response_create_params
from typing_extensions import get_annotations

from maitred.core.outcome import Outcome, Refusal
from maitred.wire.responses.create import Said, decode
from tests.wire.responses.parts import CUSTOM, FUNCTION, asked

SCHEMA = {"type": "json_schema", "name": "s", "schema": {"type": "object"}, "strict": True}
NO_CUSTOM = {"type": "custom", "name": "look"}
SUPPORTED: dict[str, Any] = {
    "background": True,
    "conversation": {"id": "conv_1"},
    "frequency_penalty": 1,
    "include": ["message.output_text.logprobs", "reasoning.encrypted_content"],
    "input": [{"role": "user", "content": "hi"}],
    "instructions": "be brief",
    "max_output_tokens": 9,
    "max_tool_calls": 2,
    "metadata": {"a": "b"},
    "model": "m",
    "parallel_tool_calls": False,
    "presence_penalty": -1.5,
    "previous_response_id": "resp_1",
    "prompt_cache_key": "k",
    "reasoning": {"effort": "low", "summary": "auto"},
    "safety_identifier": "s",
    "service_tier": "flex",
    "store": True,
    "stream": True,
    "stream_options": {"include_obfuscation": False},
    "temperature": 0.5,
    "text": {"format": SCHEMA, "verbosity": "medium"},
    "tool_choice": {"type": "function", "name": "look"},
    "tools": [FUNCTION, CUSTOM],
    "top_logprobs": 3,
    "top_p": 0.5,
    "truncation": "auto",
    "user": "u",
}


def refused(body: dict[str, Any]) -> str | None:
    """The member that is named when this is refused."""
    with pytest.raises(Refusal) as caught:
        decode(json.dumps(body).encode())
    assert caught.value.outcome is Outcome.BAD_REQUEST
    assert caught.value.param is None or caught.value.param in caught.value.message
    return caught.value.param


@pytest.mark.parametrize("left_out", ["conversation", "previous_response_id"])
def test_all_that_is_supported(left_out: str) -> None:
    create = decode(json.dumps({k: v for k, v in SUPPORTED.items() if k != left_out}).encode())
    assert create.said.model == "m"
    assert create.conversation_id == (None if left_out == "conversation" else "conv_1")
    assert [tool.name for tool in create.tools if hasattr(tool, "name")] == ["look", "shell"]


def test_null_is_as_good_as_nothing() -> None:
    optional = {name: None for name in SUPPORTED if name not in ("input", "model")}
    assert asked(**optional).said.stream is None


def test_every_member_of_the_official_clients_is_known_by_name() -> None:
    """So that none of them is called unknown, and none is taken that is not looked after."""
    theirs = set(get_annotations(response_create_params.ResponseCreateParamsBase)) | {"stream"}
    ours = {field.removesuffix("_") for field in Said.__struct_fields__}
    assert theirs <= ours
    assert ours - theirs == {"frequency_penalty", "presence_penalty"}
    for name in sorted(theirs - SUPPORTED.keys()):
        assert refused({"model": "m", "input": "hi", name: {}}) == name


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"wibble": 1}, "wibble"),
        ({"priority": 3}, "priority"),
        ({"input": 5}, "input"),
        ({"input": []}, "input"),
        ({"input": None}, "input"),
        ({"previous_response_id": "r", "conversation": "c"}, "conversation"),
        ({"previous_response_id": ""}, "previous_response_id"),
        ({"conversation": {"id": "c", "name": "n"}}, "conversation.name"),
        ({"stream": "yes"}, "stream"),
        ({"background": True, "store": False}, "background"),
        ({"temperature": 2.5}, "temperature"),
        ({"top_p": -0.1}, "top_p"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"include": ["file_search_call.results"]}, "include[0]"),
        ({"truncation": "middle"}, "truncation"),
        ({"service_tier": "gold"}, "service_tier"),
        ({"metadata": {str(n): "" for n in range(17)}}, "metadata"),
        ({"metadata": {"x" * 65: ""}}, "metadata"),
        ({"stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation"),
        ({"reasoning": {"summary": "detailed"}}, "reasoning.summary"),
        ({"reasoning": {"effort": "more"}}, "reasoning.effort"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "name": "s"}}}, "text.format.schema"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"name": "f"}]}, "tools[0].type"),
        ({"tools": [FUNCTION, {**CUSTOM, "format": {"type": "grammar"}}]}, "tools[1].format.type"),
        ({"tools": [{**FUNCTION, "defer_loading": True}]}, "tools[0].defer_loading"),
        ({"tools": [{**FUNCTION, "async": True}]}, "tools[0].async"),
        ({"tools": [FUNCTION, FUNCTION]}, "tools[1]"),
        ({"tools": [FUNCTION, {"type": "mcp", "server_label": "s"}, NO_CUSTOM]}, "tools[2]"),
        ({"tools": [{"type": "mcp", "server_label": "s", "connector_id": "x"}]}, "tools[0].connector_id"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [FUNCTION], "tool_choice": {"type": "function", "name": "other"}}, "tool_choice"),
        ({"tools": [FUNCTION], "tool_choice": NO_CUSTOM}, "tool_choice"),
        ({"tools": [FUNCTION], "tool_choice": {"type": "web_search_preview"}}, "tool_choice.type"),
        (
            {
                "tools": [FUNCTION],
                "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [NO_CUSTOM]},
            },
            "tool_choice",
        ),
    ],
)  # fmt: skip
def test_refused_by_name(members: dict[str, Any], param: str) -> None:
    assert refused({"model": "m", "input": "hi", **members}) == param


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"input": "\xff"}', b'{"input":' + b"[" * 2000])
def test_no_body_at_all(body: bytes) -> None:
    with pytest.raises(Refusal) as caught:
        decode(body)
    assert caught.value.outcome is Outcome.BAD_REQUEST


def test_what_is_wrong_is_told_without_repeating_it() -> None:
    secret = "what the client says stays with the client"
    for members in (
        {"truncation": secret},
        {"stream": secret},
        {"tools": [{"type": secret}]},
        {"metadata": {"a": secret * 20}},
        {"input": [{"role": secret, "content": ""}]},
    ):
        with pytest.raises(Refusal) as caught:
            asked(**members)
        assert secret not in caught.value.message


def test_kept_unless_the_client_says_no() -> None:
    assert asked().stored
    assert asked(store=None).stored
    assert not asked(store=False).stored


def test_logprobs_are_asked_for_in_two_ways() -> None:
    assert not asked().logprobs
    assert asked(include=["message.output_text.logprobs"]).logprobs
    assert asked(top_logprobs=2).logprobs
