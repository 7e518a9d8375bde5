"""Real sockets on both loops; what they share with memory is in test_memory."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable

import pytest
import uvloop

from maitred.net.seams import Sockets

LOOPS = [uvloop.new_event_loop, asyncio.new_event_loop]


class Keeper(asyncio.Protocol):
    """Keeps its transport, and says when it has one and when it has lost it."""

    def __init__(self) -> None:
        self.made = asyncio.Event()
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.made.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


@pytest.mark.parametrize("new_loop", LOOPS)
def test_both_ends_send_at_once_and_outlive_the_listener(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def main() -> None:
        far = Keeper()
        listener = await Sockets().listen(lambda: far, "127.0.0.1", 0)
        near = await Sockets().connect(Keeper, *listener.address)
        await far.made.wait()
        listener.close()
        listener.close()
        with pytest.raises(ConnectionRefusedError):
            await Sockets().connect(Keeper, *listener.address)
        for end in (near, far):
            assert not end.transport.is_closing()
            real = end.transport.get_extra_info("socket")
            assert real.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
            end.transport.close()
        await near.lost.wait()
        await far.lost.wait()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("new_loop", LOOPS)
def test_a_taken_port_is_an_os_error(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        listener = await Sockets().listen(Keeper, "127.0.0.1", 0)
        with pytest.raises(OSError, match="in use") as caught:
            await Sockets().listen(Keeper, *listener.address)
        assert caught.value.errno == errno.EADDRINUSE
        listener.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
