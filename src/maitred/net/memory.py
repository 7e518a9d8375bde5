"""A network in memory: linked transports which behave, callback for callback, like sockets.

For virtual time and for faults that are hard to get from a kernel; runs on any asyncio loop. Each direction
is one pipe. A write stays in the writer's pipe, and counts as its buffer, until the reader's protocol has
it; each write is one `data_received` in a loop turn of its own. Ends are a kernel's: a transport that is
gone sends EOF after what it wrote, but a reset if it left bytes unread, and who writes to it gets a
broken pipe. The kernel's own buffers are left out, so backpressure sets in as early as it ever can.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from itertools import count

from maitred.net.seams import P

HIGH_WATER_BYTES = 64 * 1024
EOF = b""
RESET = None

Address = tuple[str, int]


class MemoryNetwork:
    """A `Network` without an operating system.

    A byte travels for `latency_s`, a connect takes `connect_delay_s`, and `split` cuts each write into the
    pieces that arrive; all three may be changed at any time. `open_transports` counts both ends of every
    connection until they are lost. Hosts are names only: connect to exactly what was listened on.
    """

    def __init__(
        self,
        latency_s: float = 0.0,
        connect_delay_s: float = 0.0,
        split: Callable[[bytes], Iterable[bytes]] | None = None,
    ) -> None:
        self.latency_s = latency_s
        self.connect_delay_s = connect_delay_s
        self.split = split
        self.open_transports = 0
        self._listeners: dict[Address, MemoryListener] = {}
        self._refused: set[Address] = set()
        self._hanging: set[Address] = set()
        self._ports = count(49152)

    def refuse(self, host: str, port: int) -> None:
        """Let connects fail there, though somebody listens."""
        self._refused.add((host, port))

    def hang(self, host: str, port: int) -> None:
        """Let connects begun from now on never end there."""
        self._hanging.add((host, port))

    def heal(self, host: str, port: int) -> None:
        """Take back `refuse` and `hang`; connects that hang already go on doing so."""
        self._refused.discard((host, port))
        self._hanging.discard((host, port))

    async def connect(
        self,
        factory: Callable[[], P],
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,  # noqa: ARG002 - nothing to encrypt
        server_name: str | None = None,  # noqa: ARG002
    ) -> P:
        """Connect to a listener of this network."""
        await asyncio.sleep(self.connect_delay_s)
        address = (host, port)
        if address in self._hanging:
            await asyncio.get_running_loop().create_future()
        listener = None if address in self._refused else self._listeners.get(address)
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed {address}")
        here = ("127.0.0.1", next(self._ports))
        protocol, accepted = factory(), listener.factory()
        near = MemoryTransport(self, protocol, sockname=here, peername=address)
        far = MemoryTransport(self, accepted, sockname=address, peername=here)
        near.link(far)
        # The far end is told first in the queue and so before anything that the near end writes.
        asyncio.get_running_loop().call_soon(accepted.connection_made, far)
        protocol.connection_made(near)
        return protocol

    async def listen(
        self,
        factory: Callable[[], asyncio.Protocol],
        host: str,
        port: int,
        backlog: int = 4096,  # noqa: ARG002 - accepting takes no time
    ) -> MemoryListener:
        """Listen at exactly this host and port; 0 takes a free port."""
        address = (host, port or next(self._ports))
        if address in self._listeners:
            raise OSError(errno.EADDRINUSE, f"address {address} already in use")
        listener = self._listeners[address] = MemoryListener(self._listeners, factory, address)
        return listener


class MemoryListener:
    """An open port of a MemoryNetwork."""

    __slots__ = ("_listeners", "address", "factory")

    def __init__(
        self,
        listeners: dict[Address, MemoryListener],
        factory: Callable[[], asyncio.Protocol],
        address: Address,
    ) -> None:
        self._listeners = listeners
        self.factory = factory
        self.address = address

    def close(self) -> None:
        """Accept nothing more; connections live on."""
        if self._listeners.get(self.address) is self:
            del self._listeners[self.address]


class MemoryTransport(asyncio.Transport):
    """One end of a connection. What is not described here is as in `asyncio.Transport`."""

    def __init__(
        self, network: MemoryNetwork, protocol: asyncio.Protocol, sockname: Address, peername: Address
    ) -> None:
        super().__init__({"sockname": sockname, "peername": peername, "socket": None})
        self._loop = asyncio.get_running_loop()
        self._network = network
        self._protocol = protocol
        self._pipe: deque[tuple[float, bytes | None]] = deque()  # when it is due, what it is
        self._pipe_bytes = 0
        self._moving = False  # a turn of `_move` is scheduled
        self._reading = True
        self._eof = False
        self._closing = False
        self._lost = False
        self._full = False  # the protocol was told to pause writing
        self.set_write_buffer_limits()
        network.open_transports += 1

    def link(self, peer: MemoryTransport) -> None:
        """Make two transports the ends of one connection."""
        self._peer, peer._peer = peer, self

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send. Dropped silently once the connection is lost."""
        if self._eof:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._lost:
            return
        split = self._network.split
        for piece in split(bytes(data)) if split else (bytes(data),):
            if piece:
                self._pipe_bytes += len(piece)
                self._put(piece)
        self._check_full()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send as one write."""
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        """Close this direction after what was written."""
        if not self._closing and not self._eof:
            self._eof = True
            self._put(EOF)

    def can_write_eof(self) -> bool:
        """Say that directions close one by one."""
        return True

    def close(self) -> None:
        """Read no more; be lost when the peer has everything."""
        if not self._closing:
            self._closing = True
            self._check_flushed()

    def abort(self) -> None:
        """Be lost at once. What was written still arrives, then EOF, or a reset if bytes were left unread."""
        self._lose(None)

    def reset(self) -> None:
        """Fault: be lost at once, and let the peer see a reset in any case."""
        self._lose(None, reset=True)

    def is_closing(self) -> bool:
        """Whether the end has begun."""
        return self._closing

    def pause_reading(self) -> None:
        """Leave what arrives in the peer's pipe."""
        self._reading = False

    def resume_reading(self) -> None:
        """Go on with what has stayed in the peer's pipe, from the next loop turn."""
        self._reading = True
        self._peer._schedule()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set in bytes when the protocol is told to pause (above `high`) and to resume (at `low`)."""
        if high is None:
            high = HIGH_WATER_BYTES if low is None else 4 * low
        self._high, self._low = high, high // 4 if low is None else low
        if not self._high >= self._low >= 0:
            raise ValueError(f"high ({high}) must be >= low ({low}) must be >= 0")
        self._check_full()

    def get_write_buffer_size(self) -> int:
        """Bytes the peer's protocol does not have yet."""
        return self._pipe_bytes

    def _put(self, item: bytes | None) -> None:
        self._pipe.append((self._loop.time() + self._network.latency_s, item))
        self._schedule()

    def _schedule(self) -> None:
        """See to it that the head of the pipe moves when it is due."""
        if self._moving or not self._pipe:
            return
        self._moving = True
        wait_s = self._pipe[0][0] - self._loop.time()
        if wait_s > 0:
            self._loop.call_later(wait_s, self._move)
        else:
            self._loop.call_soon(self._move)

    def _move(self) -> None:
        """Hand the head of the pipe to the peer, if it reads."""
        self._moving = False
        if self._peer._lost:
            if self._pipe_bytes:  # else they were thrown away when it went, and a reset is on its way
                self._discard()
                self._lose(BrokenPipeError(errno.EPIPE, "Broken pipe"))
            return
        if not self._peer._takes(self._pipe[0][1]):
            return
        _, item = self._pipe.popleft()
        self._pipe_bytes -= len(item or b"")
        self._schedule()
        self._peer._receive(item)
        self._check_full()
        self._check_flushed()

    def _takes(self, item: bytes | None) -> bool:
        """Whether this end notices the item: who closes reads no more, but does not outlive a reset."""
        return item is RESET if self._closing else self._reading

    def _receive(self, item: bytes | None) -> None:
        try:
            if item is RESET:
                self._lose(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
            elif item != EOF:
                self._protocol.data_received(item)
            elif not self._protocol.eof_received():
                self.close()
        except Exception as error:  # as in asyncio, the connection does not outlive a failed protocol
            self._lose(error)
            raise

    def _check_full(self) -> None:
        if self._lost:
            return
        if not self._full and self._pipe_bytes > self._high:
            self._full = True
            self._protocol.pause_writing()
        elif self._full and self._pipe_bytes <= self._low:
            self._full = False
            self._protocol.resume_writing()

    def _check_flushed(self) -> None:
        if self._closing and not self._pipe_bytes:
            self._lose(None)

    def _lose(self, error: Exception | None, *, reset: bool = False) -> None:
        """Be gone for the peer now, for the own protocol in the next loop turn."""
        if self._lost:
            return
        self._lost = self._closing = True
        self._loop.call_soon(self._end, error)
        if reset or self._peer._pipe_bytes:
            self._peer._discard()
            self._put(RESET)
        elif not self._eof:
            self._put(EOF)

    def _discard(self) -> None:
        self._pipe.clear()
        self._pipe_bytes = 0

    def _end(self, error: Exception | None) -> None:
        self._network.open_transports -= 1
        protocol = self._protocol
        del self._protocol  # they name each other: both would live until the collector comes
        protocol.connection_lost(error)
