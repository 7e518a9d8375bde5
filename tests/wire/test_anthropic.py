"""Reading Anthropic's answers: what real engines say, what odd ones say, and what nobody can read."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from maitred.core.words import Usage
from maitred.wire.answers import End, Says
from maitred.wire.anthropic import ANSWER_BEGINS, judge_end, read_whole, says
from maitred.wire.sse import LAST_EVENTS, Event
from tests.wire.streams import captured, reference

NOTHING, REASONING, CONTENT, ERROR, DONE = Says
OVERLOADED = b'{"type":"error","error":{"type":"overloaded_error","message":"busy"}}'
STREAMS = ["vllm_messages_stream", "llamacpp_messages_stream"]


def event(kind: str, **fields: object) -> Event:
    return Event(kind.encode(), json.dumps({"type": kind, **fields}).encode())


def start(**usage: int) -> Event:
    return event("message_start", message={"role": "assistant", "content": [], "usage": usage})


def block(kind: str, **fields: object) -> Event:
    return event("content_block_start", index=0, content_block={"type": kind, **fields})


def delta(kind: str, **fields: object) -> Event:
    return event("content_block_delta", index=0, delta={"type": kind, **fields})


def finish(**usage: int) -> Event:
    return event("message_delta", delta={"stop_reason": "end_turn"}, usage=usage)


STOP, PING, CLOSE = event("message_stop"), event("ping"), event("content_block_stop", index=0)
FAULT = Event(b"error", OVERLOADED)


# -- one event --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STREAMS)
def test_real_events(name: str) -> None:
    told = Counter(says(e) for e in reference(captured(name)))
    assert told == {NOTHING: 3, CONTENT: 9, DONE: 1}


@pytest.mark.parametrize(
    "told",
    [
        start(input_tokens=3),
        PING,
        CLOSE,
        block("text", text=""),
        block("thinking", thinking="", signature=""),
        delta("text_delta", text=""),
        delta("input_json_delta", partial_json=""),
        delta("thinking_delta", thinking=""),
        delta("signature_delta", signature="c2ln"),
        event("something_new", of={"no": "concern"}),
    ],
)
def test_events_before_content(told: Event) -> None:
    assert says(told) is NOTHING


@pytest.mark.parametrize(
    "told",
    [
        delta("text_delta", text="x"),
        delta("input_json_delta", partial_json="{"),
        delta("citations_delta", citation={}),
        block("text", text="x"),
        block("tool_use", id="t", name="f", input={}),
        block("server_tool_use", id="t", name="f", input={}),
        finish(output_tokens=0),
    ],
)
def test_content(told: Event) -> None:
    assert says(told) is CONTENT


@pytest.mark.parametrize(
    "told", [delta("thinking_delta", thinking="hm"), block("redacted_thinking", data="x")]
)
def test_reasoning(told: Event) -> None:
    assert says(told) is REASONING


@pytest.mark.parametrize(
    "told",
    [
        FAULT,
        Event(b"error", b"out of memory"),
        Event(b"", OVERLOADED),
        Event(b"", b'{"error":{"code":500,"message":"out of memory"}}'),
    ],
)
def test_errors(told: Event) -> None:
    assert says(told) is ERROR
    assert judge_end([start(input_tokens=3), told], 1).error


@pytest.mark.parametrize(
    "data", [b"", b"{not json}", b"[]", b'{"type":1}', b'{"delta":' + b"[" * 100_000, b'"\xff"']
)
def test_what_cannot_be_read_is_passed_on(data: bytes) -> None:
    assert says(Event(b"", data)) is CONTENT
    assert judge_end([Event(b"", data)], 1) == End(whole=False, error=False, usage=None)
    assert read_whole(data) == (False, None)


def test_done() -> None:
    assert says(STOP) is DONE
    assert says(Event(b"", b"[DONE]")) is DONE


# -- the end of a stream ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "usage"),
    [("vllm_messages_stream", Usage(34, 32, 8)), ("llamacpp_messages_stream", Usage(34, 33, 8))],
)
def test_real_ends(name: str, usage: Usage) -> None:
    events = reference(captured(name))
    end = judge_end([events[0], *events[-LAST_EVENTS:]], 1)
    assert end == End(whole=True, error=False, usage=usage)


@pytest.mark.parametrize(
    ("told", "end"),
    [
        ([start(input_tokens=9), finish(output_tokens=4), STOP], End(True, False, Usage(9, 0, 4))),
        ([start(input_tokens=9), STOP], End(True, False, Usage(9, exact=False))),
        ([start(input_tokens=9), finish(output_tokens=4)], End(False, False, Usage(9, 0, 4))),
        ([start(input_tokens=9, output_tokens=1), PING], End(False, False, Usage(9, 0, 1, exact=False))),
        ([start(input_tokens=9), finish(output_tokens=4), FAULT], End(False, True, Usage(9, 0, 4))),
        ([start(input_tokens=9), FAULT, STOP], End(False, True, Usage(9, exact=False))),
        ([finish(output_tokens=4), STOP], End(True, False, Usage(0, 0, 4))),
        ([finish(output_tokens=4), finish(output_tokens=5), STOP], End(True, False, Usage(0, 0, 5))),
        ([STOP], End(True, False, None)),
        ([STOP, PING, Event(b"", b"[DONE]")], End(True, False, None)),
        ([], End(False, False, None)),
    ],
)
def test_ends(told: list[Event], end: End) -> None:
    assert judge_end(told, 1) == end


def test_a_prompt_is_counted_in_three_parts_of_which_the_last_word_counts() -> None:
    first = start(input_tokens=34, output_tokens=0)
    last = finish(input_tokens=2, cache_read_input_tokens=32, cache_creation_input_tokens=5, output_tokens=8)
    assert judge_end([first, last, STOP], 1).usage == Usage(39, 32, 8)


# -- whole answers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "usage"),
    [
        ("vllm_messages", Usage(34, 32, 16)),
        ("llamacpp_messages", Usage(34, 24, 9)),
        ("vllm_count_tokens", None),
        ("llamacpp_count_tokens", None),
    ],
)
def test_real_answers(name: str, usage: Usage | None) -> None:
    assert read_whole(captured(name)) == (False, usage)


@pytest.mark.parametrize("body", [OVERLOADED, b'{"error":{"code":500}}'])
def test_error_objects(body: bytes) -> None:
    assert read_whole(body) == (True, None)


# -- where an answer begins -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "told",
    [delta("text_delta", text="x"), delta("input_json_delta", partial_json="{"), block("tool_use", input={})],
)
def test_an_answer_after_reasoning_is_seen(told: Event) -> None:
    assert ANSWER_BEGINS.search(told.data)
    assert ANSWER_BEGINS.search(told.data.replace(b'": ', b'":'))


@pytest.mark.parametrize(
    "told",
    [
        delta("thinking_delta", thinking='"text":"x"'),
        delta("thinking_delta", thinking='"type":"tool_use"'),
        block("text", text=""),
        delta("input_json_delta", partial_json=""),
        CLOSE,
    ],
)
def test_reasoning_is_no_answer(told: Event) -> None:
    assert not ANSWER_BEGINS.search(told.data)
