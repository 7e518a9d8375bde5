"""Counting and compacting a conversation that is kept; of both nothing stays."""

from __future__ import annotations

import json

import pytest

from maitred.config.flow import ModelLimits
from tests.proxy.upstream import whole
from tests.responses.place import CONVERSATIONS, RESPONSES, call, in_real_time, remembering, says, turn

COUNT, COMPACT = f"{RESPONSES}/input_tokens", f"{RESPONSES}/compact"
REFUSED = whole(b'{"error":{"message":"no","type":"invalid_request_error","code":400}}', status=400)


@in_real_time
async def test_the_tokens_of_all_that_was_said(url: str) -> None:
    async with remembering(url, says("Hello!")) as it:
        first = await it.turn("hi")
        asked = {"model": "m", "input": "and?", "previous_response_id": first["id"]}
        answer = await it.ask(call("POST", COUNT, asked))
        assert answer.json == {"object": "response.input_tokens", "input_tokens": 5}
        assert it.told.said == [("user", "hi"), ("assistant", "Hello!"), ("user", "and?")]
        assert it.told.bodies[-1]["max_tokens"] == 1
        assert len(it.rows("responses")) == 1


@in_real_time
async def test_a_conversation_in_short(url: str) -> None:
    async with remembering(url, says("Hello!"), says("They met."), says("Yes.")) as it:
        first = await it.turn("hi")
        asked = {"model": "m", "previous_response_id": first["id"]}
        short = (await it.ask(call("POST", COMPACT, asked))).json
        assert (short["object"], len(short["output"])) == ("response.compaction", 1)
        assert short["usage"]["total_tokens"] == 7
        assert len(it.rows("responses")) == 1
        await it.turn([*short["output"], {"role": "user", "content": "did they?"}])
        assert it.told.said == [
            ("system", "What was said so far, in short:\n\nThey met."), ("user", "did they?")
        ]  # fmt: skip
        queued = await it.turn(short["output"], background=True)
        assert queued["status"] == "queued"


@in_real_time
async def test_another_tenant_cannot_open_it(url: str) -> None:
    async with remembering(url, says("They met.")) as it:
        it.tell_tenants_apart()
        asked = {"model": "m", "input": "hi"}
        short = (await it.ask(call("POST", COMPACT, asked, "x-tenant: a"))).json["output"]
        assert "They met" not in json.dumps(short)
        answer = await it.ask(turn(short, "x-tenant: b"))
        assert (answer.status, answer.json["error"]["param"]) == (400, "input[0].encrypted_content")
        await it.turn(short, "x-tenant: a")


@pytest.mark.parametrize(("tokens", "most"), [(None, 8192), (8000, 1000)])
@in_real_time
async def test_a_summary_is_bounded(url: str, tokens: int | None, most: int) -> None:
    async with remembering(url, says("They met."), model={"limits": ModelLimits(context=tokens)}) as it:
        assert (await it.ask(call("POST", COMPACT, {"model": "m", "input": "hi"}))).status == 200
        assert it.told.bodies[-1]["max_tokens"] == most


@in_real_time
async def test_where_there_is_less_room_a_summary_takes_what_there_is(url: str) -> None:
    async with remembering(url, (REFUSED,), says("They met.")) as it:
        assert (await it.ask(call("POST", COMPACT, {"model": "m", "input": "hi"}))).status == 200
        assert ["max_tokens" in body for body in it.told.bodies] == [True, False]


@pytest.mark.parametrize("path", [COUNT, COMPACT])
@in_real_time
async def test_what_is_wrong(url: str, path: str) -> None:
    async with remembering(url, (REFUSED,)) as it:
        for asked, status, param in (
            ({"model": "m", "input": "hi", "previous_response_id": "resp_1"}, 404, "previous_response_id"),
            ({"model": "m", "input": "hi", "wibble": 1}, 400, "wibble"),
            ({"model": "other", "input": "hi"}, 404, "model"),
            ({"model": "m", "input": "hi"}, 400, None),
        ):
            answer = await it.ask(call("POST", path, asked))
            assert (answer.status, answer.json["error"]["param"]) == (status, param)
        assert (await it.ask(call("GET", path))).status == 405
        assert (await it.ask(call("POST", f"{CONVERSATIONS}/compact", {}))).status == 400


@in_real_time
async def test_a_summary_that_was_cut(url: str) -> None:
    message = {"role": "assistant", "content": "They"}
    cut = json.dumps({"choices": [{"message": message, "finish_reason": "length"}]}).encode()
    async with remembering(url, (whole(cut),)) as it:
        answer = await it.ask(call("POST", COMPACT, {"model": "m", "input": "hi"}))
        assert answer.status == 502
