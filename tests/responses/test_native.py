"""Turns of a model whose engines speak Responses themselves: clients see no difference."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.proxy.upstream import stream, whole
from tests.responses.place import RESPONSES, events_of, in_real_time, remembering, text_of, turn
from tests.wire.streams import captured

NATIVE = {"responses": "native"}
VLLM, LLAMACPP = ("vllm_responses", "llamacpp_responses")


def blocks(name: str) -> list[bytes]:
    return [block + b"\n\n" for block in captured(name).split(b"\n\n") if block.strip()]


@pytest.mark.parametrize("name", [VLLM, LLAMACPP])
@in_real_time
async def test_whole(url: str, name: str) -> None:
    async with remembering(url, (whole(captured(name)),), model=NATIVE) as it:
        first = await it.turn("Say hi")
        answered = json.loads(captured(name))
        assert first["status"] == answered["status"]
        assert text_of(first) == text_of(answered)
        assert {first["id"], first["output"][0]["id"]}.isdisjoint(
            {answered["id"], answered["output"][0]["id"]}
        )
        await it.turn("again", previous_response_id=first["id"])
        assert [asked.target for asked in it.place.menu.asked] == [RESPONSES] * 2
        told = it.told.bodies[-1]
        assert told["store"] is False
        assert "previous_response_id" not in told
        assert [item["role"] for item in told["input"]] == ["user", "assistant", "user"]


@pytest.mark.parametrize("name", [VLLM, LLAMACPP])
@in_real_time
async def test_streamed(url: str, name: str) -> None:
    async with remembering(url, stream(*blocks(f"{name}_stream")), model=NATIVE) as it:
        events = events_of(await it.ask(turn("Say hi", stream=True)))
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        response = events[-1]["response"]
        deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
        assert (len(deltas), "".join(deltas)) == (8, text_of(response))
        assert response["usage"]["total_tokens"] == 40
        assert (await it.get(f"{RESPONSES}/{response['id']}")).json == response


@in_real_time
async def test_a_last_event_larger_than_all_before_it(url: str) -> None:
    first, last = blocks(f"{VLLM}_stream")[:-1], blocks(f"{VLLM}_stream")[-1]
    grown = last.replace(b'"instructions":null', b'"instructions":"' + b"x" * 200_000 + b'"')
    async with remembering(url, stream(*first, grown), model=NATIVE) as it:
        events = events_of(await it.ask(turn("Say hi", stream=True)))
        assert events[-1]["type"] == "response.incomplete"


FAILED = {"type": "response.failed", "response": {"status": "failed", "error": {"message": "no memory"}}}
FAILING = b"event: response.failed\ndata: " + json.dumps(FAILED).encode() + b"\n\n"


@pytest.mark.parametrize("last", [[], [FAILING]])
@in_real_time
async def test_a_stream_that_does_not_come_to_its_end(url: str, last: list[bytes]) -> None:
    async with remembering(url, stream(*blocks(f"{VLLM}_stream")[:8], *last), model=NATIVE) as it:
        events = events_of(await it.ask(turn("Say hi", stream=True)))
        response: dict[str, Any] = events[-1]["response"]
        assert (events[-1]["type"], response["status"]) == ("response.failed", "failed")
        assert response["output"][0]["status"] == "incomplete"
