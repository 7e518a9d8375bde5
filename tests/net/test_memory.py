"""The network in memory: what it shares with real sockets (one scenario on both), and its faults."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import cast

import pytest
import uvloop

from maitred.net.memory import HIGH_WATER_BYTES, MemoryNetwork, MemoryTransport
from maitred.net.seams import Network, Sockets
from maitred.net.virtual import START_S, Hang, run

HOST = "127.0.0.1"


class Recorder(asyncio.Protocol):
    """Writes down its callbacks; `saw(word)` waits for one. `keep`: stays open after the peer's EOF."""

    def __init__(self, keep: bool = False, answer: bytes = b"", fails: bool = False) -> None:
        self.keep = keep
        self.answer = answer
        self.fails = fails
        self.calls: list[str] = []
        self.pieces: list[bytes] = []
        self.over = asyncio.Event()
        self._called = asyncio.Event()

    def _note(self, word: str) -> None:
        if word != "data" or self.calls[-1] != "data":  # kernels join and part what was written
            self.calls.append(word)
        self._called.set()

    async def saw(self, word: str) -> None:
        while word not in self.calls:
            self._called.clear()
            await self._called.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._note("made")

    def data_received(self, data: bytes) -> None:
        self.pieces.append(data)
        self._note("data")
        if self.fails:
            raise ValueError("a bug in the protocol")
        if self.answer:
            self.transport.write(self.answer)

    def eof_received(self) -> bool:
        self._note("eof")
        return self.keep

    def connection_lost(self, exc: Exception | None) -> None:
        self._note(f"lost {type(exc).__name__}" if exc else "lost")
        self.over.set()

    def pause_writing(self) -> None:
        self._note("pause")

    def resume_writing(self) -> None:
        self._note("resume")


async def pair(network: Network, near: Recorder, far: Recorder) -> None:
    """Connect two recorders."""
    listener = await network.listen(lambda: far, HOST, 0)
    assert await network.connect(lambda: near, *listener.address) is near
    await far.saw("made")
    listener.close()


async def turns() -> None:
    """Let written bytes reach the other end: some turns of the loop, no time."""
    for _ in range(10):
        await asyncio.sleep(0)


# -- one scenario on sockets and in memory ------------------------------------------------------------


async def near_closes(near: Recorder, far: Recorder) -> None:
    far.answer = b"pong"
    near.transport.write(b"ping")
    await near.saw("data")
    near.transport.close()


async def close_flushes(near: Recorder, far: Recorder) -> None:
    far.transport.pause_reading()
    near.transport.writelines([b"all ", b"of it"])
    near.transport.close()
    await turns()
    assert far.calls == ["made"]
    far.transport.resume_reading()


async def near_half_closes(near: Recorder, far: Recorder) -> None:
    far.keep = True
    near.transport.write(b"request")
    near.transport.write_eof()
    near.transport.write_eof()
    with pytest.raises(RuntimeError):
        near.transport.write(b"more")
    await far.saw("eof")
    await turns()
    far.transport.write(b"answer")
    far.transport.close()


async def near_half_closes_then_closes(near: Recorder, far: Recorder) -> None:
    far.keep = True
    near.transport.write_eof()
    near.transport.close()
    await far.saw("eof")
    await turns()
    far.transport.close()


async def near_aborts(near: Recorder, far: Recorder) -> None:
    near.transport.abort()
    near.transport.write(b"unheard")
    assert near.calls == ["made"]


async def near_aborts_when_full(near: Recorder, far: Recorder) -> None:
    far.transport.pause_reading()
    near.transport.write(bytes(24 * 1024 * 1024))
    await near.saw("pause")
    near.transport.abort()
    far.transport.resume_reading()


async def near_writes_and_aborts(near: Recorder, far: Recorder) -> None:
    near.transport.write(b"last words")
    near.transport.abort()


async def near_aborts_with_bytes_unread(near: Recorder, far: Recorder) -> None:
    near.transport.pause_reading()
    far.transport.write(b"unread")
    await turns()
    near.transport.abort()


async def near_closes_with_bytes_unread(near: Recorder, far: Recorder) -> None:
    near.transport.pause_reading()
    far.transport.write(b"unread")
    await turns()
    near.transport.write(b"too large")
    near.transport.close()


async def far_writes_to_nobody(near: Recorder, far: Recorder) -> None:
    far.keep = True
    near.transport.close()
    near.transport.write(b"unheard")
    await far.saw("eof")
    await turns()
    for _ in range(2):  # a kernel needs one write to learn it and one to say it
        far.transport.write(b"hello?")
        await turns()


async def both_close(near: Recorder, far: Recorder) -> None:
    near.transport.close()
    near.transport.close()
    far.transport.close()


async def far_reads_slowly(near: Recorder, far: Recorder) -> None:
    far.transport.pause_reading()
    near.transport.write(bytes(24 * 1024 * 1024))
    await near.saw("pause")
    assert near.transport.get_write_buffer_size() > HIGH_WATER_BYTES
    far.transport.resume_reading()
    await near.saw("resume")
    near.transport.close()


async def far_fails(near: Recorder, far: Recorder) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    far.fails = True
    near.transport.write(b"poison")


@pytest.mark.parametrize(
    ("scenario", "near_calls", "far_calls"),
    [
        (near_closes, "made data lost", "made data eof lost"),
        (close_flushes, "made lost", "made data eof lost"),
        (near_half_closes, "made data eof lost", "made data eof lost"),
        (near_half_closes_then_closes, "made lost", "made eof lost"),
        (near_aborts, "made lost", "made eof lost"),
        (near_aborts_when_full, "made pause lost", "made data eof lost"),
        (near_writes_and_aborts, "made lost", "made data eof lost"),
        (near_aborts_with_bytes_unread, "made lost", "made lost ConnectionResetError"),
        (near_closes_with_bytes_unread, "made lost", "made data lost ConnectionResetError"),
        (far_writes_to_nobody, "made lost", "made eof lost BrokenPipeError"),
        (both_close, "made lost", "made lost"),
        (far_reads_slowly, "made pause resume lost", "made data eof lost"),
        (far_fails, "made eof lost", "made data lost ValueError"),
    ],
)
@pytest.mark.parametrize("real", [True, False], ids=["sockets", "memory"])
def test_memory_behaves_like_sockets(
    scenario: Callable[[Recorder, Recorder], Awaitable[None]], near_calls: str, far_calls: str, real: bool
) -> None:
    near, far = Recorder(), Recorder()

    async def main(network: Network) -> None:
        async with asyncio.timeout(60):
            await pair(network, near, far)
            await scenario(near, far)
            await near.over.wait()
            await far.over.wait()
        for end in (near, far):
            assert end.transport.is_closing()
            assert end.transport.get_write_buffer_size() == 0

    if real:
        uvloop.run(main(Sockets()))
    else:
        network = MemoryNetwork()
        run(main(network))
        assert network.open_transports == 0
    assert (" ".join(near.calls), " ".join(far.calls)) == (near_calls, far_calls)


# -- what only memory can show ------------------------------------------------------------------------


def test_writes_arrive_one_by_one_in_order_after_the_latency() -> None:
    async def main() -> None:
        network, near, far = MemoryNetwork(latency_s=0.25), Recorder(), Recorder()
        await pair(network, near, far)
        assert network.open_transports == 2
        near.transport.write(b"a")
        near.transport.writelines([b"b", b"c"])
        near.transport.write(b"")
        near.transport.write(memoryview(b"d"))
        near.transport.close()
        await asyncio.sleep(0.2)
        assert far.pieces == []
        assert network.open_transports == 2
        await asyncio.sleep(0.1)
        assert far.pieces == [b"a", b"bc", b"d"]
        await far.over.wait()
        assert asyncio.get_running_loop().time() == START_S + 0.5
        await near.over.wait()
        assert network.open_transports == 0

    run(main())


def test_both_ends_are_made_before_anything_arrives() -> None:
    class Eager(Recorder):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self.transport.write(b"hello")

    async def main() -> None:
        near, far = Eager(), Eager()
        await pair(MemoryNetwork(), near, far)
        await turns()
        assert near.calls == far.calls == ["made", "data"]

    run(main())


def test_split_cuts_what_arrives() -> None:
    async def main() -> None:
        network = MemoryNetwork(split=lambda data: [data[i : i + 2] for i in range(0, len(data), 2)])
        near, far = Recorder(), Recorder()
        await pair(network, near, far)
        near.transport.write(b"abcde")
        near.transport.write_eof()
        await near.over.wait()
        assert far.pieces == [b"ab", b"cd", b"e"]

    run(main())


def test_a_pause_within_a_read_holds_the_next_piece_back() -> None:
    async def main() -> None:
        class Hesitant(Recorder):
            def data_received(self, data: bytes) -> None:
                super().data_received(data)
                self.transport.pause_reading()

        near, far = Recorder(), Hesitant()
        await pair(MemoryNetwork(), near, far)
        near.transport.write(b"first")
        near.transport.write(b"second")
        await turns()
        assert far.pieces == [b"first"]
        assert near.transport.get_write_buffer_size() == len(b"second")
        far.transport.resume_reading()
        assert far.pieces == [b"first"]
        await turns()
        assert far.pieces == [b"first", b"second"]

    run(main())


def test_water_marks_decide_who_is_told_when() -> None:
    async def main() -> None:
        near, far = Recorder(), Recorder()
        await pair(MemoryNetwork(), near, far)
        far.transport.pause_reading()
        near.transport.set_write_buffer_limits(high=10, low=4)
        near.transport.write(bytes(10))
        assert near.calls == ["made"]
        near.transport.write(bytes(5))
        assert near.calls == ["made", "pause"]
        far.transport.resume_reading()
        await asyncio.sleep(0)  # one turn, one piece
        assert near.transport.get_write_buffer_size() == 5
        assert near.calls == ["made", "pause"]
        await asyncio.sleep(0)
        assert near.transport.get_write_buffer_size() == 0
        assert near.calls == ["made", "pause", "resume"]
        with pytest.raises(ValueError, match="low"):
            near.transport.set_write_buffer_limits(high=1, low=2)

    run(main())


def test_a_reset_reaches_a_peer_that_owes_nothing() -> None:
    async def main() -> None:
        network, near, far = MemoryNetwork(), Recorder(), Recorder()
        await pair(network, near, far)
        far.transport.write(b"half an ans")
        cast("MemoryTransport", far.transport).reset()
        await near.over.wait()
        assert near.calls == ["made", "data", "lost ConnectionResetError"]
        assert far.calls == ["made", "lost"]
        assert network.open_transports == 0

    run(main())


def test_a_reset_ends_a_close_that_waits_for_a_reader() -> None:
    async def main() -> None:
        network, near, far = MemoryNetwork(), Recorder(), Recorder()
        await pair(network, near, far)
        near.transport.pause_reading()
        far.transport.pause_reading()
        near.transport.write(b"unread")
        near.transport.close()
        far.transport.abort()
        await near.over.wait()
        assert near.calls == ["made", "lost ConnectionResetError"]
        assert network.open_transports == 0

    run(main())


def test_ends_know_their_addresses() -> None:
    async def main() -> None:
        network, near, far = MemoryNetwork(), Recorder(), Recorder()
        listener = await network.listen(lambda: far, HOST, 8000)
        await network.connect(lambda: near, HOST, 8000)
        await far.saw("made")
        assert listener.address == (HOST, 8000)
        assert near.transport.get_extra_info("peername") == far.transport.get_extra_info("sockname")
        assert near.transport.get_extra_info("sockname") == far.transport.get_extra_info("peername")
        assert near.transport.get_extra_info("peername") == (HOST, 8000)
        assert near.transport.get_extra_info("socket") is None

    run(main())


def test_a_port_is_taken_until_its_listener_closes() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        first = await network.listen(Recorder, HOST, 8000)
        with pytest.raises(OSError, match="in use") as caught:
            await network.listen(Recorder, HOST, 8000)
        assert caught.value.errno == errno.EADDRINUSE
        first.close()
        with pytest.raises(ConnectionRefusedError):
            await network.connect(Recorder, HOST, 8000)
        await network.listen(Recorder, HOST, 8000)
        first.close()
        await network.connect(Recorder, HOST, 8000)

    run(main())


def test_refused_slow_and_healed_connects() -> None:
    async def main() -> None:
        network = MemoryNetwork(connect_delay_s=2.0)
        await network.listen(Recorder, HOST, 8000)
        network.refuse(HOST, 8000)
        with pytest.raises(ConnectionRefusedError):
            await network.connect(Recorder, HOST, 8000)
        assert asyncio.get_running_loop().time() == START_S + 2
        network.heal(HOST, 8000)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await network.connect(Recorder, HOST, 8000)
        assert network.open_transports == 0
        await network.connect(Recorder, HOST, 8000)
        assert network.open_transports == 2

    run(main())


def test_a_hanging_connect_never_ends() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        await network.listen(Recorder, HOST, 8000)
        network.hang(HOST, 8000)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(600):
                await network.connect(Recorder, HOST, 8000)
        await network.connect(Recorder, HOST, 8000)

    with pytest.raises(Hang):
        run(main())
