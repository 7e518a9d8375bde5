"""What engines refuse, in the shape the client's own library reads, whatever shape the engine has."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.engines.captures import captured
from tests.net.http import Answer, post
from tests.proxy.place import CHAT, in_virtual_time, pieces, serving
from tests.proxy.upstream import LAST, Plan, chunk, head, whole

MESSAGES = "/v1/messages"
LLAMACPP = captured("llamacpp_err_overlong.txt")
HTML = b"<html><h1>413 Request Entity Too Large</h1></html>\n"
HOLD_BYTES = 64 * 1024


def ask(path: str = CHAT, **members: Any) -> bytes:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **members}
    return post(path, json.dumps(body).encode())


def refusal(body: bytes, *headers: str, status: int = 400) -> Plan:
    """A refusal that is not called JSON."""
    return [head(status, f"content-length: {len(body)}", *headers) + body]


def assert_passed(answer: Answer, body: bytes, status: int = 400) -> None:
    assert (answer.status, answer.body) == (status, body)
    assert answer.value(b"x-should-retry") == b"false"
    assert answer.values(b"x-maitred-outcome") == []


@pytest.mark.parametrize("streamed", [False, True])
@in_virtual_time()
async def test_openais_clients_get_openais_shape_as_it_came(streamed: bool) -> None:
    async with serving([whole(LLAMACPP, "etag: x", status=400)]) as place:
        answer = await place.ask(ask(stream=streamed))
        assert_passed(answer, LLAMACPP)
        assert answer.value(b"etag") == b"x"
        assert place.outcomes == ["engine_refused"]


@pytest.mark.parametrize("streamed", [False, True])
@in_virtual_time()
async def test_anthropics_clients_get_anthropics(streamed: bool) -> None:
    async with serving([whole(LLAMACPP, status=400)]) as place:
        answer = await place.ask(ask(MESSAGES, stream=streamed))
        assert_passed(answer, answer.body)
        request_id = answer.value(b"request-id").decode()
        assert answer.json == {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "prompt is too long: 6031 tokens > 2048 maximum",
            },
            "request_id": request_id,
        }
        (line,) = place.lines
        assert (line["outcome"], line["status"], line["id"]) == ("engine_refused", 400, request_id)


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
@in_virtual_time()
async def test_what_is_no_json_becomes_json_and_its_old_labels_go(path: str) -> None:
    labels = ("content-type: text/html; charset=utf-8", "content-language: en", "etag: x", "via: nginx")
    async with serving(refusal(HTML, *labels, status=413)) as place:
        answer = await place.ask(ask(path))
        assert_passed(answer, answer.body, 413)
        assert answer.json["error"]["message"] == HTML.decode().strip()
        assert answer.values(b"content-type") == [b"application/json"]
        assert answer.values(b"content-length") == [b"%d" % len(answer.body)]
        assert answer.values(b"content-language") == answer.values(b"etag") == []
        assert answer.value(b"via") == b"nginx"
        assert place.outcomes == ["engine_refused"]


@pytest.mark.parametrize("framing", ["length", "chunked"])
@in_virtual_time()
async def test_it_does_not_matter_how_it_arrives(framing: str) -> None:
    body = b'{"detail":"%b"}' % (b"no " * 100)
    plan: Plan = [head(422, "transfer-encoding: chunked"), chunk(body[:9]), 0.5, chunk(body[9:]), LAST]
    async with serving(plan if framing == "chunked" else refusal(body, status=422)) as place:
        place.memory.split = lambda data: pieces(data, *range(20, len(data), 20))
        answer = await place.ask(ask())
        assert (answer.status, answer.json["error"]["message"]) == (422, "no " * 100)


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
@pytest.mark.parametrize("excess", [0, 1])
@in_virtual_time()
async def test_beyond_what_is_held_it_passes_as_it_is(path: str, excess: int) -> None:
    body = b"x" * (HOLD_BYTES + excess)
    async with serving(refusal(body, "content-type: text/plain")) as place:
        answer = await place.ask(ask(path))
        assert answer.status == 400
        assert (answer.body == body) is bool(excess)
        assert answer.value(b"content-type") == (b"text/plain" if excess else b"application/json")
        assert place.outcomes == ["engine_refused"]


@in_virtual_time()
async def test_what_is_packed_cannot_be_read_and_passes() -> None:
    async with serving([whole(b"\x1f\x8b\x08", "content-encoding: gzip", status=400)]) as place:
        answer = await place.ask(ask(MESSAGES))
        assert_passed(answer, b"\x1f\x8b\x08")
        assert answer.value(b"content-encoding") == b"gzip"


@in_virtual_time()
async def test_the_name_is_put_back_in_what_passes() -> None:
    own = b'{"error":{"message":"no","model":"m"}}'
    async with serving([whole(own, status=400)], model={"name": "mine", "served_as": "m"}) as place:
        answer = await place.ask(ask(model="mine"))
        assert_passed(answer, own.replace(b'"m"', b'"mine"'))


@pytest.mark.parametrize("path", [CHAT, MESSAGES, "/v1/messages/count_tokens"])
@in_virtual_time()
async def test_a_conversation_without_messages_reaches_no_engine(path: str) -> None:
    async with serving() as place:
        answer = await place.ask(post(path, b'{"model":"m","max_tokens":1}'))
        assert (answer.status, answer.outcome) == (400, "bad_request")
        assert answer.json["error"]["message"].startswith("messages: ")
        assert place.menu.asked == []


@in_virtual_time()
async def test_what_is_put_into_shape_says_nothing_of_what_is_not() -> None:
    """Both answers have the same head: what became of it for one client is nothing to the other."""
    said = b'{"error":{"message":"no","type":"invalid_request_error","param":null,"code":null}}'
    plan = refusal(said, "content-type: text/plain")
    async with serving(plan, plan, plan) as place:
        for path, kind in ((CHAT, b"text/plain"), (MESSAGES, b"application/json"), (CHAT, b"text/plain")):
            answer = await place.ask(ask(path, max_tokens=1))
            assert (answer.status, answer.values(b"content-type")) == (400, [kind])
