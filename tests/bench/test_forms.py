"""The APIs: what their answers tell, read from what real engines answered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from maitred.bench.forms import FORMS, judge_whole, text_of, told
from maitred.bench.text import Texts
from maitred.wire.answers import Says
from maitred.wire.sse import Event, Scanner
from tests.bench.place import ENGINES, TWIN, arrival, captured

STREAMS = [
    (ENGINES / "vllm_chat_stream.txt", "chat"),
    (ENGINES / "vllm_chat_stream_continuous_usage.txt", "chat"),
    (ENGINES / "llamacpp_chat_stream.txt", "chat"),
    (ENGINES / "vllm_completions_stream.txt", "completions"),
    (ENGINES / "llamacpp_completions_stream.txt", "completions"),
    (TWIN / "responses_stream.txt", "responses"),
]


def events(path: Path) -> list[Event]:
    """The events of a captured stream."""
    return Scanner().feed(captured(path))


@pytest.mark.parametrize(("path", "form"), STREAMS, ids=lambda it: it.stem if isinstance(it, Path) else it)
def test_events_with_tokens_are_as_many_as_the_engine_says(path: Path, form: str) -> None:
    there = events(path)
    tokens = [it for it in there if FORMS[form].token.search(it.data)]
    said = [it for it in map(told, (event.data for event in there)) if it]
    assert len(tokens) == said[-1].output_tokens
    assert "".join(text_of(it.data) for it in tokens).strip()
    others = [FORMS[form].says(it) for it in there if it not in tokens]
    assert Says.DONE in others
    assert Says.ERROR not in others


@pytest.mark.parametrize(
    ("event", "thinking"),
    [
        (b'{"choices":[{"delta":{"reasoning_content":"hm"}}]}', True),
        (b'{"choices":[{"delta":{"reasoning": "hm", "content": ""}}]}', True),
        (b'{"choices":[{"delta":{"content":"\\"quoted\\""}}]}', False),
        (b'{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}', False),
        (b'{"choices":[{"delta":{"refusal":"no"}}]}', False),
    ],
)
def test_what_is_thought_is_no_answer(event: bytes, thinking: bool) -> None:
    found = FORMS["chat"].token.search(event)
    assert found is not None
    assert (found.lastindex is not None) is thinking


@pytest.mark.parametrize(
    "event",
    [
        b'{"choices":[{"delta":{"role":"assistant","content":""}}]}',
        b'{"choices":[{"delta":{"role":"assistant","content":null}}]}',
        b'{"choices":[{"delta":{"tool_calls":[]},"finish_reason":"stop"}]}',
        b'{"choices":[],"usage":{"prompt_tokens":1}}',
    ],
)
def test_events_without_a_token(event: bytes) -> None:
    assert FORMS["chat"].token.search(event) is None


def test_a_response_is_thought_and_said() -> None:
    find = FORMS["responses"].token.search
    thought = find(b'{"delta":"hm","type":"response.reasoning_text.delta"}')
    said = find(b'{"type": "response.output_text.delta", "delta": "yes"}')
    assert thought
    assert thought.lastindex
    assert said
    assert not said.lastindex
    assert not find(b'{"type":"response.output_text.done","text":"response.output_text.delta"}')
    says = FORMS["responses"].says
    assert says(Event(b"response.failed", b"{}")) is Says.ERROR
    assert says(Event(b"error", b"{}")) is Says.ERROR
    assert says(Event(b"response.incomplete", b"{}")) is Says.DONE
    assert says(Event(b"response.created", b"{}")) is Says.NOTHING


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("chat", {"messages": [{"role": "user", "content": "TEXT"}], "max_tokens": 9}),
        ("completions", {"prompt": "TEXT", "max_tokens": 9}),
        (
            "responses",
            {"input": [{"role": "user", "content": "TEXT"}], "store": False, "max_output_tokens": 9},
        ),
        ("embeddings", {"input": "TEXT"}),
    ],
)
def test_how_a_request_is_written(form: str, said: dict[str, object]) -> None:
    texts, asked = Texts(), arrival(prompt=10, output=9)
    body = b"{%b}" % FORMS[form].body(texts, asked).replace(texts.prompt(asked), b"TEXT")
    assert json.loads(body) == said


def test_what_servers_tell() -> None:
    usage = b'"usage":{"prompt_tokens":9,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":8}}'
    vllm = told(b'{%b,"metrics":{"queue_time_ms":12.5,"time_to_first_token_ms":80}}' % usage)
    assert vllm is not None
    assert (vllm.prompt_tokens, vllm.output_tokens, vllm.cached_tokens) == (9, 3, 8)
    assert (vllm.queue_s, vllm.prefill_s) == (0.0125, 0.08)
    llamacpp = told(events(ENGINES / "llamacpp_chat_stream.txt")[-2].data)
    assert llamacpp is not None
    assert (llamacpp.prompt_tokens, llamacpp.output_tokens, llamacpp.cached_tokens) == (34, 16, 33)
    assert llamacpp.queue_s is None
    assert llamacpp.prefill_s == pytest.approx(0.016346)
    response = told(captured(TWIN / "responses.txt"))
    assert response is not None
    assert response.prompt_tokens > 0
    plain = told(b'{"usage":{"prompt_tokens":9,"completion_tokens":3}}')
    assert plain is not None
    assert plain.cached_tokens is None, "not told, which is not none"


@pytest.mark.parametrize("data", [b"[DONE]", b"{}", b'{"usage":null}', b'{"usage":{}}', b"\xff", b"[" * 9999])
def test_who_tells_nothing(data: bytes) -> None:
    assert told(data) is None
    assert text_of(data) == ""


def test_whole_answers() -> None:
    chat, response = captured(TWIN / "chat.txt"), captured(TWIN / "responses.txt")
    assert text_of(chat).startswith("1. Red")
    assert text_of(response)
    assert text_of(captured(TWIN / "completions.txt"))
    assert judge_whole(chat) == judge_whole(response) == ""
    assert judge_whole(chat[:-1]) == "truncated"
    assert judge_whole(b'{"error":{"message":"no"}}') == "error_event"
