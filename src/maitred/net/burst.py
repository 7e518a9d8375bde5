"""What is written in one turn of the loop leaves together, at the turn's end.

A write to a socket that somebody waits on wakes him, on another core more often than not, and that wake-up
is dearer than the copy. Writes spread over a turn find their readers asleep again each time; one after the
other they find them awake, and the kernel's code in the cache besides. Under load that is a sixth of what a
request costs, and nobody waits longer: what is written early in a turn would only be read early by someone
whose next question is taken in the next turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any

HELD_BYTES_MAX = 1 << 20
WRITES_MAX = 64
"""So much is held at most; past that it leaves at once, so that a long turn holds up nobody."""

Data = bytes | bytearray | memoryview


class Burst:
    """The writes of one turn of a loop, in their order. With `held_bytes_max` 0 each leaves at once."""

    __slots__ = ("_held", "_held_bytes", "_held_bytes_max")

    def __init__(self, held_bytes_max: int = HELD_BYTES_MAX) -> None:
        self._held: deque[tuple[asyncio.Transport, Data | tuple[Data, ...]]] = deque()
        self._held_bytes = 0
        self._held_bytes_max = held_bytes_max

    def line(self, transport: asyncio.Transport) -> asyncio.Transport:
        """The same transport, but for the moment at which what is written to it leaves."""
        return _Line(transport, self)

    def add(self, transport: asyncio.Transport, data: Data | tuple[Data, ...], size: int) -> None:
        """Hold a piece, or several, of `size` bytes in all."""
        held = self._held
        if held and held[-1][0] is transport:
            self.flush()  # who writes on and on hears in time that his reader is slow
        if not held:
            asyncio.get_running_loop().call_soon(self.flush)
        held.append((transport, data))
        self._held_bytes += size
        if self._held_bytes > self._held_bytes_max or len(held) >= WRITES_MAX:
            self.flush()

    def flush(self) -> None:
        """Let all of it leave now."""
        held = self._held
        self._held_bytes = 0
        try:
            while held:
                transport, data = held.popleft()
                if transport.is_closing():  # lost since
                    continue
                if isinstance(data, tuple):
                    transport.writelines(data)
                else:
                    transport.write(data)
        finally:
            if held:  # one write failed; the others are not to wait for one more
                asyncio.get_running_loop().call_soon(self.flush)


class _Line(asyncio.Transport):
    """A transport whose writes wait for the end of the turn; what ends it, or asks for its size, does not."""

    __slots__ = ("_burst", "_transport")

    def __init__(self, transport: asyncio.Transport, burst: Burst) -> None:
        self._transport = transport
        self._burst = burst

    def write(self, data: Data) -> None:
        """See asyncio.WriteTransport."""
        self._burst.add(self._transport, data, len(data))

    def writelines(self, list_of_data: Iterable[Data]) -> None:
        """See asyncio.WriteTransport."""
        parts = tuple(list_of_data)
        self._burst.add(self._transport, parts, sum(map(len, parts)))

    def is_closing(self) -> bool:
        """See asyncio.BaseTransport."""
        return self._transport.is_closing()

    def get_write_buffer_size(self) -> int:
        """See asyncio.WriteTransport."""
        self._burst.flush()
        return self._transport.get_write_buffer_size()

    def can_write_eof(self) -> bool:
        """See asyncio.WriteTransport."""
        return self._transport.can_write_eof()

    def write_eof(self) -> None:
        """See asyncio.WriteTransport."""
        self._burst.flush()
        self._transport.write_eof()

    def close(self) -> None:
        """See asyncio.BaseTransport."""
        self._burst.flush()
        self._transport.close()

    def abort(self) -> None:
        """See asyncio.WriteTransport."""
        self._burst.flush()
        self._transport.abort()

    def pause_reading(self) -> None:
        """See asyncio.ReadTransport."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """See asyncio.ReadTransport."""
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See asyncio.BaseTransport."""
        return self._transport.get_extra_info(name, default)
