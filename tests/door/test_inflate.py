"""Compressed bodies: what they become, and what is refused of them before it costs anything."""

from __future__ import annotations

import asyncio
import gzip
import threading
import tracemalloc
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from maitred.core.outcome import Outcome, Refusal
from maitred.door import inflate
from maitred.door.inflate import Inflater, inflated, packed
from maitred.net.exchange import RequestHead

JSON = b'{"model":"m","messages":[]}' * 40
WHOLE = gzip.compress(JSON, mtime=0)  # tests are named after it, and their names shall not change
BOMB = gzip.compress(bytes(10_000_000))
PLAIN = bytes(byte * byte * 7 % 251 ^ byte % 13 for byte in range(8_000)) * 60
LARGE = gzip.compress(PLAIN)  # small enough to be looked at here, and then it grows, though no bomb
NAMED = bytes([31, 139, 8, 8, *bytes(6)]) + b"body.json\0" + WHOLE[10:]


@pytest.mark.parametrize(
    ("body", "plain"),
    [
        (WHOLE, JSON),
        (NAMED, JSON),
        (gzip.compress(b""), b""),
        (WHOLE + gzip.compress(b"") + WHOLE, JSON * 2),
        (BOMB + WHOLE + BOMB, bytes(10_000_000) + JSON + bytes(10_000_000)),
    ],
    ids=["one member", "named", "empty", "three members", "large members"],
)
def test_gzip_of_any_number_of_members_is_read(body: bytes, plain: bytes) -> None:
    assert inflated(body, len(plain)) == plain


@pytest.mark.parametrize("ahead", [0, 1, 65_000, 200_000])
def test_members_may_begin_anywhere(ahead: int) -> None:
    """The body is read in pieces, whose edges must not show."""
    noise = bytes(byte * byte * 7 % 251 for byte in range(ahead))
    first = gzip.compress(noise, 0)
    assert inflated(first + WHOLE, ahead + len(JSON)) == noise + JSON


@pytest.mark.parametrize("body", [WHOLE, WHOLE + WHOLE, BOMB], ids=["one", "two", "bomb"])
def test_one_byte_more_than_allowed_is_too_large(body: bytes) -> None:
    size = len(gzip.decompress(body))
    assert inflated(body, size) is not None
    assert inflated(body, size - 1) is None
    assert inflated(body, 1) is None
    assert inflated(body, 0) is None


def test_a_bomb_is_not_inflated_beyond_what_is_allowed() -> None:
    tracemalloc.start()
    assert inflated(BOMB, 100_000) is None
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 500_000


@pytest.mark.parametrize(
    "body",
    [
        b"",
        JSON,
        *(WHOLE[:size] for size in (1, 9, 10, 20, len(WHOLE) - 8, len(WHOLE) - 1)),
        WHOLE + b"garbage",
        WHOLE + b"\0",
        WHOLE + WHOLE[:-1],
        WHOLE[:-8] + bytes(4) + WHOLE[-4:],
        WHOLE[:-4] + bytes(4),
        WHOLE[:15] + b"\xff\xff" + WHOLE[17:],
        zlib.compress(JSON),
        gzip.compress(b"") * (inflate.MEMBERS_MAX + 1),
    ],
)
def test_what_is_not_whole_gzip_is_refused(body: bytes) -> None:
    with pytest.raises(Refusal) as refusal:
        inflated(body, 1_000_000)
    assert refusal.value.outcome is Outcome.BAD_REQUEST


@pytest.mark.parametrize(
    ("coding", "is_packed"), [(b"gzip", True), (b"X-GZIP", True), (b"identity", False), (None, False)]
)
def test_a_body_is_packed_when_its_head_says_so(coding: bytes | None, is_packed: bool) -> None:
    fields = {} if coding is None else {b"content-encoding": coding}
    assert packed(RequestHead("POST", "/", fields, http11=True, length=1)) == is_packed


@asynccontextmanager
async def inflating(bytes_max: int = 20_000_000) -> AsyncIterator[tuple[Inflater, threading.Event]]:
    """An inflater whose thread works once the event is set."""
    inflater, free = Inflater(bytes_max), threading.Event()
    inflater._thread.submit(free.wait)
    try:
        yield inflater, free
    finally:
        free.set()
        inflater.close()


def test_small_bodies_need_no_thread() -> None:
    async def main() -> None:
        async with inflating() as (inflater, _):
            assert await inflater(WHOLE) == JSON
            with pytest.raises(Refusal):
                await inflater(JSON)

    asyncio.run(main())


def test_what_becomes_large_is_left_to_the_thread() -> None:
    async def main() -> None:
        async with inflating() as (inflater, free):
            work = asyncio.ensure_future(inflater(LARGE))
            await asyncio.sleep(0)
            assert not work.done()
            free.set()
            assert await work == PLAIN

    assert len(LARGE) < inflate.INLINE_BYTES_MAX
    assert len(PLAIN) > inflate.INLINE_INFLATED_MAX
    asyncio.run(main())


@pytest.mark.parametrize("bytes_max", [100, len(PLAIN) - 1])
def test_a_body_that_becomes_too_large_is_refused(bytes_max: int) -> None:
    async def main() -> None:
        async with inflating(bytes_max) as (inflater, free):
            free.set()
            with pytest.raises(Refusal) as refusal:
                await inflater(LARGE)
            assert refusal.value.outcome is Outcome.BODY_TOO_LARGE
            inflater.bytes_max = len(PLAIN)
            assert len(await inflater(LARGE)) == len(PLAIN)

    asyncio.run(main())


def test_only_so_many_bodies_wait_and_who_leaves_makes_room() -> None:
    async def main() -> None:
        async with inflating() as (inflater, free):
            works = [asyncio.ensure_future(inflater(LARGE)) for _ in range(inflate.WAITING_MAX)]
            await asyncio.sleep(0)
            with pytest.raises(Refusal) as refusal:
                await inflater(LARGE)
            assert refusal.value.outcome is Outcome.QUEUE_FULL
            assert refusal.value.wait_s == 1
            for work in works[1:]:
                work.cancel()
            await asyncio.wait(works[1:])
            last = asyncio.ensure_future(inflater(WHOLE + LARGE))
            await asyncio.sleep(0)
            free.set()
            assert len(await works[0]) == len(PLAIN)
            assert len(await last) == len(PLAIN) + len(JSON)

    asyncio.run(main())


def test_what_grows_a_thousandfold_is_refused_though_a_body_may_be_that_large() -> None:
    async def main() -> None:
        inflater = Inflater(64 * 1024 * 1024)
        try:
            for size in (1_000_000, 30_000_000):
                body = gzip.compress(bytes(size))
                with pytest.raises(Refusal) as caught:
                    await inflater(body)
                assert caught.value.outcome is Outcome.BODY_TOO_LARGE
            text = b"".join(b"%d, " % number for number in range(300_000))
            assert await inflater(gzip.compress(text)) == text
        finally:
            inflater.close()

    asyncio.run(main())
