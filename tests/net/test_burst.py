"""What is written in one turn of the loop leaves together: in order, and before any end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from maitred.net.burst import WRITES_MAX, Burst
from maitred.net.memory import MemoryNetwork
from maitred.net.virtual import run
from tests.net.http import get, turns
from tests.net.site import LATER, STREAM, door


class End(asyncio.Protocol):
    """One end of a connection; `seen` is shared by several and says who received what."""

    def __init__(self, name: str, seen: list[tuple[str, bytes]]) -> None:
        self.name, self.seen = name, seen
        self.over = self.paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.seen.append((self.name, data))

    def pause_writing(self) -> None:
        self.paused = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.over = True


class Lines:
    """Connections whose writes go into one burst; `seen` is what the other ends received, in order."""

    def __init__(self) -> None:
        self.burst, self.network = Burst(), MemoryNetwork()
        self.seen: list[tuple[str, bytes]] = []
        self.far: list[End] = []
        self.near: list[asyncio.Transport] = []
        self.ends: list[End] = []

    async def add(self, name: str) -> asyncio.Transport:
        """One more."""
        far = End(name, self.seen)
        listener = await self.network.listen(lambda: far, "127.0.0.1", 0)
        near = await self.network.connect(lambda: End("near", []), *listener.address)
        self.near.append(near.transport)
        self.ends.append(near)
        self.far.append(far)
        await asyncio.sleep(0.1)
        return self.burst.outlet(near.transport)


async def turn(turns: int = 8) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


def test_nothing_leaves_within_the_turn_and_all_of_it_after_in_order() -> None:
    async def main() -> None:
        at = Lines()
        one, two = await at.add("one"), await at.add("two")
        one.write(b"a")
        two.writelines([b"b", b"c"])
        one.write(b"d")
        assert [near.get_write_buffer_size() for near in at.near] == [0, 0]
        assert at.seen == []
        await turn()
        assert at.seen == [("one", b"a"), ("two", b"bc"), ("one", b"d")]
        one.write(b"e")  # and again
        await turn()
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
        await turn()
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
        await turn()
        assert at.seen == [("two", b"to two")]

    run(main())


def test_a_long_turn_holds_only_so_many() -> None:
    async def main() -> None:
        at = Lines()
        one, two = await at.add("one"), await at.add("two")
        for _ in range(WRITES_MAX // 2):
            one.write(b"x")
            two.write(b"y")
        one.write(b"next turn")
        assert [near.get_write_buffer_size() for near in at.near] == [WRITES_MAX // 2] * 2
        await asyncio.sleep(1)
        assert [data for name, data in at.seen if name == "one"] == [b"x"] * (WRITES_MAX // 2) + [
            b"next turn"
        ]

    run(main())


def test_who_writes_on_and_on_hears_that_his_reader_is_slow() -> None:
    async def main() -> None:
        at = Lines()
        one, two = await at.add("one"), await at.add("two")
        at.far[0].transport.pause_reading()
        two.write(b"first of all")
        written = 0
        while not at.ends[0].paused:
            one.write(bytes(20_000))
            written += 1
        assert written == 1 + 4  # 64 KiB are waited for, and one more was written by then
        await turn()
        assert at.seen == [("two", b"first of all")]

    run(main())


def test_a_write_that_fails_is_its_own_connections_fault(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        at = Lines()
        one, two = await at.add("one"), await at.add("two")
        at.near[0].write_eof()  # behind the burst's back: a write raises
        one.write(b"to nobody")
        two.write(b"to two")
        two.close()  # hears nothing of it, and is done
        assert one.is_closing()
        assert two.is_closing()
        await turn()
        assert at.seen == [("two", b"to two")]
        assert [record.getMessage() for record in caplog.records] == [
            "a write failed; its connection is broken off"
        ]

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
