"""A streamed chat answer as events: the right ones in the right order, however the network cut it."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maitred.wire.responses.answer import BROKEN, Answer, read
from maitred.wire.responses.events import Events
from maitred.wire.responses.stream import ChatStream
from tests.wire.responses.parts import (
    CUSTOM,
    END,
    FUNCTION,
    USAGE,
    asked,
    call,
    chunk,
    events,
    minting,
    parsed,
    sent,
    whole,
)
from tests.wire.streams import captured

CREATE = asked(stream=True, tools=[FUNCTION, CUSTOM])
ROLE = chunk(role="assistant", content="")
LOGPROB = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}
EVERYTHING = b"".join(
    [
        ROLE,
        chunk(reasoning="let me "),
        chunk(reasoning_content="think"),
        chunk(content="Grüße"),
        chunk(content=" 👋"),
        chunk(refusal="no"),
        call(0, id="c1", name="look"),
        call(0, arguments='{"at"'),
        call(0, arguments=": 1}"),
        call(1, id="c2", name="shell", arguments='{"input": "l'),
        call(1, arguments='s"}'),
        chunk("tool_calls"),
        USAGE,
        END,
    ]
)


def streamed(*parts: bytes, cut: bool = False, mine: Any = None) -> tuple[list[dict[str, Any]], Answer]:
    """The events that tell of these bytes, and what the answer came to."""
    stream = ChatStream(Events(), CREATE, minting(), *([mine] if mine else []))
    told = b"".join([stream.feed(part) for part in parts] + [stream.end(cut=cut)])
    answer = stream.answer()
    for item in answer.items:
        assert parsed(item.data).id == item.id
    return events(told), answer


def kinds(told: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in told]


def test_every_event_in_its_order() -> None:
    told, answer = streamed(EVERYTHING)
    assert kinds(told) == [
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "content_part.added",
        "refusal.delta",
        "refusal.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "output_item.added",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
        "output_item.done",
    ]
    assert [event["sequence_number"] for event in told] == list(range(27))
    assert answer.usage is not None
    assert answer.usage.total_tokens == 10
    assert [one.call_id for one in answer.calls] == ["c1", "c2"]
    assert (answer.incomplete, answer.error) == ("", "")


def test_places_and_ids_hold_the_events_of_an_item_together() -> None:
    told, answer = streamed(EVERYTHING)
    for at, item in enumerate(answer.items):
        mine = [event for event in told if event["output_index"] == at]
        assert {event.get("item_id") or event["item"]["id"] for event in mine} == {item.id}
        assert mine[0]["item"]["status"] == "in_progress"
        assert mine[-1]["item"] == json.loads(item.data)


def test_deltas_add_up_to_what_is_done() -> None:
    told, _ = streamed(EVERYTHING)
    for kind, member in {
        "output_text": "text", "refusal": "refusal", "reasoning_text": "text",
        "function_call_arguments": "arguments", "custom_tool_call_input": "input",
    }.items():  # fmt: skip
        deltas = [event["delta"] for event in told if event["type"] == f"response.{kind}.delta"]
        [done] = [event for event in told if event["type"] == f"response.{kind}.done"]
        assert "".join(deltas) == done[member]


@given(st.lists(st.integers(0, len(EVERYTHING)), max_size=40))
def test_any_split_gives_the_same_events(cuts: list[int]) -> None:
    ends = [0, *sorted(cuts), len(EVERYTHING)]
    parts = [EVERYTHING[start:end] for start, end in pairwise(ends)]
    assert streamed(*parts) == streamed(EVERYTHING)


WORDS = st.text(min_size=1, max_size=5)


@given(WORDS | st.just(""), WORDS | st.just(""), WORDS | st.just(""), st.sampled_from(["stop", "length"]))
def test_streamed_and_whole_come_to_the_same(thought: str, text: str, refusal: str, finish: str) -> None:
    """Where there is anything; ids are minted in the same order, too."""
    parts = [chunk(reasoning=char) for char in thought] + [chunk(content=char) for char in text]
    _, answer = streamed(*parts, chunk(refusal=refusal), chunk(finish), END)
    assert answer == read(whole(finish, reasoning=thought, content=text, refusal=refusal), CREATE, minting())


def test_calls_streamed_and_whole_come_to_the_same() -> None:
    _, answer = streamed(EVERYTHING)
    one = whole(
        "tool_calls",
        usage={"prompt_tokens": 7, "completion_tokens": 3},
        reasoning="let me think",
        content="Grüße 👋",
        refusal="no",
        tool_calls=[
            {"id": "c1", "function": {"name": "look", "arguments": '{"at": 1}'}},
            {"id": "c2", "function": {"name": "shell", "arguments": '{"input": "ls"}'}},
        ],
    )
    assert read(one, CREATE, minting()) == answer


def test_several_calls_of_a_model_in_one_stream() -> None:
    writer, mint = Events(), minting()
    told = b""
    for _ in range(2):
        stream = ChatStream(writer, CREATE, mint)
        told += stream.feed(chunk(content="a") + END) + stream.end()
    read_back = events(told)
    assert [event["sequence_number"] for event in read_back] == list(range(12))
    assert [event["output_index"] for event in read_back] == [0] * 6 + [1] * 6


# -- ends -------------------------------------------------------------------------------------------


def test_an_answer_that_ends_early() -> None:
    told, answer = streamed(chunk(content="a"), chunk("length"), USAGE, END)
    assert told[-1]["item"]["status"] == "incomplete"
    assert answer.incomplete == "max_output_tokens"


def test_an_answer_that_is_cut() -> None:
    told, answer = streamed(call(0, id="c", name="look", arguments='{"a'), cut=True)
    assert told[-1]["item"]["status"] == "incomplete"
    assert told[-1]["item"]["arguments"] == '{"a'
    assert answer.usage is None


def test_nothing_cut_is_nothing() -> None:
    assert streamed(ROLE, cut=True) == ([], Answer([]))


def test_nothing_at_all_is_an_empty_message() -> None:
    told, answer = streamed(ROLE, chunk("stop"), END)
    assert kinds(told)[0] == "output_item.added"
    assert parsed(answer.items[0].data).content[0].text == ""


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (sent({"error": {"message": "out of memory", "type": "server_error"}}), "out of memory"),
        (sent({"error": "gone"}), "gone"),
        (b'event: error\ndata: {"message": "gone"}\n\n', "gone"),
        (b"data: {\n\n", BROKEN),
        (b'data: {"choices": 3}\n\n', BROKEN),
        (b"data: \xff\n\n", BROKEN),
    ],
)
def test_an_answer_that_fails_half_way(event: bytes, error: str) -> None:
    told, answer = streamed(chunk(content="a"), event, chunk(content="never told"), END)
    assert answer.error == error
    assert told[-1]["item"]["status"] == "incomplete"
    assert told[-1]["item"]["content"][0]["text"] == "a"


def test_an_answer_that_the_engine_gave_up() -> None:
    _, answer = streamed(chunk(content="a"), chunk("abort"), END)
    assert answer.error
    assert json.loads(answer.items[0].data)["status"] == "incomplete"


# -- what engines do differently --------------------------------------------------------------------


def test_words_between_calls() -> None:
    _, answer = streamed(call(0, id="c1", name="look"), chunk(content="and"), call(1, id="c2", name="look"))
    assert [json.loads(item.data)["type"] for item in answer.items] == [
        "function_call", "message", "function_call"
    ]  # fmt: skip


def test_a_name_and_an_id_with_every_piece() -> None:
    pieces = [call(0, id="c1", name="look", arguments=part) for part in ("{", "}")]
    _, answer = streamed(*pieces)
    assert [json.loads(item.data)["arguments"] for item in answer.items] == ["{}"]


def test_calls_told_apart_by_their_ids_alone() -> None:
    _, answer = streamed(*[call(0, id=f"c{n}", name="look", arguments="{}") for n in range(3)])
    assert [json.loads(item.data)["call_id"] for item in answer.items] == ["c0", "c1", "c2"]


def test_a_call_without_an_id_gets_one() -> None:
    _, answer = streamed(call(0, name="look"))
    assert json.loads(answer.items[0].data)["call_id"].startswith("call_")


def test_going_back_to_a_call_that_was_left() -> None:
    left = [call(0, id="c1", name="look", arguments="{}"), call(1, id="c2", name="look", arguments="{}")]
    assert streamed(*left, call(0))[1].error == ""
    assert streamed(*left, call(0, arguments="{"))[1].error == BROKEN
    assert streamed(*left, call(0, name="look", arguments="{"))[1].error == BROKEN


def test_calls_of_the_gateways_own_tools_are_not_told() -> None:
    told, answer = streamed(
        chunk(content="a"),
        call(0, id="c1", name="s__t", arguments="{"),
        call(0, arguments="}"),
        call(1, id="c2", name="look"),
        mine=lambda name: name.startswith("s__"),
    )
    assert [event["output_index"] for event in told if event["type"].endswith("item.added")] == [0, 1]
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    first, second = answer.calls
    assert (first.call_id, first.name, second.call_id) == ("c1", "s__t", "c2")
    assert len(answer.items) == 2
    assert not kinds(streamed(call(0, id="c1", name="s__t"), mine=lambda _: True)[0])


def test_logprobs() -> None:
    told, answer = streamed(
        chunk(content="a", logprobs={"content": [LOGPROB | {"bytes": None}]}),
        chunk(content="a", logprobs={"content": [LOGPROB | {"id": 5}]}),
    )
    deltas = [event["logprobs"] for event in told if event["type"] == "response.output_text.delta"]
    assert deltas == [[LOGPROB], [LOGPROB]]
    assert parsed(answer.items[0].data).content[0].logprobs[1].logprob == -0.5


@pytest.mark.parametrize(("name", "cached"), [("vllm_chat_stream", 32), ("llamacpp_chat_stream", None)])
def test_real_streams(name: str, cached: int | None) -> None:
    body = captured(name)
    told, answer = streamed(*[body[at : at + 100] for at in range(0, len(body), 100)])
    text = parsed(answer.items[0].data).content[0].text
    assert text.startswith("1. Red")
    assert "".join(event["delta"] for event in told if "delta" in event["type"]) == text
    assert answer.incomplete == "max_output_tokens"
    assert answer.usage is not None
    assert cached in (None, answer.usage.input_tokens_details.cached_tokens)
