"""What is written in one turn of the loop leaves together: in order, and before any end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from maitred.net.burst import WRITES_MAX, Burst
from maitred.net.memory import MemoryNetwork
from maitred.net.virtual import run
from tests.net.http import Client, get, turns
from tests.net.site import LATER, STREAM, door


class End(asyncio.Protocol):
    """One end of a connection; `seen` is shared by several and says who received what."""

    def __init__(self, name: str, seen: list[tuple[str, bytes]]) -> None:
        self.name, self.seen = name, seen
        self.over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.seen.append((self.name, data))

    def connection_lost(self, exc: Exception | None) -> None:
        self.over = True


class Lines:
    """Connections whose writes go into one burst; `seen` is what the other ends received, in order."""

    def __init__(self) -> None:
        self.burst, self.network = Burst(), MemoryNetwork()
        self.seen: list[tuple[str, bytes]] = []
        self.far: list[End] = []
        self.near: list[asyncio.Transport] = []

    async def add(self, name: str) -> asyncio.Transport:
        """One more."""
        far = End(name, self.seen)
        listener = await self.network.listen(lambda: far, "127.0.0.1", 0)
        near = await self.network.connect(lambda: End("near", []), *listener.address)
        self.near.append(near.transport)
        self.far.append(far)
        await asyncio.sleep(0.1)
        return self.burst.line(near.transport)


def test_nothing_leaves_within_the_turn_and_all_of_it_after_in_order() -> None:
    async def main() -> None:
        at = Lines()
        one, two = await at.add("one"), await at.add("two")
        one.write(b"a")
        two.writelines([b"b", b"c"])
        one.write(b"d")
        assert [near.get_write_buffer_size() for near in at.near] == [0, 0]
        assert at.seen == []
        await turns()
        assert at.seen == [("one", b"a"), ("two", b"bc"), ("one", b"d")]
        one.write(b"e")  # and again
        await turns()
        assert at.seen[3:] == [("one", b"e")]

    run(main())


ENDS: dict[str, Callable[[asyncio.Transport], object]] = {
    "close": lambda line: line.close(),
    "abort": lambda line: line.abort(),
    "write_eof": lambda line: line.write_eof(),
    "get_write_buffer_size": lambda line: line.get_write_buffer_size(),
}


@pytest.mark.parametrize("end", ENDS)
def test_what_was_written_leaves_before_an_end(end: str) -> None:
    async def main() -> None:
        at = Lines()
        one, two = await at.add("one"), await at.add("two")
        two.write(b"before")
        one.write(b"last")
        ENDS[end](one)
        assert one.is_closing() is (end in {"close", "abort"})
        await turns()
        assert at.seen == [("two", b"before"), ("one", b"last")]
        await asyncio.sleep(1)
        assert at.far[0].over is (end != "get_write_buffer_size")
        assert not two.is_closing()

    run(main())


def test_nothing_is_written_to_a_connection_that_was_lost_and_it_holds_up_nobody() -> None:
    async def main() -> None:
        at = Lines()
        one, two = await at.add("one"), await at.add("two")
        one.write(b"to nobody")
        two.write(b"to two")
        at.near[0].write_eof()
        at.near[0].abort()  # as a loop does when the peer has left: a write would raise
        await turns()
        assert at.seen == [("two", b"to two")]

    run(main())


def test_a_long_turn_holds_only_so_many() -> None:
    async def main() -> None:
        at = Lines()
        one, two = await at.add("one"), await at.add("two")
        for _ in range(WRITES_MAX - 1):
            one.write(b"x")
        two.write(b"last")
        two.write(b"next turn")
        assert [near.get_write_buffer_size() for near in at.near] == [WRITES_MAX - 1, len(b"last")]
        await asyncio.sleep(1)
        assert [data for name, data in at.seen if name == "two"] == [b"last", b"next turn"]

    run(main())


class Noting(Client):
    """A client that notes each read where its test can see in which order they came."""

    noted: ClassVar[list[bytes]]

    def data_received(self, data: bytes) -> None:
        self.noted.append(data)
        super().data_received(data)


def test_the_chunks_of_a_stream_do_not_wait() -> None:
    async def main() -> None:
        async with door() as at:
            streaming, waiting = await at.client(Noting), await at.client(Noting)
            streaming.send(get(STREAM))
            await streaming.heard(b"begun")
            waiting.send(get(LATER))
            await turns()
            stream, later = at.site.held
            Noting.noted = []
            later.respond(200, b"", b"whole")
            stream.write(b"chunk")
            await turns()
            assert [data[-7:] for data in Noting.noted] == [b"chunk\r\n", b"\r\nwhole"]

    Noting.noted = []
    run(main())


def test_a_stream_begins_behind_the_answer_before_it() -> None:
    async def main() -> None:
        async with door() as at:
            client = await at.client()
            client.send(get(LATER))
            await turns()
            at.site.held[0].respond(200, b"", b"whole")
            at.site.connections[0].data_received(get(STREAM))
            assert (await client.answer()).body == b"whole"
            await client.heard(b"begun")

    run(main())


def test_a_write_that_fails_holds_up_nobody() -> None:
    async def main() -> None:
        at = Lines()
        faults: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: faults.append(context))
        one, two = await at.add("one"), await at.add("two")
        at.near[0].write_eof()  # behind the burst's back: a write raises
        one.write(b"to nobody")
        two.write(b"to two")
        await turns(8)
        assert at.seen == [("two", b"to two")]
        assert len(faults) == 1

    run(main())
