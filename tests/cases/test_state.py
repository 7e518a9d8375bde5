"""Conversations that others lose, leak, mix up or keep against their clients' will."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from maitred.config.auth import Store
from maitred.config.responses import Background, Responses
from tests.net.http import Answer
from tests.proxy.upstream import ROLE, stream, whole, word
from tests.responses.place import (
    CONVERSATIONS,
    RESPONSES,
    Remembering,
    call,
    events_of,
    in_real_time,
    remembering,
    says,
    streams,
    text_of,
    turn,
)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/maitred.db"


@in_real_time
async def test_the_id_of_a_stream_is_one_and_can_be_gone_on_from_at_once_and_elsewhere(url: str) -> None:
    """B78: BerriAI/litellm#37956, BerriAI/litellm#17204, lmstudio-ai/lmstudio-bug-tracker#1188.

    Ids differed between the first and the last event and each retrieval, and what came within seconds, or at
    another replica, was 'not found'.
    """
    async with remembering(url, streams("one")) as here, remembering(url, says("two")) as there:
        events = events_of(await here.ask(turn(stream=True)))
        ids = {event["response"]["id"] for event in events if "response" in event}
        (id_,) = ids
        await there.turn("and?", previous_response_id=id_)
        assert there.told.said == [("user", "hi"), ("assistant", "one"), ("user", "and?")]
        for place in (here, there, there):
            assert (await place.get(f"{RESPONSES}/{id_}")).json == events[-1]["response"]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("place", ["alone", "conversation", "chain"])
@in_real_time
async def test_what_is_not_to_be_stored_is_not(url: str, streamed: bool, place: str) -> None:
    """B80: smg-project/smg#916. It was stored where nobody streamed, and where a conversation was named."""
    async with remembering(url, says("before"), streams("secret") if streamed else says("secret")) as it:
        before = await it.turn()
        conversation = (await it.ask(call("POST", CONVERSATIONS, {}))).json["id"]
        named = {"alone": {}, "conversation": {"conversation": conversation}}.get(
            place, {"previous_response_id": before["id"]}
        )
        rows = {table: it.rows(table) for table in ("responses", "items", "conversations", "jobs", "events")}
        answer = await it.ask(turn("the secret", stream=streamed, store=False, **named))
        response = events_of(answer)[-1]["response"] if streamed else answer.json
        assert text_of(response) == "secret"
        assert {table: it.rows(table) for table in rows} == rows
        assert (await it.get(f"{RESPONSES}/{response['id']}")).status == 404
        refused = await it.ask(turn(previous_response_id=response["id"]))
        assert refused.json["error"]["code"] == "previous_response_not_found"


@in_real_time
async def test_a_turn_whose_gateway_died_does_not_run_for_ever(url: str) -> None:
    """B81: NousResearch/hermes-agent#15026, Azure/azure-sdk-for-python#47833, openai/openai-python#2828.

    The client knew the id, and it was 404, or 'in_progress' for ever. Here it is there from the first event
    on, and when its gateway has died it fails, and its conversation is free again.
    """
    soon: dict[str, Any] = {
        "responses": Responses(lease_s=2.0, background=Background(period_s=0.05)),
        "store": Store(url=url, sweep_s=0.05),
    }
    hangs = [*stream(ROLE, word("Hel"), end=()), 1e6]
    async with remembering(url, hangs, **soon) as dying, remembering(url, says("x"), **soon) as other:
        conversation = (await dying.ask(call("POST", CONVERSATIONS, {}))).json["id"]
        client = await dying.place.client()
        client.send(turn(stream=True, conversation=conversation))
        await client.heard(b"response.created")
        id_ = dying.rows("responses")[0]["id"]
        assert (await other.get(f"{RESPONSES}/{id_}")).json["status"] == "in_progress"
        dying.place.app.site.running.clear()  # it says nothing any more of what it makes
        await ended(other, id_)
        response = (await other.get(f"{RESPONSES}/{id_}")).json
        assert (response["status"], response["error"]["code"]) == ("failed", "server_error")
        await other.turn("and?", conversation=conversation)
        assert other.told.said == [("user", "and?")]
        client.leave()
        await dying.place.until(lambda: not dying.place.app.journeys)


async def ended(it: Remembering, id_: str) -> None:
    """Poll until a response is over."""
    while (await it.get(f"{RESPONSES}/{id_}")).json["status"] in ("queued", "in_progress"):
        await asyncio.sleep(0.02)


def calls(*arguments: str) -> Any:
    """An answer with thoughts and calls of a function."""
    made = [
        {"id": f"call_{n}", "type": "function", "function": {"name": "look", "arguments": said}}
        for n, said in enumerate(arguments)
    ]
    message = {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": made}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return (whole(json.dumps({"id": "x", "model": "m", "choices": [choice]}).encode()),)


@in_real_time
async def test_a_chain_of_tool_calls_is_told_to_the_engine_as_if_it_had_been_written_out(url: str) -> None:
    """B82: vllm-project/vllm#43244, BerriAI/litellm#26167, BerriAI/litellm#37956.

    Calls, their outputs and input lists vanished when they were told again, and the model went in circles.
    """
    tools = [{"type": "function", "name": "look", "parameters": {"type": "object"}}]
    plans = (calls('{"at":"a"}', '{"at":"b"}'), calls('{"at":"c"}'), says("done"), says("done"))
    async with remembering(url, *plans) as it:
        said: list[Any] = [{"role": "user", "content": "look"}]
        everything, previous = list(said), dict[str, str]()
        for _ in range(3):
            response = await it.turn(said, tools=tools, **previous)
            everything += response["output"]
            made = [item for item in response["output"] if item["type"] == "function_call"]
            said = [
                {"type": "function_call_output", "call_id": item["call_id"], "output": item["arguments"]}
                for item in made
            ]
            everything += said
            previous = {"previous_response_id": response["id"]}
        chained = it.told.bodies[-1]
        *explicit, _last = everything
        await it.turn(explicit, tools=tools)
        assert it.told.bodies[-1] == chained
        assert len(chained["messages"]) == 6


@in_real_time
async def test_every_gateway_of_a_store_knows_what_any_of_them_was_told(url: str) -> None:
    """B83: vllm-project/vllm#48454, vllm-project/vllm#37938, BerriAI/litellm#26147.

    Each process had responses of its own, so with two of them half of the turns were lost.
    """
    async with remembering(url, says("a")) as here, remembering(url, says("a")) as there:
        previous: dict[str, Any] = {}
        for n in range(6):
            response = await (here, there)[n % 2].turn(str(n), **previous)
            previous = {"previous_response_id": response["id"]}
        assert [text for role, text in there.told.said if role == "user"] == list("012345")
        answer: Answer = await here.ask(call("DELETE", f"{RESPONSES}/{response['id']}"))
        assert answer.status == 200
        assert (await there.get(f"{RESPONSES}/{response['id']}")).status == 404
