"""Turns that are in each other's way, that come twice, or go on from what is not there."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.net.http import Answer, post
from tests.proxy.upstream import MODEL, Plan, whole
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


def late(go: asyncio.Event) -> Plan:
    """An answer that comes when the test says so."""
    return [go, *says("late")]


def error_of(answer: Answer) -> tuple[int, str, str | None]:
    """Status, code and param of an error."""
    error: dict[str, Any] = answer.json["error"]
    assert error["type"] == "invalid_request_error"
    return answer.status, error["code"], error["param"]


async def conversation(it: Remembering) -> str:
    """A new one."""
    made: dict[str, str] = (await it.ask(call("POST", CONVERSATIONS, {}))).json
    return made["id"]


@in_real_time
async def test_of_turns_at_once_on_one_conversation_one_runs_and_no_engine_hears_of_the_others(
    url: str,
) -> None:
    go = asyncio.Event()
    async with remembering(url, late(go), says("next")) as it:
        id_ = await conversation(it)
        asked = [asyncio.create_task(it.ask(turn(conversation=id_))) for _ in range(8)]
        await it.place.until(lambda: sum(one.done() for one in asked) == 7)
        go.set()
        answers = await asyncio.gather(*asked)
        assert sorted(answer.status for answer in answers) == [200, *[409] * 7]
        refused = next(answer for answer in answers if answer.status == 409)
        assert error_of(refused) == (409, "conversation_locked", "conversation")
        assert refused.value(b"x-should-retry") == b"true"
        assert len(it.place.menu.asked) == 1
        await it.turn("and?", conversation=id_)
        assert it.told.said == [("user", "hi"), ("assistant", "late"), ("user", "and?")]


@in_real_time
async def test_turns_at_once_on_one_response_are_branches(url: str) -> None:
    go = asyncio.Event()
    async with remembering(url, says("one"), late(go), late(go), says("x")) as it:
        first = await it.turn()
        asked = (it.turn(f"branch {n}", previous_response_id=first["id"]) for n in range(2))
        two = [asyncio.create_task(one) for one in asked]
        await it.place.menu.called(3)
        go.set()
        for n, branch in enumerate(await asyncio.gather(*two)):
            await it.turn("and?", previous_response_id=branch["id"])
            assert [text for _, text in it.told.said] == ["hi", "one", f"branch {n}", "late", "and?"]


@in_real_time
async def test_a_response_that_runs_cannot_be_gone_on_from_yet(url: str) -> None:
    async with remembering(url, [*streams("Hel")[:2], 0.5]) as it:
        client = await it.place.client()
        client.send(turn(stream=True))
        await client.heard(b"response.created")
        id_ = it.rows("responses")[0]["id"]
        refused = await it.ask(turn(previous_response_id=id_))
        assert error_of(refused) == (409, "response_in_progress", "previous_response_id")
        assert len(it.place.menu.asked) == 1


@pytest.mark.parametrize(
    ("members", "wanted"),
    [
        ({"previous_response_id": "resp_0"}, (404, "previous_response_not_found", "previous_response_id")),
        ({"conversation": "conv_0"}, (404, "not_found", "conversation")),
        ({"input": [{"type": "item_reference", "id": "msg_0"}]}, (404, "not_found", "input")),
        ({"input": [{"type": "item_reference", "id": ""}]}, (404, "not_found", "input")),
        (
            {"conversation": "conv_0", "previous_response_id": "resp_0"},
            (400, "invalid_request", "conversation"),
        ),
        (
            {"tools": [{"type": "mcp", "server_label": "x"}]},
            (400, "invalid_request", "tools[0].server_label"),
        ),
        ({"no_such_thing": 1}, (400, "invalid_request", "no_such_thing")),
    ],
)
@in_real_time
async def test_what_is_not_there_or_not_known_is_refused_before_any_engine_hears_of_it(
    url: str, members: dict[str, Any], wanted: tuple[int, str, str]
) -> None:
    async with remembering(url, says("x")) as it:
        for stream in (False, True):
            body = {"model": MODEL, "input": "hi", "stream": stream, **members}
            assert error_of(await it.ask(post(RESPONSES, json.dumps(body).encode()))) == wanted
        assert it.place.menu.asked == []
        assert it.rows("responses") == []


@in_real_time
async def test_what_cannot_be_an_id_is_nobodys_and_no_outage(url: str) -> None:
    async with remembering(url, says("x")) as it:
        conversation = (await it.ask(call("POST", CONVERSATIONS, {}))).json["id"]
        reference = [{"type": "item_reference", "id": "a\x00"}]
        for request, status, param in (
            (call("GET", f"{RESPONSES}/a%00"), 404, None),
            (call("GET", f"{CONVERSATIONS}/{conversation}/items?after=%00"), 400, "after"),
            (turn(previous_response_id="a\x00"), 404, "previous_response_id"),
            (turn(conversation="\u00e4"), 404, "conversation"),
            (turn(reference), 404, "input"),
            (turn(model="\x00", conversation=conversation), 404, "model"),
            (turn(model="m" * 300, conversation=conversation), 404, "model"),
        ):
            refused = await it.ask(request)
            assert (refused.status, refused.json["error"]["param"]) == (status, param), request
        assert not it.place.app.findings.counts().get("memory_unreachable")
        said = await it.turn("\x00", metadata={"a": "\x00"}, user="\x00")
        assert (await it.get(f"{RESPONSES}/{said['id']}")).json == said


@in_real_time
async def test_a_chain_is_broken_by_deleting_a_part_of_it(url: str) -> None:
    async with remembering(url, says("x")) as it:
        first = await it.turn()
        second = await it.turn(previous_response_id=first["id"])
        await it.ask(call("DELETE", f"{RESPONSES}/{first['id']}"))
        refused = await it.ask(turn(previous_response_id=second["id"]))
        assert error_of(refused) == (404, "previous_response_not_found", "previous_response_id")
        assert "deleted" in refused.json["error"]["message"]


@pytest.mark.parametrize("streamed", [False, True])
@in_real_time
async def test_a_repeat_with_the_same_key_gets_the_same_response(url: str, streamed: bool) -> None:
    async with remembering(url, streams("Hi") if streamed else says("Hi"), says("never")) as it:
        body = json.dumps({"model": MODEL, "input": "hi", "stream": streamed}).encode()

        async def ask(raw: bytes = body) -> Answer:
            return await it.ask(post(RESPONSES, raw, "idempotency-key: k1"))

        first, second = await ask(), await ask()
        assert len(it.place.menu.asked) == 1
        if streamed:
            once, again = events_of(first)[-1], events_of(second)[-1]
            assert (again["type"], again["response"]) == (once["type"], once["response"])
        else:
            assert second.json == first.json
        other = await ask(body.replace(b"hi", b"ho"))
        assert error_of(other) == (422, "idempotency_key_reused", None)


@in_real_time
async def test_a_key_is_never_cut(url: str) -> None:
    async with remembering(url, says("x")) as it:
        longest = "k" * 255
        assert (await it.ask(turn("hi", f"idempotency-key: {longest}"))).status == 200
        refused = await it.ask(turn("hi", f"idempotency-key: {longest}k"))
        assert error_of(refused) == (400, "invalid_request", "Idempotency-Key")


@in_real_time
async def test_a_repeat_while_the_first_runs_waits_for_another_time(url: str) -> None:
    go = asyncio.Event()
    async with remembering(url, late(go), says("never")) as it:
        request = post(RESPONSES, b'{"model":"m","input":"hi"}', "idempotency-key: k1")
        both = [asyncio.create_task(it.ask(request)) for _ in range(2)]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        go.set()
        answers = await asyncio.gather(*both)
        assert sorted(answer.status for answer in answers) == [200, 409]
        assert len(it.place.menu.asked) == 1
        await it.ask(request)
        assert len(it.place.menu.asked) == 1


@in_real_time
async def test_two_answers_of_an_engine_with_the_same_ids_are_two(url: str) -> None:
    async with remembering(url, says("one"), says("two")) as it:
        first = await it.turn()
        second = await it.turn(previous_response_id=first["id"])
        assert (text_of(first), text_of(second)) == ("one", "two")
        ids = [row["id"] for row in it.rows("items")]
        assert len(set(ids)) == len(ids) == 4


@in_real_time
async def test_what_the_engine_refuses_is_told_in_our_shape_and_nothing_is_kept(url: str) -> None:
    said = b'{"error":{"message":"no such thing","type":"BadRequestError","code":422}}'
    async with remembering(url, (whole(said, status=422),)) as it:
        for streamed in (False, True):
            refused = await it.ask(turn(stream=streamed))
            assert (refused.status, refused.json["error"]) == (
                422,
                {"message": "no such thing", "type": "invalid_request_error", "param": None}
                | {"code": "engine_refused"},
            )
        assert it.rows("responses") == []


@in_real_time
async def test_a_history_too_long_for_the_engine_is_known_by_its_code(url: str) -> None:
    said = b'{"error":{"message":"too many","code":400,"n_prompt_tokens":3000,"n_ctx":2048}}'
    async with remembering(url, (whole(said, status=400),)) as it:
        assert error_of(await it.ask(turn())) == (400, "context_length_exceeded", None)
