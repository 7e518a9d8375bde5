"""The server's side of HTTP/1.1: answers in order, on connections that are kept or closed."""

from __future__ import annotations

import asyncio

import pytest

from maitred.net.memory import MemoryNetwork
from maitred.net.server import PIPELINED_MAX
from maitred.net.virtual import run
from tests.net.http import Broken, Client, chunked, get, post, turns
from tests.net.site import ECHO, LATER, STREAM, door


async def bodies(client: Client, count: int) -> list[bytes]:
    return [(await client.answer()).body for _ in range(count)]


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
        (("Connection: keep-alive",), "1.0", False),
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


@pytest.mark.parametrize("bytewise", [False, True])
@pytest.mark.parametrize("in_chunks", [False, True])
def test_the_body_of_a_request_for_an_upgrade_is_not_taken_for_a_request(
    in_chunks: bool, bytewise: bool
) -> None:
    """llhttp ends such a request with its head; java.net.http sends all its requests so."""
    inner = get("/echo?smuggled")
    lines = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAEAAEAA")
    if in_chunks:
        coding = ("Transfer-Encoding: chunked", *lines)
        request = get(ECHO, *coding, method="POST") + b"%x\r\n%b\r\n0\r\n\r\n" % (len(inner), inner)
    else:
        request = post(ECHO, inner, *lines)
    split = MemoryNetwork(split=(lambda data: [bytes([byte]) for byte in data]) if bytewise else None)

    async def main() -> None:
        async with door(split) as at:
            client = await at.client()
            client.send(request + request + get(ECHO))
            assert await bodies(client, 3) == [b"POST /echo " + inner] * 2 + [b"GET /echo "]
            assert at.site.refused == []

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


def test_a_client_that_leaves_within_its_request_is_told_once() -> None:
    async def main() -> None:
        async with door() as at:
            for sent in (post(ECHO, b"body")[:-1], post(ECHO, b"body")[:-10], b"", post(ECHO, b"")):
                client = await at.client()
                client.send(sent)
                await turns()
                client.leave()
                await turns()
            assert at.site.gone == [ECHO]  # of half a head nobody can say what it asks

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


@pytest.mark.parametrize("size", [10, 40_000], ids=["many", "large"])
def test_a_client_that_sends_far_ahead_is_refused_after_its_answers(size: int) -> None:
    """Not reading it any further would also mean not to notice that it leaves."""

    async def main() -> None:
        async with door(body_bytes_max=500_000) as at:
            client = await at.client()
            client.send(post(LATER, b"0"), *(post(ECHO, b"x" * size) for _ in range(100)))
            await turns(200)
            assert len(at.site.served) == 1
            at.site.held[0].respond(200, b"", b"late")
            answers = [await client.answer()]
            while answers[-1].status == 200:
                answers.append(await client.answer())
            assert len(answers) == {10: PIPELINED_MAX, 40_000: 12}[size] + 2
            assert answers[-1].outcome == "bad_request"
            await client.closed()

    run(main())


def test_what_comes_around_a_body_is_bounded() -> None:
    """A trailer without end would be collected by the parser, byte for byte."""

    async def main() -> None:
        async with door(head_bytes_max=1000) as at:
            client = await at.client()
            client.send(chunked(ECHO, b"x" * 5000).removesuffix(b"\r\n") + b"X: ")
            client.send(*[b"y" * 400 for _ in range(5)])
            answer = await client.answer()
            assert (answer.status, answer.outcome) == (431, "headers_too_large")
            await client.closed()

    run(main())


def test_an_upgrade_that_was_not_asked_of_this_connection_changes_nothing() -> None:
    async def main() -> None:
        async with door() as at:
            client = await at.client()
            empty = chunked(ECHO).replace(b"\r\n\r\n", b"\r\nUpgrade: h2c\r\n\r\n", 1)
            client.send(empty + post("/nope", b"a") + post(ECHO, b"b"))
            first, second, third = [await client.answer() for _ in range(3)]
            assert (first.body, second.status, third.body) == (b"POST /echo ", 404, b"POST /echo b")

    run(main())


def test_a_client_is_asked_for_its_body_when_its_turn_comes() -> None:
    async def main() -> None:
        async with door() as at:
            client = await at.client()
            asking = post(ECHO, b"abc", "Expect: 100-continue")
            client.send(post(LATER, b"0") + asking[:-3])
            await turns(20)
            at.site.held[0].respond(200, b"", b"late")
            assert (await client.answer()).body == b"late"
            await client.heard(b"100 Continue")
            client.send(b"abc")
            assert (await client.answer()).body == b"POST /echo abc"

    run(main())


def test_a_connection_that_closes_does_not_wait_for_its_client_for_ever() -> None:
    async def main() -> None:
        async with door(write_timeout_s=60.0) as at:
            client = await at.client()
            client.transport.pause_reading()
            client.send(post(ECHO, b"x" * 50_000, "Connection: close"))
            await asyncio.sleep(50)
            assert at.site.connections
            await asyncio.sleep(20)
            assert not at.site.connections

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
