"""How long the server waits for its clients: for heads, bodies, readers, and for nothing at all."""

from __future__ import annotations

import asyncio

import pytest

from maitred.core.outcome import Outcome
from maitred.net.memory import MemoryNetwork
from maitred.net.virtual import run
from tests.net.http import Client, Stubborn, get, post, turns
from tests.net.site import ECHO, LATER, STREAM, Door, door, took

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


# -- being patient ------------------------------------------------------------------------------------------


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
                await turns(1)
            assert len((await reading).body) == 500_011
            client.send(get(ECHO))
            assert (await client.answer()).body == b"GET /echo "

    run(main())


@pytest.mark.parametrize("reads", [True, False])
def test_a_closing_connection_lingers_no_longer_than_two_seconds(reads: bool) -> None:
    """The client goes on to send and is read, so that it sees the refusal and no reset; but not for ever."""

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
