"""Reading OpenAI's answers: what real engines say, what odd ones say, and what nobody can read."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from maitred.core.words import Usage
from maitred.wire.answers import End, Says
from maitred.wire.openai import ANSWER_BEGINS, is_usage_only, judge_end, read_whole, says
from maitred.wire.sse import LAST_EVENTS, Event
from tests.wire.streams import STREAMS, captured, reference

NOTHING, REASONING, CONTENT, ERROR, DONE = Says
ENGINE_ERROR = b'{"error":{"message":"out of memory","type":"server_error","param":null,"code":500}}'


def event(data: bytes, name: bytes = b"") -> Event:
    return Event(name, data)


def choice(**fields: object) -> bytes:
    return json.dumps({"id": "c", "choices": [{"index": 0, **fields}]}).encode()


def delta(**fields: object) -> bytes:
    return choice(delta=fields, finish_reason=None)


# -- one event --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("vllm_chat_stream", {NOTHING: 2, CONTENT: 12, DONE: 1}),
        ("vllm_chat_stream_continuous_usage", {NOTHING: 2, CONTENT: 6, DONE: 1}),
        ("vllm_completions_stream", {NOTHING: 1, CONTENT: 8, DONE: 1}),
        ("llamacpp_chat_stream", {NOTHING: 2, CONTENT: 17, DONE: 1}),
        ("llamacpp_completions_stream", {CONTENT: 9, DONE: 1}),
    ],
)
def test_real_events(name: str, told: dict[Says, int]) -> None:
    assert Counter(says(e) for e in reference(captured(name))) == told


NOTHING_YET = [
    delta(role="assistant"),
    delta(role="assistant", content=""),
    delta(role="assistant", content=None, refusal=None, tool_calls=None, function_call=None),
    delta(),
    delta(tool_calls=[]),
    choice(delta=None),
    choice(text=""),
    b'{"choices":[]}',
    b'{"choices":null,"usage":null,"error":null}',
    b"{}",
]
BEGUN = [
    delta(content="x"),
    delta(content=" "),
    delta(refusal="I cannot"),
    delta(tool_calls=[{"index": 0, "id": "t", "function": {"name": "f", "arguments": ""}}]),
    delta(function_call={"name": "f", "arguments": ""}),
    choice(text="x"),
    choice(delta={}, finish_reason="stop"),
    choice(text="", finish_reason="length"),
    b'{"choices":[{"index":0,"delta":{}},{"index":1,"delta":{"content":"x"}}]}',
]
THOUGHTS = [delta(reasoning="hm"), delta(reasoning_content="hm"), delta(content="", reasoning="hm")]
ERRORS = [
    ENGINE_ERROR,
    b'{"error":{}}',
    b'{"error":"out of memory"}',
    b'{"error":{"code":400},"choices":[{"delta":{"content":"x"}}]}',
]
UNREADABLE = [
    b"",
    b"null",
    b"[]",
    b"7",
    b"{",
    b"{not json}",
    b"[DONE] ",
    b"\xff",
    b'{"choices":[{"delta":{"content":"\xff"}}]}',
    b'{"choices":7}',
    b"[" * 100_000,
    b'{"x":' + b"[" * 100_000,
    b'{"error":' + b"[" * 100_000,
    delta(content=[{"type": "text", "text": "x"}]),
]


@pytest.mark.parametrize("data", NOTHING_YET)
def test_events_before_content(data: bytes) -> None:
    assert says(event(data)) is NOTHING


@pytest.mark.parametrize("data", BEGUN)
def test_content(data: bytes) -> None:
    assert says(event(data)) is CONTENT


@pytest.mark.parametrize("data", THOUGHTS)
def test_reasoning(data: bytes) -> None:
    assert says(event(data)) is REASONING


def test_an_answer_in_the_same_event_outweighs_reasoning() -> None:
    assert says(event(delta(content="x", reasoning="hm"))) is CONTENT


@pytest.mark.parametrize("data", ERRORS)
def test_error_objects(data: bytes) -> None:
    assert says(event(data)) is ERROR


@pytest.mark.parametrize("data", [ENGINE_ERROR, b"{}", b'{"type":"error"}', b"out of memory", b""])
def test_events_named_error(data: bytes) -> None:
    assert says(event(data, b"error")) is ERROR


@pytest.mark.parametrize("data", UNREADABLE, ids=lambda data: repr(data[:24]))
def test_what_cannot_be_read_is_passed_on(data: bytes) -> None:
    assert says(event(data)) is CONTENT
    assert not is_usage_only(data)
    assert not judge_end([event(data)], 1).whole


def test_done() -> None:
    assert says(event(b"[DONE]")) is DONE


# -- the usage event --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STREAMS)
def test_real_usage_events(name: str) -> None:
    found = [is_usage_only(e.data) for e in reference(captured(name))]
    expected = [False] * len(found)
    expected[-2] = name != "llamacpp_completions_stream"
    assert found == expected


@pytest.mark.parametrize(
    ("data", "only"),
    [
        (b'{"choices":[],"usage":{"prompt_tokens":1}}', True),
        (b'{"usage":{"prompt_tokens":1}}', True),
        (b'{"choices":null,"usage":{}}', True),
        (b'{"choices":[],"usage":null}', False),
        (b'{"choices":[{"delta":{}}],"usage":{"prompt_tokens":1}}', False),
        (b'{"choices":[],"usage":{"prompt_tokens":1},"error":{"code":500}}', False),
        (b"[DONE]", False),
    ],
)
def test_usage_events(data: bytes, only: bool) -> None:
    assert is_usage_only(data) is only


# -- the end of a stream ----------------------------------------------------------------------------

FINISH = event(choice(delta={}, finish_reason="stop"))
COUNTS = event(b'{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4}}')
USAGE = Usage(9, 0, 4)
TOKEN, END, FAULT = event(delta(content="x")), event(b"[DONE]"), event(ENGINE_ERROR)


@pytest.mark.parametrize(
    ("name", "usage"),
    [
        ("vllm_chat_stream", Usage(34, 32, 12)),
        ("vllm_chat_stream_continuous_usage", Usage(34, 32, 6)),
        ("vllm_completions_stream", Usage(5, 0, 8)),
        ("llamacpp_chat_stream", Usage(34, 33, 16)),
        ("llamacpp_completions_stream", Usage(5, 4, 8)),
    ],
)
def test_real_ends(name: str, usage: Usage) -> None:
    assert judge_end(reference(captured(name))[-LAST_EVENTS:], 1) == End(whole=True, error=False, usage=usage)


@pytest.mark.parametrize(
    ("last", "sequences", "end"),
    [
        ([COUNTS, END], 1, End(True, False, USAGE)),
        ([COUNTS, END], 2, End(True, False, USAGE)),
        ([FINISH, COUNTS], 1, End(True, False, USAGE)),
        ([FINISH, COUNTS], 2, End(False, False, USAGE)),
        ([TOKEN, FINISH], 1, End(True, False, None)),
        ([TOKEN, FINISH], 2, End(False, False, None)),
        ([FINISH, END], 2, End(True, False, None)),
        ([TOKEN, TOKEN], 1, End(False, False, None)),
        ([END], 1, End(True, False, None)),
        ([], 1, End(False, False, None)),
        ([TOKEN, FAULT], 1, End(False, True, None)),
        ([FAULT, END], 1, End(False, True, None)),
        ([FAULT, COUNTS, END], 1, End(False, True, USAGE)),
        ([event(b"{}", b"error"), COUNTS, END], 2, End(False, True, USAGE)),
        ([FINISH, COUNTS, END], 1, End(True, False, USAGE)),
        ([FINISH, FAULT], 1, End(False, True, None)),
        ([COUNTS, event(b"{}", b"error")], 1, End(False, True, USAGE)),
        ([event(b"out of memory", b"error"), END], 1, End(False, True, None)),
        ([COUNTS, event(b'{"choices":[],"usage":{}}')], 1, End(False, False, USAGE)),
        ([event(b"{"), END], 1, End(True, False, None)),
    ],
)
def test_ends(last: list[Event], sequences: int, end: End) -> None:
    assert judge_end(last, sequences) == end


# -- whole answers ----------------------------------------------------------------------------------

WHOLE = [("vllm_chat_n2", Usage(34, 32, 8)), ("llamacpp_chat_n2", Usage(34, 33, 4))]


@pytest.mark.parametrize(("name", "usage"), WHOLE)
def test_real_answers(name: str, usage: Usage) -> None:
    body = captured(name)
    assert read_whole(body) == (False, usage)


@pytest.mark.parametrize("name", ["vllm_err_unknown_model", "llamacpp_err_bad_type"])
def test_real_errors(name: str) -> None:
    assert read_whole(captured(name)) == (True, None)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"{}", (False, None)),
        (b'{"error":null,"usage":null}', (False, None)),
        (b'{"usage":{}}', (False, None)),
        (b'{"usage":{"prompt_tokens":3}}', (False, Usage(3))),
        (b'{"usage":{"completion_tokens":3,"prompt_tokens_details":null}}', (False, Usage(0, 0, 3))),
        (b'{"data":[],"usage":{"prompt_tokens":3,"total_tokens":3}}', (False, Usage(3))),
        (b'{"error":"out of memory"}', (True, None)),
        (b"", (False, None)),
        (b"null", (False, None)),
        (b"<html>", (False, None)),
        (b"[" * 100_000, (False, None)),
        (b'{"x":' + b"[" * 100_000, (False, None)),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_odd_answers(body: bytes, told: tuple[bool, Usage | None]) -> None:
    assert read_whole(body) == told


# -- where an answer begins -------------------------------------------------------------------------


@pytest.mark.parametrize("data", BEGUN[:4])
def test_an_answer_after_reasoning_is_seen(data: bytes) -> None:
    assert ANSWER_BEGINS.search(data)
    assert ANSWER_BEGINS.search(data.replace(b'": ', b'":'))


@pytest.mark.parametrize("data", [*THOUGHTS, *NOTHING_YET, delta(reasoning='"content":"x"')])
def test_reasoning_is_no_answer(data: bytes) -> None:
    assert not ANSWER_BEGINS.search(data)
