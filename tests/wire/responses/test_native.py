"""Engines asked by their own Responses API: what they are told, and what is made of what they say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maitred.core.outcome import Refusal
from maitred.core.words import Api
from maitred.wire import requests
from maitred.wire.responses import native
from maitred.wire.responses.answer import BROKEN, Answer
from maitred.wire.responses.events import Events
from maitred.wire.responses.native import UNKNOWN_ITEM, NativeStream
from maitred.wire.responses.native_said import FAILED
from tests.wire.responses.parts import CUSTOM, FUNCTION, asked, data, events, minting, parsed, settled, unseal
from tests.wire.responses.test_chat import IMAGE, LOOK, output
from tests.wire.responses.test_create import SUPPORTED
from tests.wire.responses.test_items import SHORT
from tests.wire.streams import captured

CREATE = asked(stream=True, tools=[FUNCTION, CUSTOM])


def body(items: list[dict[str, Any]] | str = "hi", *, stream: bool = False, **members: Any) -> dict[str, Any]:
    raw = native.request(asked(**members), data(settled(items)), stream=stream, unseal=unseal)
    assert requests.decode(Api.RESPONSES, raw).model == "m"  # the door takes it
    told: dict[str, Any] = json.loads(raw)
    return told


def read(raw: bytes, mine: Any = None) -> Answer:
    told = native.read(raw, CREATE, minting(), *([mine] if mine else []))
    for item in told.items:
        assert parsed(item.data).id == item.id
    return told


def whole(*items: dict[str, Any], **members: Any) -> bytes:
    return json.dumps({"output": items, "status": "completed", **members}).encode()


def sent(kind: str, **members: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **members})}\n\n".encode()


def streamed(*parts: bytes, cut: bool = False, mine: Any = None) -> tuple[list[dict[str, Any]], Answer]:
    stream = NativeStream(Events(), CREATE, minting(), *([mine] if mine else []))
    told = b"".join([stream.feed(part) for part in parts] + [stream.end(cut=cut)])
    answer = stream.answer()
    for item in answer.items:
        assert parsed(item.data).id == item.id
    return events(told), answer


# -- asking -----------------------------------------------------------------------------------------


def test_the_least() -> None:
    [kept] = settled("hi")
    assert body() == {"model": "m", "store": False, "input": [json.loads(kept.data)]}


def test_engines_keep_nothing_and_know_no_ids_of_ours() -> None:
    told = body(
        stream=True, previous_response_id="resp_1", store=True, metadata={"a": "b"}, truncation="auto"
    )
    assert told == {**body(), "stream": True}


def test_members_that_engines_are_told() -> None:
    names = {
        "instructions", "max_output_tokens", "temperature", "top_p", "frequency_penalty", "presence_penalty",
        "prompt_cache_key", "user", "top_logprobs", "include",
    }  # fmt: skip
    said = {name: SUPPORTED[name] for name in names}
    assert body(**said) == {**body(), **said}
    told = body(reasoning=SUPPORTED["reasoning"], text=SUPPORTED["text"])
    assert told["reasoning"] == SUPPORTED["reasoning"]
    assert told["text"]["format"]["schema"] == {"type": "object"}


def test_tools() -> None:
    told = body(tools=[FUNCTION, CUSTOM], tool_choice={"type": "custom", "name": "shell"})
    assert [tool["type"] for tool in told["tools"]] == ["function", "custom"]
    assert told["tool_choice"] == {"type": "custom", "name": "shell"}
    assert told["parallel_tool_calls"] is True
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "look"}]}
    told = body(tools=[FUNCTION, CUSTOM], tool_choice=allowed)
    assert [tool["name"] for tool in told["tools"]] == ["look"]
    assert told["tool_choice"] == "required"


def test_items_as_they_are_kept() -> None:
    said: list[dict[str, Any]] = [{"role": "user", "content": [IMAGE]}, LOOK, output()]
    assert body(said)["input"] == [json.loads(item.data) for item in settled(said)]


def test_calls_that_the_gateway_made_are_calls_of_functions() -> None:
    told = body([
        {"type": "mcp_list_tools", "server_label": "s", "tools": []},
        {"type": "mcp_call", "server_label": "s", "name": "t", "arguments": "{}", "output": "42"},
    ])["input"]  # fmt: skip
    assert [(item["type"], item["call_id"]) for item in told] == [
        ("function_call", "mcp_2"), ("function_call_output", "mcp_2")
    ]  # fmt: skip
    assert (told[0]["name"], told[1]["output"]) == ("s__t", "42")


def test_a_compaction_stands_for_all_before_it() -> None:
    short = {"type": "compaction", "encrypted_content": SHORT}
    first, second = body([LOOK, short, {"role": "user", "content": "and?"}])["input"]
    assert first["content"][0]["text"].endswith("in short 👋")
    assert (first["role"], second["role"]) == ("system", "user")


def test_an_output_without_its_call() -> None:
    with pytest.raises(Refusal) as caught:
        body([output()])
    assert caught.value.param == "input"


@pytest.mark.parametrize("place", ["message", "output"])
def test_engines_fetch_nothing_unasked(place: str) -> None:
    image = {**IMAGE, "image_url": "http://169.254.169.254/secrets"}
    said = [{"role": "user", "content": [image]}] if place == "message" else [LOOK, output(output=[image])]
    with pytest.raises(Refusal) as caught:
        body(said)
    assert caught.value.param is not None
    assert caught.value.param.startswith("input[")


# -- whole answers ----------------------------------------------------------------------------------

CALL = {"type": "function_call", "id": "fc_x", "call_id": "c1", "name": "look", "arguments": "{}"}
MESSAGE = {"type": "message", "id": "msg_x", "content": [{"type": "output_text", "text": "hello"}]}


def test_items_under_our_ids() -> None:
    told = read(whole(
        {"type": "reasoning", "id": "x", "content": [{"type": "reasoning_text", "text": "hm"}]},
        MESSAGE,
        CALL,
        {"type": "custom_tool_call", "id": "x", "call_id": "c2", "name": "shell", "input": '{"input": 1}'},
    ))  # fmt: skip
    assert [item.id for item in told.items] == ["rs_1", "msg_2", "fc_3", "ctc_4"]
    assert [one.call_id for one in told.calls] == ["c1", "c2"]
    assert json.loads(told.items[3].data)["input"] == '{"input": 1}'


def test_calls_of_the_gateways_own_tools_are_no_items() -> None:
    told = read(whole(MESSAGE, CALL), lambda name: name == "look")
    assert (len(told.items), len(told.calls)) == (1, 1)


@pytest.mark.parametrize("name", ["vllm_responses", "llamacpp_responses"])
def test_real_answers(name: str) -> None:
    told = read(captured(name))
    assert told.usage is not None
    assert (told.usage.input_tokens, told.usage.total_tokens) == (32, 48)
    assert parsed(told.items[0].data).content[0].text
    assert told.incomplete == ("max_output_tokens" if name.startswith("vllm") else "")


def test_nothing_is_a_message_too() -> None:
    assert json.loads(read(whole()).items[0].data)["content"][0]["text"] == ""


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"{", Answer([], error=BROKEN)),
        (b'{"output": 3}', Answer([], error=BROKEN)),
        (whole({"type": "web_search_call"}), Answer([], error=UNKNOWN_ITEM)),
        (whole(status="failed", error={"message": "no memory"}), Answer([], error="no memory")),
        (whole(status="failed"), Answer([], error=FAILED)),
    ],
)
def test_answers_that_are_none(raw: bytes, told: Answer) -> None:
    assert read(raw) == told


# -- streams ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "text"), [
    ("vllm_responses_stream", "I'm preparing for a new job opportunity"),
    ("llamacpp_responses_stream", "Hello there, welcome to my world,"),
])  # fmt: skip
def test_real_streams_are_told_alike(name: str, text: str) -> None:
    told, answer = streamed(captured(name))
    kinds = [event["type"].removeprefix("response.") for event in told]
    assert kinds == [
        "output_item.added", "content_part.added", *["output_text.delta"] * 8, "output_text.done",
        "content_part.done", "output_item.done",
    ]  # fmt: skip
    assert [event["sequence_number"] for event in told] == list(range(13))
    assert parsed(answer.items[0].data).content[0].text == text
    assert answer.usage is not None
    assert answer.usage.total_tokens == 40
    assert answer.incomplete == ("max_output_tokens" if name.startswith("vllm") else "")


@pytest.mark.parametrize("name", ["vllm_responses_stream", "llamacpp_responses_stream"])
@given(cuts=st.lists(st.integers(0, 6000), max_size=20))
def test_any_split_gives_the_same_events(name: str, cuts: list[int]) -> None:
    stream = captured(name)
    ends = [0, *sorted(cuts), len(stream)]
    parts = [stream[start:end] for start, end in zip(ends, ends[1:], strict=False)]  # noqa: RUF007
    assert streamed(*parts) == streamed(stream)


def test_thoughts_calls_and_refusals() -> None:
    told, answer = streamed(
        sent("response.created", response={"output": [], "status": "in_progress"}),
        sent("response.output_item.added", item={"type": "reasoning", "id": "rs"}),
        sent("response.reasoning_text.delta", delta="hm"),
        sent("response.output_item.done", item={"type": "reasoning", "id": "rs"}),
        sent("response.output_item.added", item=MESSAGE),
        sent("response.refusal.delta", delta="no"),
        sent("response.output_item.done", item=MESSAGE),
        sent("response.output_item.added", item={**CALL, "arguments": ""}),
        sent("response.function_call_arguments.delta", delta="{"),
        sent("response.function_call_arguments.delta", delta="}"),
        sent("response.output_item.done", item=CALL),
        sent(
            "response.output_item.added", item={"type": "custom_tool_call", "call_id": "c2", "name": "shell"}
        ),
        sent("response.custom_tool_call_input.delta", delta="ls"),
        sent("response.completed", response={"output": [], "status": "completed"}),
    )
    assert [json.loads(item.data)["type"] for item in answer.items] == [
        "reasoning", "message", "function_call", "custom_tool_call"
    ]  # fmt: skip
    assert json.loads(answer.items[2].data)["arguments"] == "{}"
    assert json.loads(answer.items[3].data)["input"] == "ls"
    deltas = [event["type"] for event in told if event["type"].endswith("delta")]
    assert deltas[-1] == "response.custom_tool_call_input.delta"


@pytest.mark.parametrize("added", [True, False])
@pytest.mark.parametrize("item", [
    MESSAGE,
    CALL,
    {"type": "message", "content": [{"type": "refusal", "refusal": "no"}]},
    {"type": "custom_tool_call", "call_id": "c2", "name": "shell", "input": "ls"},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
])  # fmt: skip
def test_items_that_are_told_only_when_they_are_there(item: dict[str, Any], added: bool) -> None:
    first = [
        sent(
            "response.output_item.added",
            item={**item, "content": [], "arguments": "", "input": "", "summary": []},
        )
    ]
    _, answer = streamed(*(first if added else []), sent("response.output_item.done", item=item))
    assert answer == read(whole(item))


def test_calls_of_the_gateways_own_tools_are_not_told() -> None:
    told, answer = streamed(
        sent("response.output_item.added", item=CALL), sent("response.output_item.done", item=CALL),
        mine=lambda _: True,
    )  # fmt: skip
    assert (told, answer.items, len(answer.calls)) == ([], [], 1)


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (sent("error", message="no memory"), "no memory"),
        (b'data: {"error": {"message": "cut"}}\n\n', "cut"),
        (
            sent("response.failed", response={"status": "failed", "error": {"message": "no memory"}}),
            "no memory",
        ),
        (sent("response.output_item.added", item={"type": "web_search_call"}), UNKNOWN_ITEM),
        (b"event: response.output_text.delta\ndata: {\n\n", BROKEN),
    ],
)
def test_streams_that_fail_half_way(event: bytes, error: str) -> None:
    told, answer = streamed(sent("response.output_text.delta", delta="a"), event)
    assert answer.error == error
    assert told[-1]["item"]["status"] == "incomplete"
