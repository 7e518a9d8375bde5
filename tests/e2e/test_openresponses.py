"""The acceptance cases of OpenResponses, in our words, on a real engine; its models judge the answers.

The set is that of github.com/openresponses/openresponses, bin/compliance-test.ts. Tools and images are in
tests/responses, for the model of this engine has no hands and is blind. Files are refused by name, as are
file search and web search, which the set leaves to who offers them.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.children import MODEL, Gateway, ask, post
from tests.responses.published import judge, judge_events

PATH = "/v1/responses"


def user(said: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": said}


def whole(gateway: Gateway, said: Any, **members: Any) -> dict[str, Any]:
    status, _, body = post(gateway.port, PATH, {"model": MODEL, "input": said, "temperature": 0, **members})
    answer: dict[str, Any] = json.loads(body)
    assert status == 200, answer
    return answer


def streamed(gateway: Gateway, said: Any, **members: Any) -> list[dict[str, Any]]:
    body = {"model": MODEL, "input": said, "temperature": 0, "stream": True, **members}
    with ask(gateway.port, "POST", PATH, body) as answer:
        lines = [line[6:].rstrip() for line in answer if line.startswith(b"data: ")]
    assert lines.pop() == b"[DONE]"
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    "said",
    [
        pytest.param([user("Greet me in three words.")], id="basic-response"),
        pytest.param(
            [{"type": "message", "role": "system", "content": "You are a sailor."}, user("Greet me.")],
            id="system-prompt",
        ),
        pytest.param(
            [
                user("I am called Anna."),
                {"type": "message", "role": "assistant", "content": "Hello Anna!"},
                user("What am I called?"),
            ],
            id="multi-turn",
        ),
    ],
)
def test_a_message_is_answered(gateway: Gateway, engines: object, said: Any) -> None:
    judge(whole(gateway, said), output="message")


def test_streaming_response(gateway: Gateway) -> None:
    kinds = judge_events(streamed(gateway, [user("Count to five.")]), output="message")
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert "response.output_text.delta" in kinds


def test_previous_response_id(gateway: Gateway) -> None:
    first = judge(whole(gateway, "The word is papaya. Say that you know it."))
    second = judge(whole(gateway, "Which word is it?", previous_response_id=first["id"]))
    assert second["previous_response_id"] == first["id"]
    assert second["usage"]["input_tokens"] > first["usage"]["total_tokens"]


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"input": [{**user(""), "content": [{"type": "input_file", "file_data": "data:,x"}]}]}, "input"),
        ({"tools": [{"type": "file_search", "vector_store_ids": ["vs_1"]}]}, "tools"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
    ],
)
def test_what_is_not_offered_is_refused_by_name(gateway: Gateway, members: Any, param: str) -> None:
    status, _, body = post(gateway.port, PATH, {"model": MODEL, "input": "hi", **members})
    assert status == 400
    assert json.loads(body)["error"]["param"].startswith(param)
