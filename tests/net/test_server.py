"""The server's side of HTTP/1.1: what it understands, what it refuses, and how long it waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maitred.core.outcome import Outcome
from maitred.net.memory import MemoryNetwork
from maitred.net.virtual import run
from tests.net.http import Broken, Client, Stubborn, chunked, get, post, turns
from tests.net.site import ECHO, LATER, STREAM, Door, door


async def took(work: Awaitable[object]) -> float:
    loop = asyncio.get_running_loop()
    start = loop.time()
    await work
    return loop.time() - start


async def bodies(client: Client, count: int) -> list[bytes]:
    return [(await client.answer()).body for _ in range(count)]


async def refused(at: Door, raw: bytes, status: int) -> Client:
    """Send this: one refusal is the answer, nobody is served, and the connection is closed."""
    client = await at.client()
    client.send(raw)
    answer = await client.answer()
    assert answer.status == status
    assert answer.value(b"connection") == b"close"
    assert answer.outcome == at.site.refused[0].label
    assert answer.json["error"]["type"] == "invalid_request_error"
    await client.closed()
    assert client.unread == b""
    assert at.site.served == []
    assert len(at.site.refused) == 1
    return client


# -- answering ----------------------------------------------------------------------------------------


def test_requests_are_answered_on_a_kept_connection() -> None:
    async def main() -> None:
        async with door() as at:
            client = await at.client()
            for request, said in (
                (get(ECHO + "?query=1"), b"GET /echo "),
                (post(ECHO, b"body"), b"POST /echo body"),
                (post(ECHO, b""), b"POST /echo "),
                (chunked(ECHO, b"bo", b"dy"), b"POST /echo body"),
                (get(ECHO, "Content-Length: 3") + b"abc", b"GET /echo abc"),
            ):
                client.send(request)
                answer = await client.answer()
                assert (answer.status, answer.version, answer.body) == (200, b"HTTP/1.1", said)
                assert answer.values(b"connection") == []
                assert answer.value(b"x-head") == b"1"

    run(main())


def test_head_is_answered_without_a_body() -> None:
    async def main() -> None:
        async with door() as at:
            client = await at.client()
            client.send(get(ECHO, method="HEAD"), get(ECHO))
            answer = await client.answer("HEAD")
            assert answer.value(b"content-length") == str(len("HEAD /echo ")).encode()
            assert (await client.answer()).body == b"GET /echo "

    run(main())


def test_a_large_answer_is_whole() -> None:
    async def main() -> None:
        async with door() as at:
            client = await at.client()
            client.send(post(ECHO, b"x" * 100_000))
            assert (await client.answer()).body == b"POST /echo " + b"x" * 100_000

    run(main())


@pytest.mark.parametrize(
    ("lines", "version", "kept"),
    [
        ((), "1.1", True),
        (("Connection: keep-alive",), "1.1", True),
        (("Connection: close",), "1.1", False),
        (("Connection: x, Close",), "1.1", False),
        ((), "1.0", False),
        (("Connection: keep-alive",), "1.0", True),
    ],
)
def test_a_connection_is_kept_as_the_client_wishes(lines: tuple[str, ...], version: str, kept: bool) -> None:
    async def main() -> None:
        async with door() as at:
            client = await at.client()
            client.send(post(ECHO, b"a", *lines, version=version))
            answer = await client.answer()
            assert answer.body == b"POST /echo a"
            if kept:
                client.send(post(ECHO, b"b"))
                assert (await client.answer()).body == b"POST /echo b"
            else:
                assert answer.value(b"connection") == b"close"
                await client.closed()

    run(main())


@pytest.mark.parametrize(("version", "framing"), [("1.1", "chunked"), ("1.0", "close")])
def test_a_stream_is_framed_as_the_client_understands(version: str, framing: str) -> None:
    async def main() -> None:
        async with door() as at:
            client = await at.client()
            client.send(get(STREAM, "Connection: keep-alive", version=version))
            await client.heard(b"begun")
            (exchange,) = at.site.held
            exchange.write(b"")
            exchange.write(b"x" * 100_000)
            exchange.end()
            answer = await client.answer()
            assert answer.framing == framing
            assert answer.body == b"begun" + b"x" * 100_000
            assert client.over == (version == "1.0")

    run(main())


def test_a_site_that_drains_closes_after_each_answer() -> None:
    async def main() -> None:
        async with door() as at:
            client = await at.client()
            at.site.draining = True
            client.send(get(ECHO))
            assert (await client.answer()).value(b"connection") == b"close"
            await client.closed()

    run(main())


def test_upgrades_are_ignored() -> None:
    async def main() -> None:
        async with door() as at:
            client = await at.client()
            upgrade = ("Connection: Upgrade", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__")
            client.send(get(ECHO, *upgrade) + post(ECHO, b"a", *upgrade) + post(ECHO, b"b"))
            assert await bodies(client, 3) == [b"GET /echo ", b"POST /echo a", b"POST /echo b"]

    run(main())


def test_an_answer_broken_off_does_not_look_whole() -> None:
    async def main() -> None:
        async with door() as at:
            client = await at.client()
            client.send(get(STREAM))
            await client.heard(b"begun")
            at.site.held[0].abort()
            with pytest.raises(Broken):
                await client.answer()
            assert not client.received.endswith(b"0\r\n\r\n")

    run(main())


# -- in order -----------------------------------------------------------------------------------------


def test_pipelined_requests_are_answered_in_order() -> None:
    async def main() -> None:
        async with door() as at:
            client = await at.client()
            client.send(post(LATER, b"1") + get(ECHO) + post(ECHO, b"3"))
            await turns()
            assert client.received == b""
            at.site.held[0].respond(200, b"", b"late")
            assert await bodies(client, 3) == [b"late", b"GET /echo ", b"POST /echo 3"]

    run(main())


def test_a_request_behind_a_stream_waits_for_its_end() -> None:
    async def main() -> None:
        async with door() as at:
            client = await at.client()
            client.send(post(STREAM, b"") + get(ECHO))
            await client.heard(b"begun")
            await turns()
            at.site.held[0].write(b" and")
            at.site.held[0].end()
            assert await bodies(client, 2) == [b"begun and", b"GET /echo "]

    run(main())


@pytest.mark.parametrize("path", [ECHO, LATER])
def test_what_follows_a_last_request_gets_no_answer(path: str) -> None:
    async def main() -> None:
        async with door() as at:
            client = await at.client()
            client.send(post(path, b"1", "Connection: close") + post(ECHO, b"2"))
            await turns()
            for exchange in at.site.held:
                exchange.respond(200, b"", b"POST /echo 1")
            assert await bodies(client, 1) == [b"POST /echo 1"]
            await client.closed()
            assert client.unread == b""
            assert len(at.site.served) == 1
            assert at.site.refused == []

    run(main())


def test_a_broken_request_is_refused_after_those_before_it_are_answered() -> None:
    async def main() -> None:
        async with door() as at:
            client = await at.client()
            client.send(post(LATER, b"1") + b"NONSENSE\r\n\r\n")
            await turns()
            assert client.received == b""
            at.site.held[0].respond(200, b"", b"late")
            assert (await client.answer()).body == b"late"
            assert (await client.answer()).status == 400
            await client.closed()

    run(main())


def test_a_client_that_sends_far_ahead_is_not_read() -> None:
    async def main() -> None:
        async with door() as at:
            client = await at.client()
            client.send(post(LATER, b"0"), *(post(ECHO, b"x" * 10_000) for _ in range(100)))
            await turns(200)
            assert client.transport.get_write_buffer_size() > 500_000
            at.site.held[0].respond(200, b"", b"late")
            await bodies(client, 101)
            assert client.transport.get_write_buffer_size() == 0

    run(main())


def test_a_client_that_does_not_read_is_not_served_ahead() -> None:
    async def main() -> None:
        async with door() as at:
            client = await at.client()
            client.transport.pause_reading()
            client.send(post(ECHO, b"x" * 200_000) * 5)
            await turns(50)
            assert len(at.site.served) == 1
            client.transport.resume_reading()
            await bodies(client, 5)

    run(main())


# -- asking first -------------------------------------------------------------------------------------


def test_a_client_that_asks_before_it_sends_its_body_is_told_to_go_on() -> None:
    async def main() -> None:
        async with door() as at:
            client = await at.client()
            request = post(ECHO, b"body", "Expect: 100-continue")
            client.send(request[:-4])
            await client.heard(b"HTTP/1.1 100 Continue\r\n\r\n")
            client.send(request[-4:])
            answer = await client.answer()
            assert (answer.interim, answer.body) == ([100], b"POST /echo body")

    run(main())


@pytest.mark.parametrize(
    ("path", "size", "status"), [(ECHO, 10_001, 413), ("/nothing", 10_000_000, 413), ("/nothing", 100, 404)]
)
def test_a_client_that_asks_is_refused_before_it_sends_its_body(path: str, size: int, status: int) -> None:
    async def main() -> None:
        async with door(body_bytes_max=10_000) as at:
            client = await at.client()
            client.send(get(path, f"Content-Length: {size}", "Expect: 100-continue", method="POST"))
            assert await took(client.heard(b"\r\n\r\n")) == 0
            answer = await client.answer()
            assert (answer.interim, answer.status) == ([], status)

    run(main())


# -- refusing -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 100, 60_000])
def test_a_refused_requests_small_body_is_read_and_the_connection_kept(size: int) -> None:
    async def main() -> None:
        async with door() as at:
            client = await at.client()
            client.send(post("/nothing", b"x" * size), get(ECHO))
            answer = await client.answer()
            assert (answer.status, answer.outcome) == (404, "path_not_found")
            assert answer.value(b"x-should-retry") == b"false"
            assert answer.value(b"x-request-id") == b"req-1"
            assert (await client.answer()).body == b"GET /echo "

    run(main())


def test_a_refused_requests_large_body_ends_the_connection() -> None:
    async def main() -> None:
        async with door() as at:
            await refused(at, get("/nothing", "Content-Length: 100000", method="POST"), 404)
        async with door() as at:
            await refused(at, post("/nothing", b"x" * 100_000), 404)

    run(main())


@pytest.mark.parametrize(
    "raw",
    [
        get(ECHO, "Content-Length: 100000", method="POST"),
        post(ECHO, b"x" * 101),
        chunked(ECHO, b"x" * 50, b"x" * 51),
        chunked(ECHO, b"x" * 1_000_000),
    ],
)
def test_a_body_over_the_limit_is_refused(raw: bytes) -> None:
    async def main() -> None:
        async with door(body_bytes_max=100) as at:
            await refused(at, raw, 413)

    run(main())


def test_a_body_at_the_limit_is_served() -> None:
    async def main() -> None:
        async with door(body_bytes_max=100) as at:
            client = await at.client()
            client.send(post(ECHO, b"x" * 100), chunked(ECHO, b"x" * 40, b"x" * 60))
            assert await bodies(client, 2) == [b"POST /echo " + b"x" * 100] * 2

    run(main())


LARGE = {
    "one long header": [get(ECHO, "X: " + "a" * 2000)],
    "a long target": [get(ECHO + "?" + "a" * 2000)],
    "many headers": [get(ECHO, *(f"X-{n}: a" for n in range(30)))],
    "a long header in pieces": [get(ECHO, "X: " + "a" * 2000)[i : i + 100] for i in range(0, 2100, 100)],
    "a long header behind a request": [get(ECHO) + get(ECHO, "X: " + "a" * 2000)],
    "a head without end": [b"GET /echo HTTP/1.1\r\nHost: a\r\n" + b"X: a\r\n" * 500],
}


@pytest.mark.parametrize("case", LARGE)
def test_a_head_over_the_limits_is_refused(case: str) -> None:
    async def main() -> None:
        async with door(head_bytes_max=1000, headers_max=20) as at:
            client = await at.client()
            client.send(*LARGE[case])
            answer = await client.answer()
            if case.endswith("behind a request"):
                answer = await client.answer()
            assert (answer.status, answer.outcome) == (431, "headers_too_large")
            await client.closed()

    run(main())


H = b"Host: gateway\r\n"
SMUGGLED = b"0\r\n\r\nGET /echo HTTP/1.1\r\nHost: gateway\r\n\r\n"
MALFORMED = {
    "length and coding": b"POST /echo HTTP/1.1\r\n%bContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n" % H
    + SMUGGLED,
    "coding and length": b"POST /echo HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n" % H
    + SMUGGLED,
    "two lengths": b"POST /echo HTTP/1.1\r\n%bContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde" % H,
    "the same length twice": b"POST /echo HTTP/1.1\r\n%bContent-Length: 4\r\nContent-Length: 4\r\n\r\nabcd" % H,
    "a list of lengths": b"POST /echo HTTP/1.1\r\n%bContent-Length: 4, 4\r\n\r\nabcd" % H,
    "a signed length": b"POST /echo HTTP/1.1\r\n%bContent-Length: +4\r\n\r\nabcd" % H,
    "a negative length": b"POST /echo HTTP/1.1\r\n%bContent-Length: -4\r\n\r\n" % H,
    "a length with a blank within": b"POST /echo HTTP/1.1\r\n%bContent-Length: 4 4\r\n\r\nabcd" % H,
    "a length beyond 64 bits": b"POST /echo HTTP/1.1\r\n%bContent-Length: 99999999999999999999\r\n\r\n" % H,
    "an empty length": b"POST /echo HTTP/1.1\r\n%bContent-Length: \r\n\r\n" % H,
    "a folded header": b"GET /echo HTTP/1.1\r\n%bX: a\r\n b\r\n\r\n" % H,
    "a folded coding": b"POST /echo HTTP/1.1\r\n%bTransfer-Encoding:\r\n chunked\r\n\r\n" % H + SMUGGLED,
    "a header without a colon": b"GET /echo HTTP/1.1\r\n%bnonsense\r\n\r\n" % H,
    "a blank before the colon": b"POST /echo HTTP/1.1\r\n%bContent-Length : 4\r\n\r\nabcd" % H,
    "a header without a name": b"GET /echo HTTP/1.1\r\n%b: a\r\n\r\n" % H,
    "a blank before the first header": b"GET /echo HTTP/1.1\r\n %b\r\n" % H,
    "bare LF": b"GET /echo HTTP/1.1\nHost: gateway\n\n",
    "bare LF after a header": b"GET /echo HTTP/1.1\r\nHost: gateway\nX: a\r\n\r\n",
    "bare LF at the end": b"GET /echo HTTP/1.1\r\n%b\n" % H,
    "bare CR in a header": b"GET /echo HTTP/1.1\r\n%bX: a\rY: b\r\n\r\n" % H,
    "NUL in a header": b"GET /echo HTTP/1.1\r\n%bX: a\x00b\r\n\r\n" % H,
    "NUL in a name": b"GET /echo HTTP/1.1\r\n%bX\x00: a\r\n\r\n" % H,
    "NUL in the target": b"GET /ec\x00ho HTTP/1.1\r\n%b\r\n" % H,
    "gzip, chunked": b"POST /echo HTTP/1.1\r\n%bTransfer-Encoding: gzip, chunked\r\n\r\n" % H + SMUGGLED,
    "chunked twice": b"POST /echo HTTP/1.1\r\n%bTransfer-Encoding: chunked, chunked\r\n\r\n" % H + SMUGGLED,
    "two codings": b"POST /echo HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n" % H
    + SMUGGLED,
    "a hidden coding": b"POST /echo HTTP/1.1\r\n%bTransfer-Encoding: \x0bchunked\r\n\r\n" % H + SMUGGLED,
    "only gzip": b"POST /echo HTTP/1.1\r\n%bTransfer-Encoding: gzip\r\n\r\n" % H,
    "identity": b"POST /echo HTTP/1.1\r\n%bTransfer-Encoding: identity\r\n\r\n" % H,
    "a coding in 1.0": b"POST /echo HTTP/1.0\r\n%bTransfer-Encoding: chunked\r\n\r\n" % H + SMUGGLED,
    "HTTP/2.0": b"GET /echo HTTP/2.0\r\n%b\r\n" % H,
    "HTTP/0.9": b"GET /echo HTTP/0.9\r\n%b\r\n" % H,
    "HTTP/1.2": b"GET /echo HTTP/1.2\r\n%b\r\n" % H,
    "HTTP/3.7": b"GET /echo HTTP/3.7\r\n%b\r\n" % H,
    "no version": b"GET /echo\r\n\r\n",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "another protocol": b"GET /echo ICE/1.0\r\n%b\r\n" % H,
    "lower case": b"get /echo HTTP/1.1\r\n%b\r\n" % H,
    "no host": b"GET /echo HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /echo HTTP/1.1\r\n%b%b\r\n" % (H, H),
    "two hosts of different case": b"GET /echo HTTP/1.1\r\n%bHOST: other\r\n\r\n" % H,
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "an unknown method": b"FROB /echo HTTP/1.1\r\n%b\r\n" % H,
    "not ASCII": "GET /ec\u00e4ho HTTP/1.1\r\nHost: gateway\r\n\r\n".encode(),
}
CHUNKED = b"POST /echo HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\n" % H
BAD_CHUNKS = {
    "no number": b"xyz\r\nabc\r\n0\r\n\r\n",
    "a signed size": b"+3\r\nabc\r\n0\r\n\r\n",
    "a negative size": b"-3\r\nabc\r\n0\r\n\r\n",
    "a prefixed size": b"0x3\r\nabc\r\n0\r\n\r\n",
    "an empty size": b"\r\nabc\r\n0\r\n\r\n",
    "a size beyond 64 bits": b"FFFFFFFFFFFFFFFFF\r\nabc\r\n0\r\n\r\n",
    "a blank before the size": b" 3\r\nabc\r\n0\r\n\r\n",
    "a blank after the size": b"3 \r\nabc\r\n0\r\n\r\n",
    "a short chunk": b"4\r\nabc\r\n0\r\n\r\n",
    "a long chunk": b"2\r\nabc\r\n0\r\n\r\n",
    "bare LF after the size": b"3\nabc\r\n0\r\n\r\n",
    "bare LF after the data": b"3\r\nabc\n0\r\n\r\n",
    "NUL in an extension": b"3;a=\x00\r\nabc\r\n0\r\n\r\n",
    "bare LF in an extension": b"3;a\nabc\r\n0\r\n\r\n",
    "bare LF at the end": b"3\r\nabc\r\n0\r\n\n",
    "a length as a trailer": b"3\r\nabc\r\n0\r\nContent-Length: 9\r\n\r\n",
    "a broken trailer": b"3\r\nabc\r\n0\r\nX : a\r\n\r\n",
}
MALFORMED |= {f"chunks: {case}": CHUNKED + chunks for case, chunks in BAD_CHUNKS.items()}


@pytest.mark.parametrize("split", [False, True], ids=["whole", "bytewise"])
@pytest.mark.parametrize("case", MALFORMED)
def test_what_could_be_understood_in_two_ways_is_refused(case: str, split: bool) -> None:
    network = MemoryNetwork(split=(lambda data: [bytes([byte]) for byte in data]) if split else None)

    async def main() -> None:
        async with door(network) as at:
            await refused(at, MALFORMED[case], 400)
            assert at.site.refused == [Outcome.BAD_REQUEST]

    run(main())


def test_nonsense_behind_a_request_is_refused_when_that_is_answered() -> None:
    async def main() -> None:
        async with door() as at:
            client = await at.client()
            client.send(post(ECHO, b"body") + b"trailing garbage")
            assert (await client.answer()).body == b"POST /echo body"
            assert (await client.answer()).status == 400
            await client.closed()
            assert len(at.site.served) == 1

    run(main())


def test_connect_is_refused_and_its_tunnel_is_not_read() -> None:
    async def main() -> None:
        async with door() as at:
            client = await at.client()
            client.send(b"CONNECT engine:80 HTTP/1.1\r\nHost: engine\r\n\r\n" + get(ECHO))
            assert (await client.answer()).status in (404, 405)
            await client.closed()
            assert client.unread == b""
            assert at.site.served == []

    run(main())


def test_chunk_extensions_and_trailers_are_dropped() -> None:
    async def main() -> None:
        async with door() as at:
            client = await at.client()
            client.send(CHUNKED + b'3;a=b;c="d"\r\nabc\r\n0\r\nHost: other\r\nX: y\r\n\r\n' + get(ECHO))
            assert await bodies(client, 2) == [b"POST /echo abc", b"GET /echo "]

    run(main())


def test_empty_lines_before_a_request_are_ignored() -> None:
    async def main() -> None:
        async with door() as at:
            client = await at.client()
            client.send(b"\r\n" + get(ECHO) + b"\r\n" + get(ECHO))
            assert await bodies(client, 2) == [b"GET /echo "] * 2

    run(main())


# -- waiting ------------------------------------------------------------------------------------------


async def timed_out(client: Client) -> None:
    answer = await client.answer()
    assert (answer.status, answer.outcome) == (408, "request_timeout")
    assert answer.value(b"connection") == b"close"
    await client.closed()


async def drip(client: Client, data: bytes, every_s: float) -> None:
    for byte in data:
        client.send(bytes([byte]))
        await asyncio.sleep(every_s)


@pytest.mark.parametrize("before", [b"", get(ECHO)], ids=["new", "kept"])
def test_a_head_must_arrive_within_ten_seconds_however_slowly(before: bytes) -> None:
    async def main() -> None:
        async with door() as at:
            client = await at.client()
            if before:
                client.send(before)
                await client.answer()
            dripping = asyncio.create_task(drip(client, get(ECHO), 1.0))
            assert 9.7 <= await took(timed_out(client)) <= 10.3
            assert at.site.refused == [Outcome.REQUEST_TIMEOUT]
            dripping.cancel()

    run(main())


def test_a_head_that_begins_with_the_last_request_has_no_longer() -> None:
    async def main() -> None:
        async with door() as at:
            client = await at.client()
            client.send(get(ECHO) + get(ECHO)[:20])
            await client.answer()
            assert 9.7 <= await took(timed_out(client)) <= 10.3

    run(main())


def test_a_body_may_be_slow_but_not_silent() -> None:
    async def main() -> None:
        async with door() as at:
            client = await at.client()
            request = post(ECHO, b"12345")
            client.send(request[:-5])
            await drip(client, request[-5:-1], 29.0)
            client.send(b"5")
            assert (await client.answer()).body == b"POST /echo 12345"
            client.send(request[:-1])
            assert 29.7 <= await took(timed_out(client)) <= 30.3

    run(main())


@pytest.mark.parametrize("before", [b"", get(ECHO)], ids=["new", "kept"])
def test_an_idle_connection_is_closed_after_620_seconds(before: bytes) -> None:
    async def main() -> None:
        async with door() as at:
            client = await at.client()
            if before:
                client.send(before)
                await client.answer()
            assert 619.7 <= await took(client.closed()) <= 620.3
            assert client.unread == b""
            assert at.site.refused == []

    run(main())


def test_an_answer_may_take_any_time() -> None:
    async def main() -> None:
        async with door() as at:
            client = await at.client()
            client.send(post(LATER, b""))
            await asyncio.sleep(3000)
            at.site.held[0].respond(200, b"", b"at last")
            assert (await client.answer()).body == b"at last"

    run(main())


@pytest.mark.parametrize("path", [ECHO, STREAM])
def test_a_client_that_takes_nothing_for_a_minute_is_dropped(path: str) -> None:
    async def main() -> None:
        async with door() as at:
            client = await at.client()
            client.transport.pause_reading()
            client.send(post(path, b"x" * 200_000))
            await turns()
            for exchange in at.site.held:
                exchange.write(b"x" * 200_000)
            assert await took(until_gone(at)) == pytest.approx(60, abs=0.3)
            assert all(exchange.gone for exchange in at.site.held)

    run(main())


def test_a_client_that_takes_a_little_is_not_dropped() -> None:
    """Sixty seconds are the longest time without a byte, not for all of them."""

    async def main() -> None:
        pieces = MemoryNetwork(split=lambda data: [data[i : i + 16384] for i in range(0, len(data), 16384)])
        async with door(pieces) as at:
            client = await at.client()
            client.send(post(ECHO, b"x" * 500_000))
            reading = asyncio.create_task(client.answer())
            while not reading.done() and not client.over:
                client.transport.pause_reading()
                await asyncio.sleep(5.0)
                client.transport.resume_reading()
                await turns(3)
            assert len((await reading).body) == 500_011

    run(main())


@pytest.mark.parametrize("reads", [True, False])
def test_a_closing_connection_lingers_no_longer_than_two_seconds(reads: bool) -> None:
    """The client goes on to send: it is read, so that it sees the refusal and not a reset, but not for ever."""

    async def main() -> None:
        async with door() as at:
            client = await at.client(Stubborn)
            if not reads:
                client.transport.pause_reading()
            client.send(get("/nothing", "Content-Length: 10000000", method="POST"))
            await turns()
            client.send(b"x" * 100_000)
            assert await took(until_gone(at)) <= 2.3
            if reads:
                assert b"404" in client.received

    run(main())


async def until_gone(at: Door) -> None:
    while at.site.connections:
        await asyncio.sleep(0.05)


# -- anything at all ----------------------------------------------------------------------------------

SHORT: dict[str, Any] = {
    "head_timeout_s": 1.0,
    "body_timeout_s": 1.0,
    "keep_alive_s": 2.0,
    "body_bytes_max": 5000,
    "head_bytes_max": 2000,
}
VALID = (
    post(ECHO, b"body"),
    get(ECHO),
    chunked(ECHO, b"bo", b"dy"),
    post(ECHO, b"a" * 1000, "Expect: 100-continue"),
    get("/nothing"),
)


def cut_at(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({cut % (len(data) + 1) for cut in cuts})
    return [data[a:b] for a, b in zip((0, *places), (*places, len(data)), strict=True)]


@st.composite
def mutants(draw: st.DrawFn) -> bytes:
    """Valid requests with bytes changed, left out and put in; or anything."""
    if draw(st.booleans()):
        return draw(st.binary(max_size=300))
    raw = bytearray(b"".join(draw(st.lists(st.sampled_from(VALID), min_size=1, max_size=3))))
    bits = st.sampled_from((b"\r", b"\n", b"\r\n", b"\x00", b" ", b":", b"0", b"\xff", b"chunked", b"", b"\t"))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(raw)))
        raw[at : at + draw(st.integers(0, 3))] = draw(bits)
    return bytes(raw)


@settings(max_examples=150, deadline=None)
@given(mutants(), st.lists(st.integers(0, 5000), max_size=5))
def test_whatever_is_sent_ends_in_answers_or_a_close(raw: bytes, cuts: list[int]) -> None:
    async def main() -> None:
        async with door(**SHORT) as at:
            client = await at.client()
            client.send(*cut_at(raw, cuts))
            await client.closed()
            while b"HTTP/1.1" in client.unread:
                answer = await client.answer()
                assert answer.status in (200, 400, 404, 408, 413, 431)

    run(main(), timeout_s=30.0)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(VALID), min_size=1, max_size=3), st.lists(st.integers(0, 5000), max_size=8))
def test_requests_may_be_cut_anywhere(requests: list[bytes], cuts: list[int]) -> None:
    async def answers(parts: list[bytes]) -> list[tuple[int, bytes]]:
        async with door(**SHORT) as at:
            client = await at.client()
            client.send(*parts)
            answers = [await client.answer() for _ in requests]
            assert client.unread == b""
            return [(answer.status, answer.body) for answer in answers]

    raw = b"".join(requests)
    assert run(answers(cut_at(raw, cuts))) == run(answers([raw]))


@pytest.mark.parametrize("request_", VALID)
def test_a_request_may_be_cut_at_every_byte(request_: bytes) -> None:
    async def main() -> None:
        async with door(**SHORT) as at:
            client = await at.client()
            client.send(request_)
            answer = await client.answer()
            for at_byte in range(1, min(len(request_), 200)):
                client.send(request_[:at_byte], request_[at_byte:])
                again = await client.answer()
                assert (again.status, again.body) == (answer.status, answer.body)

    run(main())
