"""Server-sent events as engines really send them: cut anywhere, with comments, or not sent at all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.cases.place import on_sockets, serving
from tests.cases.upstream import Plan, stream
from tests.net.http import post
from tests.proxy.faults import spoken
from tests.proxy.place import ASKS_USAGE, CHAT, STREAM, chat
from tests.proxy.upstream import (
    DONE,
    FINISH,
    JSON,
    LAST,
    ROLE,
    SEEN,
    USAGE,
    chunk,
    event,
    head,
    whole,
    word,
)
from tests.proxy.upstream import STREAM as STREAM_HEAD


def tool_call(arguments_bytes: int) -> bytes:
    """An event of a chat stream with one large piece of a tool call's arguments."""
    arguments = json.dumps(json.dumps({"text": '\u00e9 \\ " data: x ' * (arguments_bytes // 18)}))
    return event(
        '{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":'
        f'{{"name":"write","arguments":{arguments}}}}}]}},"finish_reason":null}}'
    )


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    """The data in chunks of this size."""
    return (chunk(data[at : at + size]) for at in range(0, len(data), size))


async def chunks_seen(client: openai.AsyncOpenAI) -> list[Any]:
    """What the official client makes of a stream."""
    answer: Any = await client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "hi"}], stream=True
    )
    return [chunk async for chunk in answer]


class TestEventsCutByTheNetwork:
    """B02: vllm-project/aibrix#2266, vllm-project/aibrix#2638.

    A gateway that took each read for whole events put an error into a healthy stream when a large tool call
    came in pieces. Nothing is parsed before its event is whole, and no byte is altered.
    """

    @pytest.mark.parametrize(("event_bytes", "size"), [(4_000, 1), (20_000, 7), (200_000, 1400)])
    @pytest.mark.parametrize("line_end", ["lf", "crlf"])
    @pytest.mark.parametrize("hides_usage", [False, True])
    @on_sockets
    async def test_every_byte_passes(
        self, event_bytes: int, size: int, line_end: str, hides_usage: bool
    ) -> None:
        events = [ROLE, tool_call(event_bytes), FINISH, USAGE, DONE]
        if line_end == "crlf":
            events = [one.replace(b"\n", b"\r\n") for one in events]
        seen = [one for one in events if not (hides_usage and b"total_tokens" in one)]
        plan = [STREAM_HEAD, *pieces(b"".join(events), size), LAST]
        async with serving(plan) as place:
            answer = await place.ask(STREAM if hides_usage else ASKS_USAGE)
            assert (answer.status, answer.body) == (200, b"".join(seen))
            assert place.outcomes == ["completed"]
            assert place.lines[0]["output_tokens"] == 2

    @on_sockets
    async def test_a_pause_within_an_event_is_no_error(self) -> None:
        """The second half of the event comes only after the client has seen what was before it."""
        rest, call = asyncio.Event(), tool_call(4_000)
        before, after = word("Hello"), [chunk(call[50:]), chunk(FINISH), chunk(DONE), LAST]
        plan: Plan = [STREAM_HEAD, chunk(before), chunk(call[:50]), rest, *after]
        async with serving(plan) as place:
            client = await place.client()
            client.send(STREAM)
            await client.heard(b"Hello")
            rest.set()
            assert (await client.answer()).body == before + call + FINISH + DONE

    @on_sockets
    async def test_the_name_of_the_model_is_put_back_wherever_the_cut_is(self) -> None:
        events = b"".join([ROLE, *[word(f"{n} ") for n in range(20)], DONE])
        plan = [STREAM_HEAD, *pieces(events, 11), LAST]
        async with serving(plan, model={"name": "alias", "served_as": "m"}) as place:
            answer = await place.ask(post(CHAT, chat(model="alias", stream=True)))
            assert answer.body == events.replace(b'"m"', b'"alias"')


class TestKeepAlives:
    """B05: openai/openai-python#2722, theopenco/llmgateway#2334, omnigent-ai/omnigent#1474.

    The official client fails on a comment with a blank line behind it after an event with an `id`, on a lone
    `retry` and on empty data. What an engine sends of these must not reach it in that form.
    """

    @pytest.mark.parametrize(
        "keep_alive",
        [
            [b"id: 7\n" + word("Hello"), b": ping\n\n"],
            [b"retry: 3000\n\n", word("Hello")],
            [word("Hello"), b"retry: 3000\n\n"],
            [word("Hello"), b"data:\n\n"],
            [word("Hello"), b"id: 8\n\n"],
            [word("Hello"), b"event: ping\ndata:\n\n"],
        ],
        ids=["comment after id", "retry first", "retry", "empty data", "id alone", "empty ping"],
    )
    @on_sockets
    async def test_the_official_client_reads_on(self, keep_alive: list[bytes]) -> None:
        async with serving(stream(ROLE, *keep_alive, word(" world"), FINISH, USAGE, DONE)) as place:
            async with place.openai() as client:
                chunks = await chunks_seen(client)
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
            assert (text, chunks[-1].choices[0].finish_reason) == ("Hello world", "stop")
            assert place.outcomes == ["completed"]

    @pytest.mark.parametrize("comment", [b": ping\n", b": ping\n\n", b":\n\n", b":\r\n\r\n"])
    @on_sockets
    async def test_a_plain_comment_is_harmless_anywhere(self, comment: bytes) -> None:
        events = [comment, ROLE, comment, word("Hello"), comment, comment, FINISH, USAGE, comment, DONE]
        async with serving(stream(*events)) as place:
            async with place.openai() as client:
                chunks = await chunks_seen(client)
            assert [chunk.choices[0].delta.content or "" for chunk in chunks] == ["", "Hello", ""]
            assert place.outcomes == ["completed"]


class TestNoStreamAtAll:
    """B14: openai/openai-python takes a JSON error with status 200 for an empty stream, and a success."""

    @pytest.mark.parametrize(
        "answer",
        [
            whole(b'{"error":{"message":"the engine is on fire","code":500}}'),
            whole(JSON),
            whole(b'{"choices":[{"text":"%b"}]}' % (b"x" * 200_000)),
            head(200, "content-type: text/html", "content-length: 15") + b"<html>no</html>",
            head(200, "content-length: 2") + b"{}",
            head(200, "content-type: text/event-stream", "content-length: 0"),
        ],
        ids=["error", "whole answer", "large answer", "a page", "without a type", "empty"],
    )
    @on_sockets
    async def test_it_is_an_error_for_the_client_too(self, answer: bytes) -> None:
        async with serving([answer]) as place:
            async with place.openai() as client:
                with pytest.raises(openai.InternalServerError) as failed:
                    await chunks_seen(client)
            assert failed.value.status_code == 502
            body: Any = failed.value.body
            assert (body["type"], type(body["code"])) == ("server_error", str)
            assert failed.value.response.headers["x-should-retry"] == "false"
            assert b"on fire" not in failed.value.response.content

    @on_sockets
    async def test_another_engine_mends_it_unseen(self) -> None:
        error = [whole(b'{"error":{"message":"the engine is on fire","code":500}}')]
        async with serving(error, stream(), engines=2) as place:
            answer = await place.ask(STREAM)
            assert (answer.status, answer.body) == (200, SEEN)
            assert place.lines[0]["attempts"] == 2


class TestNothingIsHeldUp:
    """B15: Kludex/starlette#2753, fabiolb/fabio#739, goodrain/rainbond-console#1909.

    Compression and buffering made tokens come in bursts. Here each token reaches the client before the
    engine makes the next one, whatever encodings the client would take.
    """

    @on_sockets
    async def test_each_token_comes_before_the_next_is_made(self) -> None:
        gates = [asyncio.Event() for _ in range(20)]
        tokens = [step for n, gate in enumerate(gates) for step in (chunk(word(f"token{n}.")), gate)]
        plan: Plan = [STREAM_HEAD, chunk(ROLE), *tokens, chunk(FINISH), chunk(DONE), LAST]
        async with serving(plan) as place:
            client = await place.client()
            client.send(post(CHAT, chat(stream=True), "Accept-Encoding: gzip, br, deflate"))
            for number, gate in enumerate(gates):
                await client.heard(b"token%d." % number)
                assert b"token%d." % (number + 1) not in client.received
                gate.set()
            answer = await client.answer()
            assert answer.value(b"content-type").startswith(b"text/event-stream")
            assert answer.value(b"cache-control") == b"no-cache, no-transform"
            assert answer.value(b"x-accel-buffering") == b"no"
            assert answer.values(b"content-encoding") == answer.values(b"content-length") == []
            assert (await place.script.called()).values("accept-encoding") == []
            assert spoken(answer)[-1] == "[DONE]"
