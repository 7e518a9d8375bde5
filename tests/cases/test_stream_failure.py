"""Streams that fail: before content nobody sees it, after content nobody takes a part for the whole."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import anthropic
import openai
import pytest
from anthropic import AsyncAnthropic

from tests.cases.place import Place, on_sockets, serving
from tests.cases.upstream import Plan, stream
from tests.net.http import Answer, post
from tests.proxy.faults import spoken
from tests.proxy.place import ASKS_USAGE, STREAM
from tests.proxy.upstream import DONE, ERROR, FINISH, LAST, ROLE, SEEN, USAGE, End, chunk, event, word

SAID = (ROLE, word("Hello"), word(" world"))
QUOTA = b'data: {"error":{"message":"quota exceeded","type":"rate_limit","code":429}}\n\n'


async def broken_off(place: Place, request: bytes = STREAM) -> Answer:
    """What came is there, then one error event, then a proper end; never [DONE], never a finish reason."""
    answer = await place.ask(request)
    assert answer.status == 200
    assert answer.body.startswith(b"".join(SAID))
    *said, last = spoken(answer)
    assert len(said) == len(SAID)
    assert set(last) == {"error"}
    assert set(last["error"]) == {"message", "type", "param", "code"}
    assert b"[DONE]" not in answer.body
    assert b'"stop"' not in answer.body
    assert len(place.script.asked) == 1, "what has been said is not said again"
    return answer


async def read_all(place: Place) -> list[str]:
    """The words that the official client reads of a stream; raises what it raises."""
    words = []
    async with place.openai() as client:
        answer: Any = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        try:
            async for one in answer:
                words += [choice.delta.content for choice in one.choices if choice.delta.content]
        except openai.APIError:
            assert words == ["Hello", " world"]
            raise
    return words


CUT: dict[str, Plan] = {
    "close": [*stream(*SAID, end=()), End.CLOSE],
    "reset": [*stream(*SAID, end=()), End.RESET],
    "half a chunk": [*stream(*SAID, end=()), chunk(word("!"))[:20], End.CLOSE],
}
CUT_CLEANLY: dict[str, Plan] = {
    "no end": stream(*SAID),
    "half an event": stream(*SAID, b'data: {"id":"c1","choi'),
    "half of [DONE]": stream(*SAID, b"data: [DO"),
    "usage only": stream(*SAID, USAGE),
}


class TestTheEngineDies:
    """B08: Portkey-AI/gateway#1797, preloop/preloop#117.

    The engine's connection is cut in the middle of its answer, and the client was given a clean end: it
    stored half an answer as a whole one.
    """

    @pytest.mark.parametrize("cut", CUT)
    @pytest.mark.parametrize("request_", [STREAM, ASKS_USAGE], ids=["", "asks usage"])
    @on_sockets
    async def test_the_client_is_told_and_so_is_everybody(self, cut: str, request_: bytes) -> None:
        async with serving(CUT[cut]) as place:
            answer = await broken_off(place, request_)
            assert answer.framing == "chunked"
            assert place.outcomes == ["failed_truncated"]
            assert place.counted == {"failed_truncated": 1}
            (line,) = place.lines
            assert line["endpoint"].endswith(f":{place.engines[0].port}")

    @on_sockets
    async def test_the_official_client_raises(self) -> None:
        async with serving(CUT["close"]) as place:
            with pytest.raises(openai.APIError, match="closed"):
                await read_all(place)


class TestAnEndThatIsNone:
    """B09: Portkey-AI/gateway#1797, and what openai/openai-python makes of it: nothing.

    The engine's worker is gone but its HTTP layer still ends the body properly. Without the API's own end it
    is no success, and no finish reason is invented.
    """

    @pytest.mark.parametrize("cut", CUT_CLEANLY)
    @on_sockets
    async def test_it_is_an_error(self, cut: str) -> None:
        async with serving(CUT_CLEANLY[cut]) as place:
            await broken_off(place)
            assert place.outcomes == ["failed_truncated"]

    @on_sockets
    async def test_the_official_client_raises(self) -> None:
        async with serving(CUT_CLEANLY["no end"]) as place:
            with pytest.raises(openai.APIError, match="without its end"):
                await read_all(place)

    @pytest.mark.parametrize(
        "end", [(FINISH,), (DONE,), (FINISH, USAGE, DONE)], ids=["finish", "done", "all"]
    )
    @on_sockets
    async def test_each_proper_end_is_one(self, end: tuple[bytes, ...]) -> None:
        async with serving(stream(*SAID, *end)) as place:
            answer = await place.ask(STREAM)
            assert answer.body == b"".join((*SAID, *end)).replace(USAGE, b"")
            assert place.outcomes == ["completed"]


class TestTheErrorComesSecond:
    """B10: maximhq/bifrost#5395, BerriAI/litellm#40404, manaflow-ai/subrouter#233.

    The first event of a stream says only that it begins; the error is in the second. Until the first content
    the stream can still be answered by somebody else; from then on nothing is repeated.
    """

    @pytest.mark.parametrize("error", [QUOTA, b"event: error\n" + ERROR], ids=["data", "by name"])
    @on_sockets
    async def test_another_engine_answers_and_nobody_sees(self, error: bytes) -> None:
        asked_for_more = asyncio.Event()
        asked_for_more.set()
        plan = [*stream(ROLE, end=()), asked_for_more, chunk(error), LAST]
        async with serving(plan, stream(), engines=2) as place:
            answer = await place.ask(STREAM)
            assert (answer.status, answer.body) == (200, SEEN)
            first, second = place.script.asked
            assert first.kitchen != second.kitchen
            assert first.body == second.body

    @on_sockets
    async def test_with_nobody_else_it_is_a_real_error(self) -> None:
        async with serving(stream(ROLE, QUOTA)) as place:
            answer = await place.ask(STREAM)
            assert answer.status == 502
            assert answer.json["error"]["code"] == "upstream_failed"
            assert len(place.script.asked) == 1
            assert place.outcomes == ["failed_upstream"]

    @on_sockets
    async def test_after_content_it_reaches_the_client_and_nothing_is_repeated(self) -> None:
        async with serving(stream(*SAID, ERROR, DONE), stream(), engines=2) as place:
            answer = await place.ask(STREAM)
            assert answer.body == b"".join((*SAID, ERROR, DONE))
            assert len(place.script.asked) == 1
            assert place.outcomes == ["failed_upstream"]


class TestOneEventIsGarbage:
    """B13: BerriAI/litellm#40404.

    One event that cannot be read, in a stream that is well otherwise, made a router drop the rest and call it
    a connection error. What passes through is passed on, and the stream ends as it does.
    """

    @pytest.mark.parametrize(
        "garbage",
        [
            b"data: {not json}\n\n",
            b"data: \xff\xfe\n\n",
            b"data: [1,2\n\n",
            b"data: " + b"[" * 5000 + b"\n\n",
        ],
        ids=["no json", "no utf-8", "half", "deep"],
    )
    @pytest.mark.parametrize("at", [0, 1, 10])
    @on_sockets
    async def test_all_of_it_passes(self, garbage: bytes, at: int) -> None:
        words = [word(f"{number} ") for number in range(60)]
        events = [ROLE, *words[:at], garbage, *words[at:], FINISH]
        async with serving(stream(*events, USAGE, DONE)) as place:
            answer = await place.ask(STREAM)
            assert answer.body == b"".join((*events, DONE))
            assert place.outcomes == ["completed"]
            assert place.lines[0]["output_tokens"] == 2

    @on_sockets
    async def test_an_event_without_choices_is_no_end(self) -> None:
        """Engines also send events that say nothing of the answer."""
        async with serving(stream(ROLE, event(""), word("Hello"), event(""), FINISH, DONE)) as place:
            answer = await place.ask(STREAM)
            assert len(spoken(answer)) == 6
            assert place.outcomes == ["completed"]


def said(kind: str, **members: Any) -> bytes:
    """One event of a stream of the other API."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **members})}\n\n".encode()


USED = {"input_tokens": 5, "output_tokens": 0}
MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "m", "usage": USED}
BEGUN = (
    said("message_start", message=MESSAGE),
    said("content_block_start", index=0, content_block={"type": "text", "text": ""}),
)
TEXT = said("content_block_delta", index=0, delta={"type": "text_delta", "text": "Hello"})
OVER = (
    said("content_block_stop", index=0),
    said("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 2}),
    said("message_stop"),
)
OVERLOADED = said("error", error={"type": "overloaded_error", "message": "overloaded"})
MESSAGES = "/v1/messages"
HAIKU = post(
    MESSAGES, b'{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"hi"}]}'
)


async def haiku(place: Place) -> str:
    """The text of a stream as the other official client reads it; raises what it raises."""
    words = ""
    async with (
        AsyncAnthropic(base_url=f"http://127.0.0.1:{place.port}", api_key="x", max_retries=0) as client,
        client.messages.stream(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}]
        ) as answer,
    ):
        async for text in answer.text_stream:
            words += text
    return words


class TestTheOtherApi:
    """B08, B09 and B10 for streams of messages: their end is `message_stop`, their error an event."""

    @pytest.mark.parametrize(
        "cut",
        [
            stream(*BEGUN, TEXT),
            stream(*BEGUN, TEXT, *OVER[:2]),
            stream(*BEGUN, TEXT, OVER[0][:20]),
            [*stream(*BEGUN, TEXT, end=()), End.CLOSE],
            [*stream(*BEGUN, TEXT, end=()), End.RESET],
        ],
        ids=["no end", "no stop", "half an event", "close", "reset"],
    )
    @on_sockets
    async def test_a_part_is_not_taken_for_the_whole(self, cut: Plan) -> None:
        async with serving(cut) as place:
            answer = await place.ask(HAIKU)
            assert answer.status == 200
            assert answer.body.startswith(b"".join((*BEGUN, TEXT)))
            *_, last = answer.body.removesuffix(b"\n\n").split(b"\n\n")
            name, _, data = last.partition(b"\ndata: ")
            error = json.loads(data)
            assert (name, error["type"], error["error"]["type"]) == (b"event: error", "error", "api_error")
            assert b"message_stop" not in answer.body
            assert place.outcomes == ["failed_truncated"]
            with pytest.raises(anthropic.APIStatusError):
                await haiku(place)

    @on_sockets
    async def test_an_error_before_content_is_mended_by_another_engine(self) -> None:
        async with serving(stream(*BEGUN, OVERLOADED), stream(*BEGUN, TEXT, *OVER), engines=2) as place:
            assert await haiku(place) == "Hello"
            assert (place.lines[0]["attempts"], place.lines[0]["output_tokens"]) == (2, 2)

    @on_sockets
    async def test_and_a_real_error_where_there_is_none(self) -> None:
        async with serving(stream(*BEGUN, OVERLOADED)) as place:
            answer = await place.ask(HAIKU)
            assert (answer.status, answer.json["type"], answer.json["error"]["type"]) == (
                502,
                "error",
                "api_error",
            )
            with pytest.raises(anthropic.InternalServerError):
                await haiku(place)

    @on_sockets
    async def test_pings_and_garbage_pass(self) -> None:
        ping, garbage = said("ping"), b"event: ping\ndata: {not json}\n\n"
        events = (*BEGUN, ping, TEXT, garbage, ping, *OVER)
        async with serving(stream(*events)) as place:
            assert (await place.ask(HAIKU)).body == b"".join(events)
            assert place.outcomes == ["completed"]
