"""A chat answer in one piece as items."""

from __future__ import annotations

import json
from typing import Any

import pytest

from maitred.wire.responses.answer import BROKEN, Answer, read
from maitred.wire.responses.response import InputDetails, OutputDetails, Usage
from tests.wire.responses.parts import CUSTOM, FUNCTION, asked, minting, parsed, whole
from tests.wire.streams import captured

CREATE = asked(tools=[FUNCTION, CUSTOM])
LOGPROBS = [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}]


def answer(body: bytes) -> Answer:
    told = read(body, CREATE, minting())
    for item in told.items:
        assert parsed(item.data).id == item.id
    return told


def items(body: bytes) -> list[dict[str, Any]]:
    return [json.loads(item.data) for item in answer(body).items]


def call(call_id: str = "c1", name: str = "look", arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_words() -> None:
    [item] = items(whole(content="hello"))
    assert item["content"] == [{"type": "output_text", "text": "hello", "annotations": [], "logprobs": []}]
    assert (item["role"], item["status"]) == ("assistant", "completed")


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_thoughts(name: str) -> None:
    thought, message = items(whole(content="hello", **{name: "hm"}))
    assert thought["content"] == [{"type": "reasoning_text", "text": "hm"}]
    assert message["type"] == "message"


def test_words_and_a_refusal_are_one_message() -> None:
    [item] = items(whole(content="well", refusal="no"))
    assert [part["type"] for part in item["content"]] == ["output_text", "refusal"]


def test_calls() -> None:
    told = answer(
        whole("tool_calls", content=None, tool_calls=[call(), call("c2", "shell", '{"input": "ls"}')])
    )
    function, custom = (json.loads(item.data) for item in told.items)
    assert (function["type"], function["call_id"], function["arguments"]) == ("function_call", "c1", "{}")
    assert (custom["type"], custom["call_id"], custom["input"]) == ("custom_tool_call", "c2", "ls")
    assert [one.call_id for one in told.calls] == ["c1", "c2"]


def test_a_call_without_an_id_gets_one() -> None:
    [item] = items(whole("tool_calls", tool_calls=[call("")]))
    assert item["call_id"] == "call_1"


def test_a_custom_call_in_another_form_is_told_as_it_is() -> None:
    [item] = items(whole("tool_calls", tool_calls=[call("c", "shell", "ls -l")]))
    assert item["input"] == "ls -l"


def test_calls_of_the_gateways_own_tools_are_no_items() -> None:
    body = whole("tool_calls", tool_calls=[call("c1", "s__t"), call("c2")])
    told = read(body, CREATE, minting(), lambda name: name.startswith("s__"))
    assert [one.call_id for one in told.calls] == ["c1", "c2"]
    assert [json.loads(item.data)["call_id"] for item in told.items] == ["c2"]


@pytest.mark.parametrize(("finish", "reason"), [("length", "max_output_tokens"), ("content_filter",) * 2])
def test_an_answer_that_ends_early(finish: str, reason: str) -> None:
    told = answer(whole(finish, reasoning="hm", content="hel"))
    assert told.incomplete == reason
    assert [json.loads(item.data)["status"] for item in told.items] == ["completed", "incomplete"]


def test_nothing_is_a_message_too() -> None:
    [item] = items(whole(content=""))
    assert item["content"][0]["text"] == ""


def test_usage() -> None:
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 4, "created_cache_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    told = answer(whole(content="a", usage=usage)).usage
    assert told == Usage(9, InputDetails(4, 3), 5, OutputDetails(2), 14)
    assert told + told == Usage(18, InputDetails(8, 6), 10, OutputDetails(4), 28)
    assert answer(whole(content="a", usage={"prompt_tokens_details": None})).usage == Usage()
    assert answer(whole(content="a")).usage is None


def test_logprobs() -> None:
    [item] = items(whole(content="a", logprobs={"content": LOGPROBS}))
    assert item["content"][0]["logprobs"] == LOGPROBS


@pytest.mark.parametrize("body", [b"", b"{}", b'{"choices": []}', b'{"choices": [{}]}', b'{"choices": 3}'])
def test_what_cannot_be_read(body: bytes) -> None:
    assert answer(body) == Answer([], error=BROKEN)


def test_an_answer_that_the_engine_gave_up() -> None:
    told = answer(whole("abort", content="hel"))
    assert told.error
    assert json.loads(told.items[0].data)["status"] == "incomplete"


@pytest.mark.parametrize("name", ["vllm_chat", "llamacpp_chat"])
def test_real_answers(name: str) -> None:
    told = answer(captured(name))
    assert told.incomplete == "max_output_tokens"
    assert told.usage is not None
    assert told.usage.total_tokens == 66
    assert parsed(told.items[0].data).content[0].text.startswith("1. Red")


@pytest.mark.parametrize("name", ["vllm_chat_logprobs", "llamacpp_chat_logprobs"])
def test_real_logprobs(name: str) -> None:
    [item] = answer(captured(name)).items
    text = parsed(item.data).content[0]
    assert "".join(one.token for one in text.logprobs) == text.text
