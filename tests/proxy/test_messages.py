"""Anthropic's API through the whole gateway: streams, ends, errors and counts as its clients expect them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.net.http import Answer, get, post
from tests.proxy.place import in_virtual_time, serving
from tests.proxy.upstream import End, stream, whole
from tests.wire.streams import captured

MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"
REAL = captured("vllm_messages_stream").replace(b'"smollm2"', b'"m"')
FAULT = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"busy"}}\n\n'
NO_STREAM = captured("vllm_messages").replace(b'"smollm2"', b'"m"')
TOO_LONG = b'{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long"}}'


def ask(path: str = MESSAGES, **members: Any) -> bytes:
    body = {"model": "m", "max_tokens": 8, "messages": [{"role": "user", "content": "hi"}], **members}
    return post(path, json.dumps(body).encode())


def cut(count: int) -> bytes:
    """So many events of a real stream."""
    return b"".join(event + b"\n\n" for event in REAL.split(b"\n\n")[:count])


def last_event(answer: Answer) -> dict[str, Any]:
    """The error event that the answer ends with."""
    name, data, *rest = answer.body.rsplit(b"event: ", 1)[1].split(b"\n")
    assert (name, rest) == (b"error", [b"", b""])
    told: dict[str, Any] = json.loads(data.removeprefix(b"data: "))
    return told


def assert_refusal(answer: Answer, status: int, kind: str) -> None:
    assert answer.status == status
    told = answer.json
    assert (told["type"], told["error"]["type"]) == ("error", kind)
    assert answer.value(b"request-id") == answer.value(b"x-request-id") == told["request_id"].encode()


@in_virtual_time()
async def test_a_stream_passes_as_it_is_and_is_counted() -> None:
    async with serving(stream(REAL)) as place:
        answer = await place.ask(ask(stream=True))
        assert (answer.status, answer.body) == (200, REAL)
        assert answer.value(b"request-id") == answer.value(b"x-request-id") != b""
        asked = await place.menu.called()
        assert (asked.target, b"stream_options" in asked.body) == (MESSAGES, False)
        (line,) = place.lines
        assert (line["outcome"], line["api"]) == ("completed", "messages")
        assert (line["prompt_tokens"], line["cached_tokens"], line["output_tokens"]) == (34, 32, 8)


@pytest.mark.parametrize("path", [MESSAGES, COUNT])
@in_virtual_time()
async def test_names_are_put_in_and_put_back(path: str) -> None:
    model = {"name": "claude", "served_as": "m"}
    async with serving([whole(NO_STREAM)], stream(REAL), model=model) as place:
        answer = await place.ask(ask(path, model="claude"))
        assert answer.body == NO_STREAM.replace(b'"m"', b'"claude"')
        assert json.loads((await place.menu.called()).body)["model"] == "m"
        streamed = await place.ask(ask(model="claude", stream=True))
        assert streamed.body == REAL.replace(b'"model":"m"', b'"model":"claude"')


@pytest.mark.parametrize("start", [FAULT, cut(1) + FAULT, cut(2) + FAULT])
@in_virtual_time()
async def test_an_error_before_content_is_mended(start: bytes) -> None:
    async with serving(stream(start), stream(REAL), kitchens=2) as place:
        answer = await place.ask(ask(stream=True))
        assert (answer.status, answer.body) == (200, REAL)


@pytest.mark.parametrize("events", [3, 10, 12])
@in_virtual_time()
async def test_a_stream_without_its_end_ends_in_anthropics_error_event(events: int) -> None:
    async with serving(stream(cut(events), end=[End.CLOSE])) as place:
        answer = await place.ask(ask(stream=True))
        assert answer.body.startswith(cut(events))
        told = last_event(answer)
        assert (told["type"], told["error"]["type"]) == ("error", "api_error")
        assert told["request_id"].encode() == answer.value(b"x-request-id")


@in_virtual_time()
async def test_an_engines_error_in_the_stream_is_the_engines() -> None:
    async with serving(stream(cut(4) + FAULT)) as place:
        answer = await place.ask(ask(stream=True))
        assert answer.body == cut(4) + FAULT
        assert place.outcomes == ["failed_upstream"]


@in_virtual_time()
async def test_what_the_engine_refuses_is_passed_on_as_it_is() -> None:
    async with serving([whole(TOO_LONG, "request-id: theirs", status=400)]) as place:
        answer = await place.ask(ask(stream=True))
        assert (answer.status, answer.body) == (400, TOO_LONG)
        assert answer.value(b"request-id") == answer.value(b"x-request-id")


@pytest.mark.parametrize("path", [MESSAGES, COUNT])
@in_virtual_time()
async def test_refusals_have_anthropics_shape(path: str) -> None:
    async with serving() as place:
        assert_refusal(await place.ask(ask(path, model="other")), 404, "not_found_error")
        for request, status in (
            (ask(path, priority=1), 400),
            (post(path, b"{"), 400),
            (post(path, b"{}", "content-encoding: br"), 415),
            (get(path), 405),
        ):
            assert_refusal(await place.ask(request), status, "invalid_request_error")


@pytest.mark.parametrize(
    ("status", "outcome", "says"),
    [(429, "engine_overloaded", 529), (529, "engine_overloaded", 529), (500, "failed_upstream", 502)],
)
@in_virtual_time()
async def test_an_engine_that_cannot_is_said_in_anthropics_words(
    status: int, outcome: str, says: int
) -> None:
    async with serving([whole(b"{}", status=status)]) as place:
        answer = await place.ask(ask())
        assert_refusal(answer, says, "overloaded_error" if says == 529 else "api_error")
        assert answer.outcome == outcome


@in_virtual_time()
async def test_other_apis_keep_openais_shape() -> None:
    async with serving([whole(b"{}", status=429)]) as place:
        for path in ("/v1/rerank", "/tokenize", "/v1/chat/completions"):
            answer = await place.ask(ask(path))
            assert (answer.status, answer.json["error"]["code"]) == (429, "server_overloaded")
            assert answer.values(b"request-id") == []
