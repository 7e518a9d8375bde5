"""HTTP between strangers: one reading of every request, no header that steers, sizes as they are."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from typing import Any

import pytest

from maitred.config.tree import Http
from tests.cases.place import admin_port, on_sockets, serving
from tests.cases.upstream import GOOD, Plan, stream
from tests.net.http import Answer, Broken, chunked, get, post
from tests.proxy.place import CHAT, STREAM, WHOLE, chat
from tests.proxy.upstream import DONE, EVENTS, JSON, LAST, ROLE, SEEN, chunk, head, whole, word
from tests.proxy.upstream import STREAM as STREAM_HEAD

MODELS = "/v1/models"
BODY = chat()
HIDDEN = post(CHAT, chat(user="smuggled"))
"""A request that must never reach an engine when it comes in the body of another one."""
BEFORE = f"POST {CHAT} HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\n".encode()


def framed(*lines: str, rest: bytes = b"") -> bytes:
    """A request with these framing lines, and what follows its head."""
    return BEFORE + "".join(f"{line}\r\n" for line in lines).encode("latin-1") + b"\r\n" + rest


LENGTH = f"Content-Length: {len(BODY)}"
CHUNKED = "Transfer-Encoding: chunked"
BY_LENGTH = BODY + HIDDEN
BY_CHUNKS = chunk(BODY) + LAST + HIDDEN
AT_ONCE = b"0\r\n\r\n" + HIDDEN
AMBIGUOUS = {
    "CL.TE": framed(f"Content-Length: {len(AT_ONCE)}", CHUNKED, rest=AT_ONCE),
    "TE.CL": framed(CHUNKED, "Content-Length: 4", rest=chunk(HIDDEN) + LAST),
    "TE.TE": framed(CHUNKED, "Transfer-Encoding: identity", rest=BY_CHUNKS),
    "two lengths": framed(LENGTH, "Content-Length: 0", rest=BY_LENGTH),
    "a list of lengths": framed(f"{LENGTH}, 0", rest=BY_LENGTH),
    "a signed length": framed(f"Content-Length: +{len(BODY)}", rest=BY_LENGTH),
    "a hex length": framed(f"Content-Length: 0x{len(BODY):x}", rest=BY_LENGTH),
    "xchunked": framed("Transfer-Encoding: xchunked", rest=BY_CHUNKS),
    "quoted": framed('Transfer-Encoding: "chunked"', rest=BY_CHUNKS),
    "chunked, identity": framed("Transfer-Encoding: chunked, identity", rest=BY_CHUNKS),
    "gzip, chunked": framed("Transfer-Encoding: gzip, chunked", rest=BY_CHUNKS),
    "space before the colon": framed("Transfer-Encoding : chunked", rest=BY_CHUNKS),
    "vertical tab": framed("Transfer-Encoding:\x0bchunked", rest=BY_CHUNKS),
    "NUL": framed("Transfer-Encoding: chunked\x00", rest=BY_CHUNKS),
    "folded": framed("Transfer-Encoding:\r\n chunked", rest=BY_CHUNKS),
    "bare LF": framed(LENGTH, rest=BODY).replace(b"\r\n", b"\n") + HIDDEN,
    "a header behind a bare LF": framed(f"X: y\n{CHUNKED}", rest=BY_CHUNKS),
    "a header behind a bare CR": framed(f"X: y\r{CHUNKED}", LENGTH, rest=BY_LENGTH),
    "a blank line of LF": BEFORE + LENGTH.encode() + b"\r\n\n" + BY_LENGTH,
    "a chunk size in decimal": framed(CHUNKED, rest=b"0x%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY) + HIDDEN),
    "a signed chunk size": framed(CHUNKED, rest=b"+%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY) + HIDDEN),
    "a spaced chunk size": framed(CHUNKED, rest=b"%x \r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY) + HIDDEN),
    "a chunk size beyond 64 bits": framed(CHUNKED, rest=b"f" * 17 + b"\r\n" + BY_LENGTH),
    "an extension with a bare LF": framed(
        CHUNKED, rest=b"%x;a\n%b\r\n0\r\n\r\n" % (len(BODY), BODY) + HIDDEN
    ),
    "a chunk longer than its size": framed(CHUNKED, rest=b"5\r\n%b\r\n0\r\n\r\n" % BODY + HIDDEN),
    "a chunk without its CRLF": framed(CHUNKED, rest=b"%x\r\n%b0\r\n\r\n" % (len(BODY), BODY) + HIDDEN),
    "chunked in HTTP/1.0": framed(CHUNKED, rest=BY_CHUNKS).replace(b"HTTP/1.1", b"HTTP/1.0"),
    "HTTP/2.0": framed(LENGTH, rest=BODY).replace(b"HTTP/1.1", b"HTTP/2.0"),
    "no Host": framed(LENGTH, rest=BODY).replace(b"Host: gateway\r\n", b""),
    "two Hosts": framed(LENGTH, "Host: other", rest=BODY),
    "a space in the target": framed(LENGTH, rest=BODY).replace(b"completions HTTP", b"completions x HTTP"),
}


class TestSmuggling:
    """B43: litespeedtech/openlitespeed#392, haproxy/haproxy#2237, opendatahub-io/odh-dashboard#9245.

    Where a proxy and its worker read a body's length differently, a request hidden in the body of another
    runs under somebody else's name. Whatever can be read in two ways is refused, the connection closed.
    """

    @pytest.mark.parametrize("name", AMBIGUOUS)
    @on_sockets
    async def test_the_engine_sees_nothing_of_it(self, name: str) -> None:
        async with serving() as place:
            client = await place.client()
            client.send(WHOLE)
            assert (await client.answer()).status == 200
            client.send(AMBIGUOUS[name])
            answer = await client.answer()
            assert answer.status == 400
            assert answer.value(b"connection") == b"close"
            assert answer.json["error"]["type"] == "invalid_request_error"
            await client.closed()
            assert client.unread == b""
            assert len(place.script.asked) == 1
            assert all(b"smuggled" not in received for received in place.engines[0].received)

    @on_sockets
    async def test_what_reaches_the_engine_is_framed_anew(self) -> None:
        odd = framed(CHUNKED, rest=b"".join(b"%x;ext=1\r\n%c\r\n" % (1, byte) for byte in BODY) + LAST)
        async with serving() as place:
            client = await place.client()
            for request in (WHOLE, chunked(CHAT, BODY[:7], BODY[7:]), odd):
                client.send(request)
                assert (await client.answer()).body == JSON
            assert len(place.script.asked) == 3
            for asked in place.script.asked:
                assert asked.body == BODY
                assert asked.values("content-length") == [str(len(BODY))]
                assert asked.values("transfer-encoding") == []

    @on_sockets
    async def test_a_request_in_the_body_of_another_is_only_a_body(self) -> None:
        """Framed properly, it is text like any other: not JSON, so refused, and never run."""
        async with serving() as place:
            client = await place.client()
            client.send(post(CHAT, HIDDEN), WHOLE)
            assert (await client.answer()).status == 400
            assert (await client.answer()).status == 200
            assert len(place.script.asked) == 1


HOP = [
    "Connection: x-hop, keep-alive, traceparent",
    "X-Hop: 1",
    "TE: trailers",
    "Trailer: x-later",
    "Keep-Alive: timeout=5",
    "Proxy-Authorization: Basic c2VjcmV0",
    "Proxy-Connection: keep-alive",
    "Upgrade: h2c",
    "HTTP2-Settings: AAMAAABkAAQAAP__",
    "Authorization: Bearer sk-secret",
    "X-Api-Key: sk-secret",
    "Cookie: session=secret",
    "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate: vendor=1",
]
STEERS = [
    "X-Internal-Tenant: root",
    "X-Gateway-Destination-Endpoint: 10.0.0.1:80",
    "X-Maitred-Tenant: root",
    "X-LLM-D-Target: other",
    "X-SLO-TTFT-MS: 1",
    "EPP-Profile: other",
    "X-Prefiller-Host-Port: 10.0.0.1:80",
    "X-Data-Parallel-Rank: 3",
    "X-Session-Token: abc",
    "X-Forwarded-For: 10.0.0.1",
    "X-Request-Id: chosen-by-the-client",
]


class TestHeadersThatMustNotPass:
    """B44: opendatahub-io/odh-dashboard#9245, grafbase/grafbase#1943.

    Hop-by-hop headers, those that `Connection` names, the client's key and headers that steer reached the
    worker. The head of the engine's request is made anew, and the answer's is cleaned the same way.
    """

    @on_sockets
    async def test_towards_the_engine(self) -> None:
        async with serving() as place:
            assert (await place.ask(post(CHAT, BODY, *HOP, *STEERS))).status == 200
            asked = place.script.asked[0]
            assert [name for name, _ in asked.headers] == [
                *("host", "content-type", "content-length", "x-request-id", "tracestate")
            ]
            assert asked.values("host") == [f"127.0.0.1:{place.engines[0].port}"]
            assert asked.values("x-request-id") == [place.lines[0]["id"]]
            assert b"secret" not in asked.raw_head

    @on_sockets
    async def test_trace_headers_pass(self) -> None:
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        async with serving() as place:
            await place.ask(post(CHAT, BODY, f"traceparent: {trace}"))
            assert place.script.asked[0].values("traceparent") == [trace]

    @pytest.mark.parametrize("streamed", [False, True])
    @on_sockets
    async def test_towards_the_client(self, streamed: bool) -> None:
        theirs = [
            *("connection: x-secret, x-other", "x-secret: 1", "X-Other: 1", "keep-alive: timeout=5"),
            *("proxy-authenticate: Basic", "trailer: x-later", "upgrade: h2c", "set-cookie: a=b"),
            *("server: uvicorn", "x-request-id: theirs", "access-control-allow-origin: *", "x-kept: 1"),
        ]
        events = b"".join(chunk(event) for event in EVENTS) + LAST
        plan = (
            [STREAM_HEAD[:-2] + "".join(f"{line}\r\n" for line in theirs).encode() + b"\r\n" + events]
            if streamed
            else [whole(JSON, *theirs)]
        )
        async with serving(plan) as place:
            answer = await place.ask(STREAM if streamed else WHOLE)
            assert answer.body == (SEEN if streamed else JSON)
            names = {name for name, _ in answer.headers}
            assert names <= {
                *(b"content-type", b"content-length", b"transfer-encoding", b"cache-control"),
                *(b"x-accel-buffering", b"x-request-id", b"x-kept"),
            }
            assert answer.value(b"x-kept") == b"1"
            assert answer.value(b"x-request-id").decode() == place.lines[0]["id"]

    @on_sockets
    async def test_trailers_pass_in_neither_direction(self) -> None:
        trailing = b"0\r\nx-secret: 1\r\nAuthorization: Bearer sk-secret\r\n\r\n"
        plan = [STREAM_HEAD, *map(chunk, EVENTS), trailing]
        async with serving(plan) as place:
            answer = await place.ask(framed(CHUNKED, rest=chunk(chat(stream=True)) + trailing))
            assert answer.body == SEEN
            assert b"secret" not in bytes(place.clients[0].received)
            assert b"secret" not in bytes(place.engines[0].received[-1])


class TestLengthsAndEncodings:
    """B45: radixark/miles#851, epam/ai-dial-adapter-openai#192, gadievron/raptor#547,
    freelensapp/freelens-ai-extension#272.

    A length or an encoding that was true of the engine's bytes and is not of what the client gets.
    """

    @on_sockets
    async def test_the_engine_is_never_asked_to_compress(self) -> None:
        async with serving() as place:
            await place.ask(post(CHAT, BODY, "Accept-Encoding: gzip, br"))
            assert place.script.asked[0].values("accept-encoding") == []

    @on_sockets
    async def test_what_comes_compressed_all_the_same_passes_with_its_label(self) -> None:
        packed = gzip.compress(JSON)
        async with serving([whole(packed, "content-encoding: gzip")]) as place:
            answer = await place.ask()
            assert (answer.body, answer.value(b"content-encoding")) == (packed, b"gzip")
            assert answer.value(b"content-length") == b"%d" % len(packed)

    @pytest.mark.parametrize("alias", ["x", "a-much-longer-name-than-the-engines-own"])
    @on_sockets
    async def test_a_name_put_back_changes_the_length(self, alias: str) -> None:
        async with serving(model={"name": alias, "served_as": "m"}) as place:
            answer = await place.ask(post(CHAT, chat(model=alias)))
            assert answer.json["model"] == alias
            assert answer.value(b"content-length") == b"%d" % len(answer.body)
            assert len(answer.body) == len(JSON) - 1 + len(alias)

    @on_sockets
    async def test_a_name_put_back_in_an_answer_too_large_to_hold(self) -> None:
        large = b'{"model":"m","pad":"%b"}' % (b"x" * 300_000)
        async with serving([whole(large)], model={"name": "alias", "served_as": "m"}) as place:
            answer = await place.ask(post(CHAT, chat(model="alias")))
            assert answer.framing == "chunked"
            assert answer.body == large.replace(b'"m"', b'"alias"')

    @on_sockets
    async def test_an_error_of_ours_is_not_labelled_as_the_engines(self) -> None:
        packed = gzip.compress(b'{"error":{"message":"ill"}}')
        async with serving([whole(packed, "content-encoding: gzip", "etag: x", status=500)]) as place:
            answer = await place.ask()
            assert (answer.status, answer.json["error"]["code"]) == (502, "upstream_failed")
            assert answer.values(b"content-encoding") == answer.values(b"etag") == []

    @on_sockets
    async def test_a_refusal_of_the_engine_passes_with_its_label(self) -> None:
        packed = zlib.compress(b'{"error":{"message":"no"}}')
        async with serving([whole(packed, "content-encoding: deflate", status=422)]) as place:
            answer = await place.ask()
            assert (answer.status, answer.body) == (422, packed)
            assert answer.value(b"content-encoding") == b"deflate"


def picture(body_bytes: int) -> bytes:
    """A chat request of this size, of which nearly all is a picture."""
    parts: Any = [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{'A' * body_bytes}"}},
    ]
    return chat(messages=[{"role": "user", "content": parts}])


class TestBodySizes:
    """B47: envoyproxy/ai-gateway#827, envoyproxy/ai-gateway#1209, mnfst/llm-gateway#2126,
    lablup/mlxcel#1227, sgl-project/sglang#6622.

    Limits of 32 KB to 4 MB that nobody had set met normal requests with pictures and long contexts.
    """

    @pytest.mark.parametrize("mib", [1, 8, 32])
    @pytest.mark.parametrize("in_chunks", [False, True])
    @on_sockets
    async def test_a_large_request_passes_as_it_is(self, mib: int, in_chunks: bool) -> None:
        body = picture(mib << 20)
        pieces = (body[at : at + 1_000_000] for at in range(0, len(body), 1_000_000))
        async with serving() as place:
            answer = await place.ask(chunked(CHAT, *pieces) if in_chunks else post(CHAT, body))
            assert answer.status == 200
            assert place.script.asked[0].body == body

    @on_sockets
    async def test_the_limit_is_told_before_the_body_is_sent(self) -> None:
        async with serving() as place:
            client = await place.client()
            client.send(get(CHAT, f"Content-Length: {(64 << 20) + 1}", method="POST"))
            answer = await client.answer()
            assert (answer.status, answer.outcome) == (413, "body_too_large")
            assert answer.json["error"]["type"] == "invalid_request_error"
            await client.closed()

    @on_sockets
    async def test_a_body_is_counted_while_it_comes(self) -> None:
        """The end of this one never comes: it is refused when it passes the limit."""
        async with serving(http=Http(body_bytes_max=1_000_000)) as place:
            client = await place.client()
            client.send(framed(CHUNKED), *[chunk(b"x" * 100_000)] * 11)
            answer = await client.answer()
            assert (answer.status, answer.outcome) == (413, "body_too_large")
            await client.closed()
            assert place.script.asked == []

    @on_sockets
    async def test_a_large_answer_passes_while_it_comes(self) -> None:
        """40 MB of embeddings, of which the second half is made once the client has some of the first."""
        half, rest = b"0.125," * 3_500_000, asyncio.Event()
        body = b'{"data":[' + half + half + b'0],"usage":{"prompt_tokens":3}}'
        pieces = [body[at : at + 1_000_000] for at in range(0, len(body), 1_000_000)]
        middle = len(pieces) // 2
        plan: Plan = [head(200, f"content-length: {len(body)}"), *pieces[:middle], rest, *pieces[middle:]]
        async with serving(plan) as place:
            client = await place.client()
            client.send(post("/v1/embeddings", b'{"model":"m","input":"hi"}'))
            await client.heard(b"0.125,")
            rest.set()
            answer = await client.answer()
            assert answer.body == body
            assert place.lines[0]["prompt_tokens"] == 3


class TestMethodsAndPaths:
    """B48: bricks-cloud/BricksLLM#45, pinecone-io/canopy#284, icebear0828/codex-proxy#447.

    Preflights, HEAD, unknown paths and wrong methods: answered properly, and no page may read without leave.
    """

    @pytest.mark.parametrize(
        ("method", "path", "status", "allow"),
        [
            ("OPTIONS", CHAT, 405, b"POST"),
            ("OPTIONS", MODELS, 405, b"GET, HEAD"),
            ("GET", CHAT, 405, b"POST"),
            ("POST", MODELS, 405, b"GET, HEAD"),
            ("DELETE", f"{MODELS}/m", 405, b"GET, HEAD"),
            ("GET", "/v1/nope", 404, b""),
            ("GET", "/", 404, b""),
            ("POST", "/v1/chat/completions/", 404, b""),
            ("POST", "/v1//chat/completions", 404, b""),
            ("POST", "/v1/../v1/chat/completions", 404, b""),
            ("GET", "/v1/models/other", 404, b""),
        ],
    )
    @on_sockets
    async def test_what_is_not_there(self, method: str, path: str, status: int, allow: bytes) -> None:
        async with serving() as place:
            answer = await place.ask(get(path, "Origin: https://evil.example", method=method))
            assert (answer.status, answer.value(b"allow")) == (status, allow)
            error = answer.json["error"]
            assert set(error) == {"message", "type", "param", "code"}
            assert error["type"] == "invalid_request_error"
            assert not [name for name, _ in answer.headers if name.startswith(b"access-control-")]
            assert place.script.asked == []

    @pytest.mark.parametrize("path", [MODELS, f"{MODELS}/m", "/health", "/livez"])
    @on_sockets
    async def test_head_is_get_without_the_body(self, path: str) -> None:
        async with serving() as place:
            client = await place.client()
            client.send(get(path), get(path, method="HEAD"), WHOLE)
            whole_, bare = await client.answer("GET"), await client.answer("HEAD")
            assert (whole_.status, bare.status) == (200, 200)
            assert bare.body == b""
            assert bare.value(b"content-length") == b"%d" % len(whole_.body)
            assert {n for n, _ in bare.headers} == {n for n, _ in whole_.headers}
            after = await client.answer()
            assert (after.version, after.body) == (b"HTTP/1.1", JSON), "nothing lies between the answers"


PAGE, OTHER = "https://chat.example", "https://evil.example"
ASKS_LEAVE = (
    "Access-Control-Request-Method: POST",
    "Access-Control-Request-Headers: authorization, content-type",
)


def permissions(answer: Answer) -> dict[bytes, bytes]:
    """What an answer says to a browser about other origins."""
    return {name: value for name, value in answer.headers if name.startswith(b"access-control-")}


class TestPagesThatAsk:
    """B48, its other half: where pages may call the API, those that are listed may and nobody else."""

    @on_sockets
    async def test_a_listed_page_may_ask_and_read(self) -> None:
        async with serving(http=Http(cors=(PAGE,))) as place:
            leave = await place.ask(get(CHAT, f"Origin: {PAGE}", *ASKS_LEAVE, method="OPTIONS"))
            assert leave.status == 204
            assert permissions(leave)[b"access-control-allow-origin"] == PAGE.encode()
            assert b"POST" in permissions(leave)[b"access-control-allow-methods"]
            assert permissions(leave)[b"access-control-allow-headers"] == b"authorization, content-type"
            assert place.script.asked == []
            for request, status in (
                (post(CHAT, BODY, f"Origin: {PAGE}"), 200),
                (post(CHAT, b"x", f"Origin: {PAGE}"), 400),
            ):
                answer = await place.ask(request)
                assert answer.status == status
                assert permissions(answer)[b"access-control-allow-origin"] == PAGE.encode()
                assert answer.value(b"vary").lower() == b"origin"
                assert b"access-control-allow-credentials" not in permissions(answer)

    @pytest.mark.parametrize(
        "origin", [OTHER, "null", "*", f"{PAGE}.evil.example", "http://chat.example", f"{PAGE}:8443"]
    )
    @on_sockets
    async def test_no_other_page_may(self, origin: str) -> None:
        async with serving(http=Http(cors=(PAGE,))) as place:
            for request in (
                get(CHAT, f"Origin: {origin}", *ASKS_LEAVE, method="OPTIONS"),
                post(CHAT, BODY, f"Origin: {origin}"),
                get(MODELS, f"Origin: {origin}"),
                get("/v1/nope", f"Origin: {origin}"),
            ):
                answer = await place.ask(request)
                assert permissions(answer) == {}
                assert answer.status == 405 if request.startswith(b"OPTIONS") else answer.status < 500

    @on_sockets
    async def test_never_on_the_operators_port(self) -> None:
        async with serving(http=Http(cors=(PAGE,))) as place, admin_port(place) as ask:
            for method in ("OPTIONS", "GET", "POST"):
                answer = await ask("/admin/v1/endpoints", f"Origin: {PAGE}", *ASKS_LEAVE, method=method)
                assert permissions(answer) == {}
                assert answer.status in ((200,) if method == "GET" else (403, 405))


class TestPipelining:
    """B95: Kludex/uvicorn#2243, Kludex/uvicorn#2238, benoitc/gunicorn#3727.

    Several requests in one write: answered in order, each whole, none after a `Connection: close`.
    """

    @on_sockets
    async def test_three_at_once(self) -> None:
        async with serving() as place:
            client = await place.client()
            client.send(get(MODELS) * 3)
            bodies = [(await client.answer()).body for _ in range(3)]
            assert len(set(bodies)) == 1
            assert json.loads(bodies[0])["data"][0]["id"] == "m"

    @on_sockets
    async def test_what_follows_a_stream_waits_for_its_end(self) -> None:
        rest = asyncio.Event()
        plan: Plan = [STREAM_HEAD, chunk(ROLE), chunk(word("Hello")), rest, chunk(DONE), LAST]
        async with serving(plan, GOOD) as place:
            client = await place.client()
            client.send(STREAM + get(MODELS) + WHOLE)
            await client.heard(b"Hello")
            assert bytes(client.received).count(b"HTTP/1.1") == 1
            assert len(place.script.asked) == 1
            rest.set()
            assert (await client.answer()).body == ROLE + word("Hello") + DONE
            assert (await client.answer()).json["object"] == "list"
            assert (await client.answer()).body == JSON

    @pytest.mark.parametrize(
        "first", [get(MODELS, "Connection: close"), post(CHAT, BODY, "Connection: close")]
    )
    @on_sockets
    async def test_nothing_is_answered_after_close(self, first: bytes) -> None:
        async with serving() as place:
            client = await place.client()
            client.send(first + WHOLE)
            answer = await client.answer()
            assert (answer.status, answer.value(b"connection")) == (200, b"close")
            with pytest.raises(Broken):
                await client.answer()
            assert client.unread == b""
            assert len(place.script.asked) == first.count(b"POST")

    @on_sockets
    async def test_each_gets_its_own_answer(self) -> None:
        """Twenty requests in one write, answered by an engine that says each time another thing."""
        async with serving(*[stream(word(f"number {number}"), DONE) for number in range(20)]) as place:
            client = await place.client()
            client.send(STREAM * 20)
            for number in range(20):
                assert (await client.answer()).body == word(f"number {number}") + DONE
