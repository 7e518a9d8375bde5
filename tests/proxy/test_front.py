"""The data port: which paths there are, who may ask for what, and that nothing else reaches an engine."""

from __future__ import annotations

import asyncio
import gzip

import pytest
from msgspec import structs

from maitred.config.tree import Http
from maitred.core.outcome import Outcome, Refusal
from maitred.core.words import Identity
from tests.net.http import Answer, get, post
from tests.net.test_framing import MALFORMED
from tests.proxy.place import CHAT, STREAM, WHOLE, chat, in_virtual_time, serving
from tests.proxy.upstream import CARD, GOOD, GOOD_STREAM, JSON, SILENCE

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


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@in_virtual_time()
async def test_anthropics_clients_get_anthropics_list(method: str) -> None:
    card = {"type": "model", "id": "m", "display_name": "m", "created_at": "1970-01-01T00:00:01Z"}
    version = "anthropic-version: 2023-06-01"
    async with serving() as place:
        answer = await place.ask(get("/v1/models?limit=20", version, method=method))
        assert answer.value(b"request-id") == answer.value(b"x-request-id") != b""
        if method == "GET":
            assert {"has_more": False, "first_id": "m", "last_id": "m"}.items() <= answer.json.items()
            assert [entry | card for entry in answer.json["data"]] == answer.json["data"]
            assert card.items() <= (await place.ask(get("/v1/models/m", version))).json.items()
        assert (await place.ask(get("/v1/models/other", version))).json["error"]["type"] == "not_found_error"


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
    "a path with an escaped slash": (post("/v1%2Fchat/completions", chat()), 404, "path_not_found"),
    "two slashes": (post("//v1/chat/completions", chat()), 404, "path_not_found"),
    "dots": (post("/v1/../v1/chat/completions", chat()), 404, "path_not_found"),
    "escaped dots": (post("/v1/%2e/chat/completions", chat()), 404, "path_not_found"),
    "a way out of the models": (get("/v1/models/../../metrics"), 404, "model_not_found"),
    "another path elsewhere": (get("http://engine:8000/metrics"), 404, "path_not_found"),
    "a malformed escape": (post("/v1/chat%/completions", chat()), 400, "bad_request"),
    "a fragment": (post(CHAT + "#x", chat()), 400, "bad_request"),
    "OPTIONS of everything": (get("*", method="OPTIONS"), 405, "method_not_allowed"),
    "gzip that is none": (post(CHAT, chat(), "Content-Encoding: gzip"), 400, "bad_request"),
    "gzip cut short": (
        post(CHAT, gzip.compress(chat())[:-1], "Content-Encoding: gzip"),
        400,
        "bad_request",
    ),
    "gzip of no JSON": (post(CHAT, gzip.compress(b"no"), "Content-Encoding: gzip"), 400, "bad_request"),
    "gzip twice": (post(CHAT, gzip.compress(chat()), "Content-Encoding: gzip, gzip"), 415, "media_type"),
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
    ("path", "allow"),
    [
        (CHAT, b"POST"),
        ("/v1/models", b"GET, HEAD"),
        ("/v1/models/m", b"GET, HEAD"),
        ("/readyz", b"GET, HEAD"),
    ],
)
@pytest.mark.parametrize("method", ["PUT", "OPTIONS", "TRACE"])
@in_virtual_time()
async def test_what_a_path_takes_is_told(path: str, allow: bytes, method: str) -> None:
    async with serving() as place:
        answer = await place.ask(get(path, method=method))
        assert (answer.status, answer.value(b"allow")) == (405, allow)
        assert answer.values(b"access-control-allow-origin") == answer.values(b"vary") == []


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/m", "/v1/models/other", "/readyz", CHAT, "/nope"])
@in_virtual_time()
async def test_head_says_what_get_would_without_its_body(path: str) -> None:
    async with serving() as place:
        whole, head = await place.ask(get(path)), await place.ask(get(path, method="HEAD"))
        assert (head.status, head.body) == (whole.status, b"")
        assert head.value(b"content-length") == str(len(whole.body)).encode()
        assert without_id(head) == without_id(whole)


def without_id(answer: Answer) -> list[tuple[bytes, bytes]]:
    return [header for header in answer.headers if header[0] != b"x-request-id"]


@pytest.mark.parametrize(
    "target",
    [
        "http://gateway" + CHAT,
        "https://other.example:8443/v1/chat/completions?api-version=1",
        "/v1/%63hat/%63ompletions",
        "/%76%31/chat/completions",
        CHAT + "?key=%zz",
    ],
)
@in_virtual_time()
async def test_a_path_may_be_written_in_other_ways_and_goes_on_in_ours(target: str) -> None:
    async with serving() as place:
        assert (await place.ask(post(target, chat()))).body == JSON
        assert [asked.target for asked in place.menu.asked] == [CHAT]
        assert place.lines[0]["path"] == CHAT
        listed = await place.ask(get("http://gateway/v1/%6dodels/%6d"))
        assert (listed.status, listed.json["id"]) == (200, "m")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (get("/v1/messages"), 405),
        (post("/v1/messages", b"{}", "Content-Encoding: br"), 415),
        (post("/v1/messages", b"\x1f", "Content-Encoding: gzip"), 400),
        (post("/v1/messages", BIG), 413),
        (post("/v1/messages", b"{}", "Host: other"), 400),
    ],
)
@in_virtual_time()
async def test_what_is_refused_by_the_head_is_told_in_the_shape_of_its_api(
    request_: bytes, status: int
) -> None:
    async with serving(http=Http(body_bytes_max=50_000)) as place:
        answer = await place.ask(request_)
        assert (answer.status, answer.json["type"]) == (status, "error")
        assert answer.value(b"request-id") == answer.value(b"x-request-id") == place.lines[0]["id"].encode()
        assert place.lines[0]["api"] == "messages"


@in_virtual_time()
async def test_nobody_is_connected_through_to_an_engine() -> None:
    async with serving() as place:
        client = await place.client()
        host = place.kitchens[0].url.removeprefix("http://")
        client.send(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode() + WHOLE)
        answer = await client.answer()
        assert (answer.status, answer.value(b"allow")) == (405, b"GET, HEAD, POST")
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


@in_virtual_time()
async def test_a_coding_that_is_not_understood_is_answered_with_the_one_that_is() -> None:
    async with serving() as place:
        answer = await place.ask(post(CHAT, chat(), "Content-Encoding: br"))
        assert (answer.status, answer.value(b"accept-encoding")) == (415, b"gzip")


# -- compressed bodies --------------------------------------------------------------------------------


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "GZIP"])
@pytest.mark.parametrize("stream", [False, True])
@in_virtual_time()
async def test_a_compressed_body_reaches_the_engine_plain(coding: str, stream: bool) -> None:
    body = chat(stream=stream, stream_options={"include_usage": True}) if stream else chat()
    async with serving(GOOD_STREAM if stream else GOOD) as place:
        answer = await place.ask(post(CHAT, gzip.compress(body), f"Content-Encoding: {coding}"))
        assert answer.status == 200
        (asked,) = place.menu.asked
        assert asked.body == body
        assert asked.values("content-length") == [str(len(body))]
        assert asked.values("content-encoding") == []
        assert place.lines[0]["body_bytes"] == len(body)


@in_virtual_time()
async def test_a_body_that_becomes_too_large_is_refused() -> None:
    async with serving(http=Http(body_bytes_max=50_000)) as place:
        large = gzip.compress(chat(padding="x" * 50_000))
        answer = await place.ask(post(CHAT, large, "Content-Encoding: gzip"))
        assert (answer.status, answer.outcome) == (413, "body_too_large")
        fits = chat(padding="x" * 49_000)
        answer = await place.ask(post(CHAT, gzip.compress(fits), "Content-Encoding: gzip"))
        assert [asked.body for asked in place.menu.asked] == [fits]


@in_virtual_time()
async def test_nothing_is_inflated_for_who_is_not_let_in_any_more() -> None:
    async with serving() as place:
        client = await place.client()
        client.send(post(CHAT, gzip.compress(chat()), "Content-Encoding: gzip"))
        assert (await client.answer()).status == 200
        front, asked = place.app.front, []

        def nobody(fields: dict[bytes, bytes]) -> Identity:
            asked.append(fields)
            raise Refusal(Outcome.UNAUTHENTICATED, "no")

        front.service = structs.replace(front.service, identify=nobody)
        client.send(post(CHAT, b"x" * 90, "Content-Encoding: gzip"))
        answer = await client.answer()
        assert (answer.status, answer.outcome, len(asked)) == (401, "unauthenticated", 1)


# -- pages of other origins ---------------------------------------------------------------------------

PAGE = "https://chat.example.com"
ASKS = (f"Origin: {PAGE}", "Access-Control-Request-Method: POST")
CORS = Http(cors=(PAGE,))


def shared_with(answer: Answer) -> bytes:
    """Whose pages may read the answer; nobody's where it is b""."""
    assert answer.values(b"access-control-allow-credentials") == []
    assert bool(answer.values(b"access-control-expose-headers")) == bool(
        answer.values(b"access-control-allow-origin")
    )
    return answer.value(b"access-control-allow-origin")


@pytest.mark.parametrize(("path", "methods"), [(CHAT, b"POST"), ("/v1/models", b"GET, HEAD")])
@in_virtual_time()
async def test_a_page_of_a_listed_origin_is_told_what_it_may_send(path: str, methods: bytes) -> None:
    wants = "Access-Control-Request-Headers: authorization,content-type,x-stainless-lang"
    async with serving(http=CORS) as place:
        answer = await place.ask(get(path, *ASKS, wants, method="OPTIONS"))
        assert (answer.status, answer.body, answer.values(b"content-length")) == (204, b"", [])
        assert shared_with(answer) == PAGE.encode()
        assert answer.value(b"access-control-allow-methods") == methods
        assert answer.value(b"access-control-allow-headers") == wants.partition(" ")[2].encode()
        assert (answer.value(b"access-control-max-age"), answer.value(b"vary")) == (b"600", b"origin")
        assert place.outcomes == ["completed"]


@pytest.mark.parametrize("request_", [WHOLE, STREAM, get("/v1/models"), get("/livez"), get("/nope")])
@in_virtual_time()
async def test_a_page_of_a_listed_origin_may_read_every_answer(request_: bytes) -> None:
    def of(origin: str) -> bytes:
        return request_.replace(b"\r\n\r\n", f"\r\nOrigin: {origin}\r\n\r\n".encode(), 1)

    async with serving(GOOD_STREAM if request_ is STREAM else GOOD, http=CORS) as place:
        mine, other = await place.ask(of(PAGE)), await place.ask(of("https://evil.example"))
        plain = await place.ask(request_)
        assert [shared_with(answer) for answer in (mine, other, plain)] == [PAGE.encode(), b"", b""]
        assert mine.value(b"vary") == b"origin"
        assert mine.status == other.status == plain.status
        assert mine.body == other.body == plain.body


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (get(CHAT, "Origin: https://evil.example", ASKS[1], method="OPTIONS"), 405),
        (get(CHAT, "Origin: null", ASKS[1], method="OPTIONS"), 405),
        (get(CHAT, ASKS[1], method="OPTIONS"), 405),
        (get(CHAT, ASKS[0], method="OPTIONS"), 405),
        (get("/metrics", *ASKS, method="OPTIONS"), 404),
    ],
)
@in_virtual_time()
async def test_nobody_else_is_told_anything(request_: bytes, status: int) -> None:
    async with serving(http=CORS) as place:
        answer = await place.ask(request_)
        assert answer.status == status
        assert answer.values(b"access-control-allow-methods") == []
        assert shared_with(answer) in (b"", PAGE.encode() if ASKS[0].encode() in request_ else b"")


@in_virtual_time()
async def test_without_the_setting_no_page_may_read_anything() -> None:
    async with serving() as place:
        for request_, status in ((get(CHAT, *ASKS, method="OPTIONS"), 405), (get("/livez", ASKS[0]), 200)):
            answer = await place.ask(request_)
            assert (answer.status, shared_with(answer), answer.values(b"vary")) == (status, b"", [])


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
