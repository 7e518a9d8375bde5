"""The acceptance cases of OpenResponses that need a model with hands or eyes, on an engine by script."""

from __future__ import annotations

import json
from typing import Any

import openresponses_types as published

from tests.proxy.upstream import DONE, FINISH, MODEL, ROLE, USAGE, Plan, stream, whole
from tests.responses.place import RESPONSES, call, events_of, in_real_time, remembering, says, turn
from tests.responses.published import judge, judge_events

PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAA"
    "SUVORK5CYII="
)
ASKED = "What is the weather like in Rome?"
ARGUMENTS = '{"location": "Rome"}'
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Says what the weather is like in a place",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string"}},
        "required": ["location"],
    },
}


def calls() -> Plan:
    """A whole answer that calls the tool."""
    function = {"name": "get_weather", "arguments": ARGUMENTS}
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
    }
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    answer = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": MODEL}
    return (whole(json.dumps({**answer, "choices": [choice], "usage": usage}).encode()),)


def delta(call: dict[str, Any]) -> bytes:
    """An event that has a part of a tool call."""
    choice = {"index": 0, "delta": {"tool_calls": [{"index": 0, **call}]}, "finish_reason": None}
    return b"data: %b\n\n" % json.dumps({"id": "chatcmpl-1", "choices": [choice]}).encode()


def streams_calls() -> Plan:
    """The same as a stream."""
    begins = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": ""}}
    parts = [{"function": {"arguments": part}} for part in (ARGUMENTS[:5], ARGUMENTS[5:])]
    return stream(ROLE, delta(begins), *map(delta, parts), FINISH, USAGE, DONE)


@in_real_time
async def test_tool_calling_and_the_round_trip(url: str) -> None:
    async with remembering(url, calls(), says("It is warm in Rome.")) as here:
        first = judge(await here.turn(ASKED, tools=[WEATHER]), output="function_call")
        [call] = first["output"]
        assert (call["name"], call["arguments"]) == ("get_weather", ARGUMENTS)
        told = {"type": "function_call_output", "call_id": call["call_id"], "output": '{"celsius": 21}'}
        judge(await here.turn([told], previous_response_id=first["id"]), output="message")
        assert [role for role, _ in here.told.said] == ["user", "assistant", "tool"]


@in_real_time
async def test_tool_calling_streamed(url: str) -> None:
    async with remembering(url, streams_calls()) as here:
        events = events_of(await here.ask(turn(ASKED, tools=[WEATHER], stream=True)))
    kinds = judge_events(events, output="function_call")
    assert {"response.function_call_arguments.delta", "response.function_call_arguments.done"} <= set(kinds)
    for kind in ("response.output_item.added", "response.output_item.done"):
        assert "function_call" in {event["item"]["type"] for event in events if event["type"] == kind}


@in_real_time
async def test_image_input(url: str) -> None:
    parts = [
        {"type": "input_text", "text": "What do you see? Answer in a sentence."},
        {"type": "input_image", "image_url": PIXEL},
    ]
    async with remembering(url, says("A black square.")) as here:
        judge(await here.turn([{"type": "message", "role": "user", "content": parts}]), output="message")
        [(_, told)] = here.told.said
    assert told[1]["image_url"]["url"] == PIXEL


@in_real_time
async def test_the_id_of_an_answer_leads_to_the_same_answer(url: str) -> None:
    async with remembering(url, says("hello")) as here:
        answered = judge(await here.turn())
        again = await here.get(f"{RESPONSES}/{answered['id']}")
    assert judge(again.json) == answered


@in_real_time
async def test_a_compacted_conversation(url: str) -> None:
    async with remembering(url, says("They spoke of ships.")) as it:
        body = {"model": MODEL, "input": "Tell me of ships."}
        answer = await it.ask(call("POST", f"{RESPONSES}/compact", body))
    published.CompactResource.model_validate(answer.json)
    [item] = answer.json["output"]
    published.CompactionBody.model_validate(item)
