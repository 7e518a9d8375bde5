"""ZMQ on the loop: what engines publish, and what they tell again.

ZMQ's own thread does the input and output. Its descriptor says only that something has changed, so all that
has come is read then, but at most a turn's worth before others have the loop. What comes faster than it is
read waits in the engine, where it is bounded, and shows as a gap if it is dropped there.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncGenerator, Callable

import zmq
import zmq.asyncio

from maitred.control.kv_feed import MESSAGE_BYTES_MAX

WAITING_MESSAGES_MAX = 1024
RECONNECT_MS_MAX = 5000
TURN_BYTES = 64 * 1024
"""Bytes taken in at once: about a millisecond, so that no stream feels it."""
TURN_MESSAGES = 64
PORT_MAX = 65535
IDLE_S = 2.0
"""Longest silence in a replay."""
END = b"\xff" * 8
"""The number of the message that ends a replay."""


class Sockets:
    """Opens all there are, on the running loop. Raises OSError where an address is none, or taken."""

    def __init__(self) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()

    def subscribe(
        self,
        address: str,
        heard: Callable[[list[bytes]], None],
        settle: Callable[[], None],
        *,
        bind: bool = False,
    ) -> Subscription:
        """Hear everything that is published there; with `bind` the publishers come to us."""
        socket = self._context.socket(zmq.SUB)
        try:
            _bound(socket)
            socket.subscribe(b"")
            if bind:
                socket.setsockopt(zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX)
                socket.bind(_checked(address))
            else:  # which a larger message would end for good, so it is dropped after it has come
                socket.connect(_checked(address))
        except zmq.ZMQError as error:
            socket.close()
            raise OSError(str(error)) from error
        return Subscription(socket, heard, settle)

    async def replayed(self, address: str, first: int) -> AsyncGenerator[tuple[int, bytes], None]:
        """Messages from this number on, as an engine tells them again. Raises TimeoutError if it does not.

        Older engines leave out the topic, so number and payload are counted from the end.
        """
        socket: zmq.asyncio.Socket = zmq.asyncio.Socket(self._context, zmq.DEALER)
        try:
            _bound(socket)
            socket.setsockopt(zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX)
            socket.connect(_checked(address))
            await socket.send_multipart([b"", first.to_bytes(8)])
            while True:
                frames = await asyncio.wait_for(socket.recv_multipart(), IDLE_S)
                if len(frames) < 3 or len(frames[-2]) != 8:
                    continue  # no answer to what was asked
                if frames[-2] == END:
                    return
                yield int.from_bytes(frames[-2]), frames[-1]
        except zmq.ZMQError as error:
            raise TimeoutError(str(error)) from error
        finally:
            socket.close()

    def close(self) -> None:
        """Close whatever is open."""
        self._context.destroy(linger=0)


class Subscription:
    """A socket that is read on the loop, until closed.

    `heard` gets the frames of each message, `settle` is called after each turn.
    """

    def __init__(
        self,
        socket: zmq.Socket[bytes],
        heard: Callable[[list[bytes]], None],
        settle: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = socket
        self._heard = heard
        self._settle = settle
        self._loop.add_reader(socket.fileno(), self._read)
        self._soon: asyncio.Handle | None = self._loop.call_soon(self._read)

    def close(self) -> None:
        """Hear no more."""
        if self._soon is not None:
            self._soon.cancel()
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()

    def _read(self) -> None:
        """Take in what has come, or a turn's worth of it; what is left brings no news of its own."""
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        messages = taken = 0
        while messages < TURN_MESSAGES and taken < TURN_BYTES:
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            self._heard(frames)
            messages += 1
            taken += sum(map(len, frames))
        else:
            self._soon = self._loop.call_soon(self._read)
        self._settle()


def _checked(address: str) -> str:
    """An address with a port that can be; ZMQ itself would take another one."""
    if int(address.rpartition(":")[2]) > PORT_MAX:
        raise zmq.ZMQError(errno.EINVAL, "there is no such port")
    return address


def _bound(socket: zmq.Socket[bytes] | zmq.asyncio.Socket) -> None:
    """Have a socket keep to our bounds and let go at once."""
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.IPV6, 1)
    socket.setsockopt(zmq.RCVHWM, WAITING_MESSAGES_MAX)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MS_MAX)
