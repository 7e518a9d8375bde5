"""The engine's side of HTTP/1.1: what a reader hears of every answer, and that it hears one ending."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maitred.core.outcome import FailureKind
from maitred.net.memory import MemoryNetwork
from maitred.net.virtual import run
from tests.net.engine import Line, Reading, line
from tests.net.http import turns
from tests.net.site import took

OK = b"HTTP/1.1 200 OK\r\n"
WHOLE = OK + b"Content-Length: 4\r\nX-Case: Kept\r\n\r\nbody"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n2;x=y\r\ndy\r\n0\r\nX-Trailer: 1\r\n\r\n"
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n"
OLD = b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nbody"
UNTIL_CLOSE = OK + b"X: y\r\n\r\nbody"


def test_parts_are_sent_as_they_are() -> None:
    async def main() -> None:
        async with line() as at:
            _, engine = await at.ask()
            assert engine.received == b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"

    run(main())


@pytest.mark.parametrize("bytewise", [False, True])
@pytest.mark.parametrize(
    ("raw", "status", "body", "reused"),
    [
        (WHOLE, 200, b"body", True),
        (CHUNKED, 200, b"body", True),
        (EMPTY, 204, b"", True),
        (INTERIM + WHOLE, 200, b"body", True),
        (OK + b"content-length: 0\r\n\r\n", 200, b"", True),
        (OK + b"connection: close\r\ncontent-length: 4\r\n\r\nbody", 200, b"body", False),
        (OLD, 200, b"body", False),
        (OLD.replace(b"\r\n\r\n", b"\r\nConnection: keep-alive\r\n\r\n"), 200, b"body", True),
    ],
)
def test_an_answer_is_told_whole(raw: bytes, status: int, body: bytes, reused: bool, bytewise: bool) -> None:
    async def main() -> None:
        async with line() as at:
            connection, _ = await at.connect()
            reading, engine = await at.ask(connection)
            engine.send(*([bytes([byte]) for byte in raw] if bytewise else [raw]))
            await reading.over.wait()
            (head,) = reading.heads
            assert (head.status, reading.body, reading.complete) == (status, body, True)
            assert [name for name, _ in head.headers] == [name.lower() for name, _ in head.headers]
            assert all(name != b"x-trailer" for name, _ in head.headers)
            await turns()
            assert connection.closing is not reused
            assert at.pool.idle == int(reused)

    run(main())


def test_a_head_tells_names_in_lower_case_and_values_as_they_came() -> None:
    async def main() -> None:
        async with line() as at:
            reading, engine = await at.ask()
            engine.send(INTERIM + WHOLE)
            await reading.over.wait()
            assert reading.heads[0].headers == [(b"content-length", b"4"), (b"x-case", b"Kept")]
            assert reading.heads[0].length == 4

    run(main())


def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    async def main() -> None:
        async with line() as at:
            reading, engine = await at.ask()
            engine.send(UNTIL_CLOSE, b" and more")
            await turns()
            assert (reading.body, reading.complete) == (b"body and more", False)
            assert reading.heads[0].length is None
            engine.transport.close()
            await reading.over.wait()
            assert reading.complete
            await turns()
            assert at.pool.open == 0

    run(main())


@pytest.mark.parametrize("framing", [b"content-length: 2", b"transfer-encoding: chunked"])
@pytest.mark.parametrize("apart", [False, True])
def test_how_an_interim_head_is_framed_says_nothing_of_the_answer(framing: bytes, apart: bool) -> None:
    interim = b"HTTP/1.1 103 Early Hints\r\n" + framing + b"\r\n\r\n"

    async def main() -> None:
        async with line() as at:
            for raw in (CHUNKED, UNTIL_CLOSE):
                reading, engine = await at.ask()
                engine.send(*([interim, raw] if apart else [interim + raw]))
                await turns()
                engine.transport.close()
                await reading.over.wait()
                assert (reading.body, reading.complete) == (b"body", True)
                assert reading.heads[0].length is None
                assert reading.heads[0].until_close == (raw is UNTIL_CLOSE)

    run(main())


def test_what_one_read_brought_is_one_piece() -> None:
    async def main() -> None:
        async with line() as at:
            reading, engine = await at.ask()
            engine.send(CHUNKED)
            await reading.over.wait()
            assert reading.pieces == [b"body"]

    run(main())


def test_a_connection_carries_one_request_after_the_other() -> None:
    async def main() -> None:
        async with line() as at:
            for raw in (WHOLE, CHUNKED, INTERIM + WHOLE, EMPTY, WHOLE):
                connection = at.pool.take(at.url)
                assert (connection is not None) is bool(at.engines)
                reading, engine = await at.ask(connection)
                assert at.pool.idle == 0
                engine.send(raw)
                await reading.over.wait()
                assert at.pool.idle == 1
            assert len(at.engines) == 1

    run(main())


# -- failures -----------------------------------------------------------------------------------------

CUT = {
    "nothing": (b"", FailureKind.RESET),
    "half a head": (WHOLE[:20], FailureKind.RESET),
    "an interim head": (INTERIM, FailureKind.RESET),
    "a head": (WHOLE[:-4], FailureKind.TRUNCATED),
    "half a body": (WHOLE[:-1], FailureKind.TRUNCATED),
    "half a chunk": (CHUNKED[:50], FailureKind.TRUNCATED),
    "all chunks but the last": (CHUNKED[: CHUNKED.index(b"0\r\nX")], FailureKind.TRUNCATED),
}


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("case", CUT)
def test_an_answer_that_breaks_off_is_a_failure(case: str, reset: bool) -> None:
    raw, kind = CUT[case]

    async def main() -> None:
        async with line() as at:
            reading, engine = await at.ask()
            engine.send(raw)
            await turns()
            if reset:
                engine.reset()
            else:
                engine.transport.close()
            await reading.over.wait()
            assert reading.failure is not None
            assert reading.failure[0] is kind

    run(main())


def test_a_reset_of_an_answer_until_close_is_no_end() -> None:
    async def main() -> None:
        async with line() as at:
            reading, engine = await at.ask()
            engine.send(UNTIL_CLOSE)
            await turns()
            engine.reset()
            await reading.over.wait()
            assert reading.failure is not None
            assert reading.failure[0] is FailureKind.TRUNCATED

    run(main())


BAD = {
    "another protocol": b"SSH-2.0-OpenSSH_9.2\r\n",
    "TLS": b"\x15\x03\x01\x00\x02\x02\x46",
    "two lengths": OK + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nbody",
    "length and coding": OK + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a bad chunk": OK + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "a folded header": OK + b"X: a\r\n b\r\n\r\n",
    "bare LF": b"HTTP/1.1 200 OK\nContent-Length: 4\n\nbody",
    "another answer behind it": WHOLE + WHOLE,
    "garbage behind it": WHOLE + b"garbage\r\n",
    "a head without end": b"HTTP/1.1 200 OK\r\nX: " + b"y" * 300_000,
    "switching protocols": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_not_one_answer_is_a_failure(case: str) -> None:
    async def main() -> None:
        async with line() as at:
            reading, engine = await at.ask()
            engine.send(BAD[case])
            await reading.over.wait()
            assert reading.failure is not None
            assert reading.failure[0] is FailureKind.BAD_RESPONSE
            assert b"garbage" not in reading.body
            await turns()
            assert at.pool.open == 0

    run(main())


def test_bytes_that_nobody_asked_for_close_the_connection() -> None:
    async def main() -> None:
        async with line() as at:
            connection, engine = await at.connect()
            engine.send(WHOLE)
            await turns()
            assert connection.closing
            assert at.pool.open == 0
            reading, engine = await at.ask()
            engine.send(WHOLE)
            await reading.over.wait()
            engine.send(WHOLE)
            await turns()
            assert at.pool.open == 0

    run(main())


def test_a_used_connection_that_dies_unanswered_was_stale() -> None:
    async def main() -> None:
        async with line() as at:
            reading, engine = await at.ask()
            engine.send(WHOLE)
            await reading.over.wait()
            reading, engine = await at.ask(at.pool.take(at.url))
            engine.reset()
            await reading.over.wait()
            assert reading.failure is not None
            assert reading.failure[0] is FailureKind.STALE_CONNECTION

    run(main())


def test_a_request_on_a_closed_connection_fails_at_once() -> None:
    async def main() -> None:
        async with line() as at:
            connection, engine = await at.connect()
            engine.reset()
            await turns()
            reading, _ = await at.ask(connection)
            assert reading.failure is not None
            assert reading.failure[0] is FailureKind.STALE_CONNECTION

    run(main())


def test_after_an_abort_nothing_is_heard() -> None:
    async def main() -> None:
        async with line() as at:
            connection, _ = await at.connect()
            reading, engine = await at.ask(connection)
            engine.send(WHOLE[:-1])
            connection.abort()
            await turns()
            assert engine.over
            assert not reading.over.is_set()
            assert reading.pieces == []

    run(main())


# -- patience -----------------------------------------------------------------------------------------


async def failure(reading: Reading, kind: FailureKind) -> None:
    await reading.over.wait()
    assert reading.failure is not None
    assert reading.failure[0] is kind


async def answered(at: Line) -> Reading:
    reading, engine = await at.ask()
    engine.send(WHOLE)
    await reading.over.wait()
    return reading


def test_each_silence_has_its_limit() -> None:
    async def main() -> None:
        async with line() as at:
            reading, _ = await at.ask()
            assert await took(failure(reading, FailureKind.FIRST_BYTE_TIMEOUT)) == pytest.approx(600, abs=0.3)
            reading, engine = await at.ask()
            engine.send(WHOLE[:-4])
            await turns()
            assert await took(failure(reading, FailureKind.IDLE_TIMEOUT)) == pytest.approx(300, abs=0.3)
            await answered(at)
            assert at.pool.idle == 1
            await asyncio.sleep(3.7)
            assert at.pool.idle == 1
            await asyncio.sleep(0.6)
            assert at.pool.idle == at.pool.open == 0

    run(main())


def test_an_answer_that_goes_on_may_last() -> None:
    async def main() -> None:
        async with line() as at:
            reading, engine = await at.ask()
            engine.send(OK + b"content-length: 50\r\n\r\n")
            for _ in range(50):
                await asyncio.sleep(299)
                engine.send(b"x")
            await reading.over.wait()
            assert reading.body == b"x" * 50

    run(main(), timeout_s=20_000)


def test_while_the_client_is_slow_the_engine_is_not_blamed() -> None:
    async def main() -> None:
        async with line() as at:
            connection, _ = await at.connect()
            reading, engine = await at.ask(connection)
            engine.send(WHOLE[:-4])
            await turns()
            connection.pause()
            engine.send(b"bo")
            await asyncio.sleep(1000)
            assert reading.body == b""
            assert not reading.over.is_set()
            connection.resume()
            await turns()
            assert reading.body == b"bo"
            assert await took(failure(reading, FailureKind.IDLE_TIMEOUT)) == pytest.approx(300, abs=0.3)
            connection.pause()  # on a closed line nothing happens
            connection.resume()

    run(main())


# -- anything at all ----------------------------------------------------------------------------------


@settings(max_examples=100)
@given(
    st.sampled_from((WHOLE, CHUNKED, INTERIM + WHOLE, UNTIL_CLOSE, EMPTY)),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 3), st.binary(max_size=3)), max_size=3),
    st.lists(st.integers(0, 200), max_size=5),
)
def test_whatever_an_engine_says_there_is_one_ending(
    raw: bytes, changes: list[tuple[int, int, bytes]], cuts: list[int]
) -> None:
    mutant = bytearray(raw)
    for at_byte, out, put in changes:
        mutant[at_byte : at_byte + out] = put
    raw = bytes(mutant)
    places = sorted({cut % (len(raw) + 1) for cut in cuts})

    async def main() -> None:
        split = MemoryNetwork()
        async with line(split, first_byte_s=1.0, idle_s=1.0, keep_alive_s=1.0) as at:
            reading, engine = await at.ask()
            engine.send(*(raw[a:b] for a, b in zip((0, *places), (*places, len(raw)), strict=True)))
            engine.transport.close()
            await reading.over.wait()
            await asyncio.sleep(2)
            assert at.pool.open == 0
            if not changes:
                assert reading.failure is None
                assert reading.body == (b"" if raw == EMPTY else b"body")

    run(main(), timeout_s=10)
