"""Small questions to engines: one answer, in time, and nothing left behind."""

from __future__ import annotations

import asyncio

import pytest

from maitred.core.outcome import FailureKind
from maitred.net.fetch import ANSWER_BYTES_MAX, fetch
from maitred.net.pool import ConnectFailed
from maitred.net.virtual import run
from tests.net.engine import Line, line
from tests.net.http import turns
from tests.net.site import took

OK = b"HTTP/1.1 200 OK\r\n"
WHOLE = OK + b"content-length: 4\r\n\r\nbody"


async def asked(at: Line, timeout_s: float = 5.0) -> asyncio.Task[tuple[int, bytes]]:
    """A question that is under way."""
    task = asyncio.create_task(fetch(at.pool, at.url, "/v1/models", timeout_s))
    await turns()
    return task


@pytest.mark.parametrize(
    ("raw", "answer"),
    [
        (WHOLE, (200, b"body")),
        (b"HTTP/1.1 503 Busy\r\ncontent-length: 4\r\n\r\nbusy", (503, b"busy")),
        (OK + b"transfer-encoding: chunked\r\n\r\n2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n", (200, b"body")),
        (OK + b"content-length: 0\r\n\r\n", (200, b"")),
    ],
)
def test_a_question_is_answered(raw: bytes, answer: tuple[int, bytes]) -> None:
    async def main() -> None:
        async with line() as at:
            task = await asked(at)
            (engine,) = at.engines
            host = at.url.removeprefix("http://")
            head = f"GET /v1/models HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"
            assert engine.received == head.encode()
            engine.send(raw)
            assert await task == answer
            await turns()
            assert at.pool.open == 0

    run(main())


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"", FailureKind.RESET),
        (WHOLE[:-1], FailureKind.TRUNCATED),
        (b"garbage\r\n\r\n", FailureKind.BAD_RESPONSE),
    ],
)
def test_a_failure_is_told(raw: bytes, kind: FailureKind) -> None:
    async def main() -> None:
        async with line() as at:
            task = await asked(at)
            at.engines[0].send(raw)
            at.engines[0].transport.close()
            with pytest.raises(ConnectFailed) as failed:
                await task
            assert failed.value.kind is kind

    run(main())


def test_nobody_listening_is_told() -> None:
    async def main() -> None:
        async with line() as at:
            at.network.refuse(*at.address)
            with pytest.raises(ConnectFailed) as failed:
                await fetch(at.pool, at.url, "/", 5.0)
            assert failed.value.kind is FailureKind.CONNECT

    run(main())


@pytest.mark.parametrize("begun", [b"", OK, WHOLE[:-1]])
def test_a_late_answer_is_given_up(begun: bytes) -> None:
    async def late(task: asyncio.Task[tuple[int, bytes]]) -> None:
        with pytest.raises(ConnectFailed) as failed:
            await task
        assert failed.value.kind is FailureKind.FIRST_BYTE_TIMEOUT

    async def main() -> None:
        async with line() as at:
            task = await asked(at, 5.0)
            at.engines[0].send(begun)
            assert await took(late(task)) == 5.0
            await turns()
            assert at.pool.open == 0
            assert at.engines[0].over

    run(main())


def test_an_answer_that_never_ends_is_given_up() -> None:
    async def main() -> None:
        async with line() as at:
            task = await asked(at)
            at.engines[0].send(OK + b"\r\n", *([b"x" * 1_000_000] * (ANSWER_BYTES_MAX // 1_000_000 + 1)))
            with pytest.raises(ConnectFailed) as failed:
                await task
            assert failed.value.kind is FailureKind.BAD_RESPONSE
            await turns()
            assert at.pool.open == 0

    run(main())


def test_a_question_that_is_cancelled_leaves_nothing() -> None:
    async def main() -> None:
        async with line() as at:
            task = await asked(at)
            task.cancel()
            await turns()
            assert task.cancelled()
            assert at.pool.open == 0
            assert at.engines[0].over

    run(main())


def test_a_connection_of_a_question_is_not_kept() -> None:
    """Though the engine would: what it says on one tells nothing of its work."""

    async def main() -> None:
        async with line() as at:
            task = await asked(at)
            at.engines[0].send(WHOLE)
            assert await task == (200, b"body")
            await turns()
            assert at.pool.open == 0
            assert at.pool.take(at.url) is None
            assert at.engines[0].over

    run(main())


def test_a_connect_that_takes_all_the_time_is_not_a_late_answer() -> None:
    async def main() -> None:
        async with line() as at:
            at.network.hang(*at.address)
            with pytest.raises(ConnectFailed, match="no answer in 1 s") as failed:
                await fetch(at.pool, at.url, "/", 1.0)
            assert failed.value.kind is FailureKind.UNREACHABLE

    run(main())
