"""Counting and compacting: what may be said, what the model is asked, what is told of its answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.responses import CompactedResponse, InputTokenCountResponse

from maitred.core.outcome import Refusal
from maitred.wire.responses import chat
from maitred.wire.responses.answer import read
from maitred.wire.responses.beside import REQUEST, asking, compacted, counted, summary
from maitred.wire.responses.create import decode_compact, decode_count
from maitred.wire.responses.response import Usage
from tests.wire.responses.parts import FUNCTION, SEAL, data, known, minting, settled, whole
from tests.wire.responses.test_create import SUPPORTED


def said(**members: Any) -> bytes:
    return json.dumps({"model": "m", "input": "hi", **members}).encode()


def test_a_count_asks_for_one_token_of_the_same_prompt() -> None:
    members = {
        "instructions": "be brief", "tools": [FUNCTION], "tool_choice": {"type": "function", "name": "look"},
        "parallel_tool_calls": False, "reasoning": {"effort": "low"}, "truncation": "auto",
        "text": SUPPORTED["text"], "conversation": "conv_1",
    }  # fmt: skip
    create = decode_count(said(**members))
    assert (create.stored, create.conversation_id) == (False, "conv_1")
    told = json.loads(chat.request(create, data(settled("hi")), stream=False))
    assert told["max_tokens"] == 1
    assert told["tools"][0]["function"]["name"] == "look"
    assert (told["reasoning_effort"], told["parallel_tool_calls"]) == ("low", False)
    assert {"tool_choice", "response_format"}.isdisjoint(told)


def test_a_compaction_asks_for_a_summary() -> None:
    create = decode_compact(
        said(instructions="be brief", previous_response_id="resp_1", prompt_cache_key="k")
    )
    assert not create.stored
    told = json.loads(chat.request(create, asking(data(settled("hi")), minting()), stream=False))
    assert [message["content"] for message in told["messages"]] == ["be brief", "hi", REQUEST]
    assert told["prompt_cache_key"] == "k"


@pytest.mark.parametrize(
    ("decode", "members", "param"),
    [
        (decode_count, {"personality": "friendly"}, "personality"),
        (decode_count, {"stream": True}, "stream"),
        (decode_count, {"tool_choice": "required"}, "tool_choice"),
        (decode_count, {"previous_response_id": "r", "conversation": "c"}, "conversation"),
        (decode_count, {"input": None}, "input"),
        (decode_compact, {"tools": []}, "tools"),
        (decode_compact, {"conversation": "c"}, "conversation"),
        (decode_compact, {"prompt_cache_options": {}}, "prompt_cache_options"),
        (decode_compact, {"input": None}, "input"),
    ],
)
def test_refused_by_name(decode: Any, members: dict[str, Any], param: str) -> None:
    with pytest.raises(Refusal) as caught:
        decode(said(**members))
    assert caught.value.param == param


def test_told() -> None:
    assert InputTokenCountResponse.model_validate_json(counted(Usage(7)), strict=True).input_tokens == 7
    answer = read(whole(reasoning="hm", content="in short"), decode_compact(said()), minting())
    raw = compacted("resp_1", 5, SEAL.close("a", summary(answer)), None, minting())
    told = known(CompactedResponse.model_validate_json(raw, strict=True))
    [item] = json.loads(raw)["output"]
    assert told.output[0].type == "compaction"
    [again] = settled([item])
    assert json.loads(again.data) == item


def test_a_call_is_no_summary() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    assert summary(read(whole("tool_calls", tool_calls=[call]), decode_compact(said()), minting())) == ""
