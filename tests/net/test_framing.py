"""What the server refuses: what is too large, and what two readers could understand differently.

Each is answered by one refusal, nobody is served, and the connection is closed.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maitred.core.outcome import Outcome
from maitred.net.memory import MemoryNetwork
from maitred.net.virtual import run
from tests.net.http import Client, chunked, get, post
from tests.net.site import ECHO, Door, door


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


# -- too large -----------------------------------------------------------------------------------------


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


# -- ambiguous ---------------------------------------------------------------------------------------

H = b"Host: gateway\r\n"
SMUGGLED = b"0\r\n\r\nGET /echo HTTP/1.1\r\nHost: gateway\r\n\r\n"
MALFORMED = {
    "length and coding": b"POST /echo HTTP/1.1\r\n%bContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
    % H
    + SMUGGLED,
    "coding and length": b"POST /echo HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n"
    % H
    + SMUGGLED,
    "two lengths": b"POST /echo HTTP/1.1\r\n%bContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde" % H,
    "the same length twice": b"POST /echo HTTP/1.1\r\n%bContent-Length: 4\r\nContent-Length: 4\r\n\r\nabcd"
    % H,
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
    "two codings": b"POST /echo HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n" % H
    + b"Transfer-Encoding: identity\r\n\r\n"
    + SMUGGLED,
    "a hidden coding": b"POST /echo HTTP/1.1\r\n%bTransfer-Encoding: \x0bchunked\r\n\r\n" % H + SMUGGLED,
    "only gzip": b"POST /echo HTTP/1.1\r\n%bTransfer-Encoding: gzip\r\n\r\n" % H,
    "identity": b"POST /echo HTTP/1.1\r\n%bTransfer-Encoding: identity\r\n\r\n" % H,
    "identity behind chunked": b"POST /echo HTTP/1.1\r\n%bTransfer-Encoding: chunked, identity\r\n\r\n" % H
    + SMUGGLED,
    "identity before chunked": b"POST /echo HTTP/1.1\r\n%bTransfer-Encoding: identity, chunked\r\n\r\n" % H
    + SMUGGLED,
    "the same coding twice": b"POST /echo HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n" % H
    + b"Transfer-Encoding: chunked\r\n\r\n"
    + SMUGGLED,
    "a length between two codings": b"POST /echo HTTP/1.1\r\n%bTransfer-Encoding: identity\r\n" % H
    + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
    + SMUGGLED,
    "a coding in 1.0": b"POST /echo HTTP/1.0\r\n%bTransfer-Encoding: chunked\r\n\r\n" % H + SMUGGLED,
    **{
        f"a coding written {line!r}": b"POST /echo HTTP/1.1\r\n%b%b\r\n\r\n" % (H, line) + SMUGGLED
        for line in (
            b"Transfer-Encoding : chunked",
            b"Transfer-Encoding\t: chunked",
            b"Transfer-Encoding:",
            b"Transfer-Encoding: xchunked",
            b"Transfer-Encoding: chunkedx",
            b"Transfer-Encoding: chunked\t",
            b"Transfer-Encoding: chunked,",
            b"Transfer-Encoding: ,chunked",
            b"Transfer-Encoding: chunked;q=1",
            b'Transfer-Encoding: "chunked"',
            b"Transfer-Encoding: chun\x00ked",
            b"Transfer-Encoding: chunked\x00",
            b"Transfer-Encoding: chunked\r",
            b"Transfer-Encoding: \xffchunked",
            b"Transfer\x00Encoding: chunked",
            b"\tTransfer-Encoding: chunked",
            b"X: a\r\n Transfer-Encoding: chunked",
            b"X: a\nTransfer-Encoding: chunked",
            b"X: a\rTransfer-Encoding: chunked",
            b"X: a\r\n\rTransfer-Encoding: chunked",
            b"Content-Length: 4\nTransfer-Encoding: chunked",
        )
    },
    **{
        f"a length written {line!r}": b"POST /echo HTTP/1.1\r\n%b%b\r\n\r\nabcd" % (H, line)
        for line in (
            b"Content-Length: 0x4",
            b"Content-Length: 4;",
            b"Content-Length: 4.0",
            b"Content-Length: 4,",
            b"Content-Length: 4\x00",
            b"Content-Length:\r\n 4",
            b"Content-Length\t: 4",
            b"Content-Length: 4\r\ncontent-length: 4",
        )
    },
    "HTTP/2.0": b"GET /echo HTTP/2.0\r\n%b\r\n" % H,
    "HTTP/0.9": b"GET /echo HTTP/0.9\r\n%b\r\n" % H,
    "HTTP/1.2": b"GET /echo HTTP/1.2\r\n%b\r\n" % H,
    "HTTP/3.7": b"GET /echo HTTP/3.7\r\n%b\r\n" % H,
    "no version": b"GET /echo\r\n\r\n",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "another protocol": b"GET /echo ICE/1.0\r\n%b\r\n" % H,
    "lower case": b"get /echo HTTP/1.1\r\n%b\r\n" % H,
    "a version in small letters": b"GET /echo http/1.1\r\n%b\r\n" % H,
    "a version of two digits": b"GET /echo HTTP/1.10\r\n%b\r\n" % H,
    "a blank behind the version": b"GET /echo HTTP/1.1 \r\n%b\r\n" % H,
    "no host": b"GET /echo HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /echo HTTP/1.1\r\n%b%b\r\n" % (H, H),
    "two hosts of different case": b"GET /echo HTTP/1.1\r\n%bHOST: other\r\n\r\n" % H,
    **{
        f"the host {host!r}": b"GET /echo HTTP/1.1\r\nHost:%b\r\n\r\n" % host
        for host in (
            b"",
            b" ",
            b" a b",
            b" a, b",
            b" a/b",
            b" u@a",
            b" a:b",
            b" [::1",
            b" a\x00",
            b" http://a",
        )
    },
    "a host malformed in 1.0": b"GET /echo HTTP/1.0\r\nHost: a b\r\n\r\n",
    **{
        f"the target {target!r}": b"GET %b HTTP/1.1\r\n%b\r\n" % (target, H)
        for target in (
            b"*",
            b"gateway:80",
            b"/echo%",
            b"/ech%zz",
            b"/echo#x",
            b"http:///echo",
            b"http://u@gateway/echo",
            b"ftp://gateway/echo",
        )
    },
    "a path for CONNECT": b"CONNECT /echo HTTP/1.1\r\n%b\r\n" % H,
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
    "a sign before nothing": b"-0\r\n\r\n",
    "a prefix of nothing": b"0x\r\n\r\n",
    "a size with a comma": b"3,\r\nabc\r\n0\r\n\r\n",
    "a size with a point": b"3.0\r\nabc\r\n0\r\n\r\n",
    "a size with NUL": b"3\x00\r\nabc\r\n0\r\n\r\n",
    "a tab after the size": b"3\t\r\nabc\r\n0\r\n\r\n",
    "a size just beyond 64 bits": b"10000000000000003\r\nabc\r\n0\r\n\r\n",
    "bare CR after the size": b"3\rabc\r\n0\r\n\r\n",
    "bare CR in an extension": b"3;a\rb\r\nabc\r\n0\r\n\r\n",
    "two CRs after an extension": b"3;a\r\r\nabc\r\n0\r\n\r\n",
    "bare CR after the data": b"3\r\nabc\r0\r\n\r\n",
    "a blank before an extension": b"3 ;a\r\nabc\r\n0\r\n\r\n",
    "a quoted line end": b'3;a="\r\n"\r\nabc\r\n0\r\n\r\n',
    "a coding as a trailer": b"3\r\nabc\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n",
    "a folded trailer": b"3\r\nabc\r\n0\r\nX: a\r\n b\r\n\r\n",
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
            assert (await client.answer()).status == 404  # this site has no path for it
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
    bits = st.sampled_from(
        (b"\r", b"\n", b"\r\n", b"\x00", b" ", b":", b"0", b"\xff", b"chunked", b"", b"\t")
    )
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(raw)))
        raw[at : at + draw(st.integers(0, 3))] = draw(bits)
    return bytes(raw)


@settings(max_examples=150)
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


@settings(max_examples=100)
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
