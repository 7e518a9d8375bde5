"""One turn, whole and streamed: what the engine is told, what the client hears, what stays."""

from __future__ import annotations

import pytest

from tests.responses.place import (
    RESPONSES,
    events_of,
    in_real_time,
    remembering,
    says,
    streams,
    text_of,
    turn,
)


@in_real_time
async def test_a_turn_is_answered_and_read_back_as_it_was(url: str) -> None:
    async with remembering(url, says("Hello!")) as it:
        response = await it.turn()
        assert response["status"] == "completed"
        assert text_of(response) == "Hello!"
        assert response["id"].startswith("resp_")
        read = await it.get(f"{RESPONSES}/{response['id']}")
        assert read.json == response


@in_real_time
async def test_the_next_turn_tells_the_engine_all_that_was_said(url: str) -> None:
    async with remembering(url, says("Hello!")) as it:
        first = await it.turn("hi")
        await it.turn("and?", previous_response_id=first["id"])
        assert it.told.said == [("user", "hi"), ("assistant", "Hello!"), ("user", "and?")]


@in_real_time
async def test_a_stream_has_one_id_that_can_be_gone_on_from_at_its_end(url: str) -> None:
    async with remembering(url, streams("Hel", "lo"), says("again")) as it:
        events = events_of(await it.ask(turn(stream=True)))
        assert events[0]["type"] == "response.created"
        assert events[-1]["type"] == "response.completed"
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        response = events[-1]["response"]
        assert {event["response"]["id"] for event in events if "response" in event} == {response["id"]}
        assert text_of(response) == "Hello"
        assert (await it.get(f"{RESPONSES}/{response['id']}")).json == response
        await it.turn("and?", previous_response_id=response["id"])
        assert it.told.said[:2] == [("user", "hi"), ("assistant", "Hello")]


@pytest.mark.parametrize("streamed", [False, True])
@in_real_time
async def test_what_is_not_to_be_stored_is_nowhere(url: str, streamed: bool) -> None:
    async with remembering(url, streams("Hi") if streamed else says("Hi")) as it:
        answer = await it.ask(turn(stream=streamed, store=False))
        response = events_of(answer)[-1]["response"] if streamed else answer.json
        assert text_of(response) == "Hi"
        assert (await it.get(f"{RESPONSES}/{response['id']}")).status == 404
        assert it.rows("responses") == it.rows("items") == []
        chained = await it.ask(turn(previous_response_id=response["id"]))
        assert (chained.status, chained.json["error"]["code"]) == (404, "previous_response_not_found")
