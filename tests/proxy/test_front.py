"""The data port: which paths there are, who may ask for what, and that nothing else reaches an engine."""

from __future__ import annotations

import asyncio

import pytest

from maitred.config.tree import Http
from tests.net.http import get, post
from tests.net.test_framing import MALFORMED
from tests.proxy.place import CHAT, WHOLE, chat, in_virtual_time, serving
from tests.proxy.upstream import CARD, GOOD, JSON, SILENCE

# -- paths of our own ---------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("path", ["/livez", "/readyz", "/health", "/ping"])
@in_virtual_time()
async def test_health_is_told_without_a_trace(path: str, method: str) -> None:
    async with serving() as place:
        answer = await place.ask(get(path, method=method))
        assert (answer.status, answer.body) == (200, b"ok\n" if method == "GET" else b"")
        assert answer.value(b"content-type").startswith(b"text/plain")
        assert place.lines == []


@in_virtual_time()
async def test_readiness_needs_an_engine_and_life_does_not() -> None:
    async with serving() as place:
        place.memory.refuse(*place.kitchens[0].address)
        await place.drop_idle()
        await place.ask()
        assert [
            (await place.ask(get(path))).status for path in ("/readyz", "/health", "/livez", "/ping")
        ] == [503, 503, 200, 200]


@in_virtual_time()
async def test_models_are_listed_with_what_their_engines_say() -> None:
    async with serving() as place:
        assert (await place.ask(get("/v1/models"))).json == {"object": "list", "data": [CARD]}
        assert (await place.ask(get("/v1/models/m"))).json == CARD
        assert (await place.ask(get("/v1/models", method="HEAD"))).status == 200
        answer = await place.ask(get("/v1/models/other"))
        assert (answer.status, answer.outcome) == (404, "model_not_found")
        assert place.outcomes == ["completed"] * 3 + ["model_not_found"]


# -- what is refused ----------------------------------------------------------------------------------

BIG = chat(padding="x" * 100_000)
REFUSED = {
    "an unknown path": (get("/v1/unknown"), 404, "path_not_found"),
    "a path below one": (post(CHAT + "/", chat()), 404, "path_not_found"),
    "a path in capitals": (post(CHAT.upper(), chat()), 404, "path_not_found"),
    "an escaped path": (post("/v1/chat%2Fcompletions", chat()), 404, "path_not_found"),
    "an engine's own path": (get("/metrics"), 404, "path_not_found"),
    "a method": (get(CHAT), 405, "method_not_allowed"),
    "an unusual method": (get(CHAT, method="DELETE"), 405, "method_not_allowed"),
    "OPTIONS": (get(CHAT, method="OPTIONS"), 405, "method_not_allowed"),
    "a method of our own paths": (post("/livez", b""), 405, "method_not_allowed"),
    "a method of the models": (post("/v1/models/m", b"{}"), 405, "method_not_allowed"),
    "a form": (
        get(CHAT, "Content-Type: multipart/form-data", "Content-Length: 0", method="POST"),
        415,
        "media_type",
    ),
    "text": (get(CHAT, "Content-Type: text/plain", "Content-Length: 0", method="POST"), 415, "media_type"),
    "zstd": (post(CHAT, chat(), "Content-Encoding: zstd"), 415, "media_type"),
    "a body by length": (post(CHAT, BIG), 413, "body_too_large"),
    "headers": (post(CHAT, chat(), *(f"X-{n}: a" for n in range(200))), 431, "headers_too_large"),
    "no JSON": (post(CHAT, b"not JSON"), 400, "bad_request"),
    "nothing": (post(CHAT, b""), 400, "bad_request"),
    "no model": (post(CHAT, b'{"messages":[]}'), 400, "bad_request"),
    "another model": (post(CHAT, chat(model="gpt-4")), 404, "model_not_found"),
    "a wrong type": (post(CHAT, b'{"model":"m","stream":"yes"}'), 400, "bad_request"),
    "a key twice": (post(CHAT, b'{"model":"m","stream":true,"model":"m"}'), 400, "bad_request"),
}


@pytest.mark.parametrize("case", REFUSED)
@in_virtual_time()
async def test_what_is_refused_reaches_no_engine_and_is_told(case: str) -> None:
    request, status, outcome = REFUSED[case]
    async with serving(http=Http(body_bytes_max=50_000)) as place:
        answer = await place.ask(request)
        assert (answer.status, answer.outcome) == (status, outcome)
        error = answer.json["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["type"] == "invalid_request_error"
        assert answer.value(b"x-should-retry") == b"false"
        assert answer.values(b"retry-after") == []
        assert place.menu.asked == []
        (line,) = place.lines
        assert (line["outcome"], line["status"]) == (outcome, status)
        assert line["id"] == answer.value(b"x-request-id").decode()
        assert line["method"] == request.partition(b" ")[0].decode() or case == "headers"


@pytest.mark.parametrize(
    ("path", "allow"), [(CHAT, b"POST"), ("/v1/models", b"GET, HEAD"), ("/readyz", b"GET, HEAD")]
)
@in_virtual_time()
async def test_what_a_path_takes_is_told(path: str, allow: bytes) -> None:
    async with serving() as place:
        answer = await place.ask(get(path, method="PUT"))
        assert (answer.status, answer.value(b"allow")) == (405, allow)


@in_virtual_time()
async def test_nobody_is_connected_through_to_an_engine() -> None:
    async with serving() as place:
        client = await place.client()
        host = place.kitchens[0].url.removeprefix("http://")
        client.send(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode() + WHOLE)
        answer = await client.answer()
        assert answer.status == 405
        await client.closed()
        assert place.menu.asked == []
        assert place.outcomes == [answer.outcome]


@pytest.mark.parametrize(
    "media", ["application/json; charset=utf-8", "APPLICATION/JSON", "application/x+json"]
)
@in_virtual_time()
async def test_json_by_any_name_is_taken(media: str) -> None:
    async with serving() as place:
        body = chat()
        lines = (f"Content-Type: {media}", f"Content-Length: {len(body)}", "Content-Encoding: identity")
        assert (await place.ask(get(CHAT, *lines, method="POST") + body)).body == JSON
        bare = get(CHAT, f"Content-Length: {len(body)}", method="POST") + body
        assert (await place.ask(bare)).body == JSON


@pytest.mark.parametrize("case", MALFORMED)
@in_virtual_time()
async def test_what_is_malformed_reaches_no_engine_and_is_told(case: str) -> None:
    async with serving() as place:
        client = await place.client()
        client.send(MALFORMED[case].replace(b"/echo", CHAT.encode()))
        answer = await client.answer()
        assert answer.status == 400
        await client.closed()
        assert client.unread == b""
        assert place.menu.asked == []
        assert place.outcomes == ["bad_request"]


# -- several on one connection ------------------------------------------------------------------------


@in_virtual_time()
async def test_pipelined_requests_are_served_in_turn() -> None:
    async with serving([1.0, *GOOD], GOOD) as place:
        client = await place.client()
        client.send(WHOLE + get("/v1/models") + WHOLE)
        answers = [await client.answer() for _ in range(3)]
        assert [answer.json["object"] for answer in answers] == ["chat.completion", "list", "chat.completion"]
        assert place.outcomes == ["completed"] * 3
        assert len({answer.value(b"x-request-id") for answer in answers}) == 3


@in_virtual_time(200)
async def test_a_request_that_stalls_is_told_once() -> None:
    async with serving() as place:
        client = await place.client()
        client.send(WHOLE[:-1])
        answer = await client.answer()
        assert (answer.status, answer.outcome) == (408, "request_timeout")
        await client.closed()
        assert place.outcomes == ["request_timeout"]
        assert place.menu.asked == []


@in_virtual_time(1000)
async def test_an_idle_connection_leaves_no_line() -> None:
    async with serving() as place:
        client = await place.client()
        await client.closed()
        assert place.lines == []


@in_virtual_time(200)
async def test_a_waiting_request_keeps_its_connection_open() -> None:
    async with serving(SILENCE) as place:
        client = await place.client()
        client.send(WHOLE)
        await asyncio.sleep(150)
        assert not client.over
