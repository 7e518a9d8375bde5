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
from collections.abc import Callable, Iterable
from typing import Any

WRITES_MAX = 64
"""So many are held at most; past that they leave at once, so that a long turn holds nobody up."""


class Burst:
    """The writes of one turn of a loop, in their order."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: deque[tuple[asyncio.Transport, Callable[[Any], object], Any]] = deque()

    def line(self, transport: asyncio.Transport) -> asyncio.Transport:
        """The same transport, but for the moment at which what is written to it leaves."""
        return _Line(transport, self)

    def add(self, transport: asyncio.Transport, write: Callable[[Any], object], data: Any) -> None:
        """Hold one call of `write` of a transport."""
        held = self._held
        if not held:
            asyncio.get_running_loop().call_soon(self.flush)
        held.append((transport, write, data))
        if len(held) >= WRITES_MAX:
            self.flush()

    def flush(self) -> None:
        """Let all of it leave now."""
        held = self._held
        while held:
            transport, write, data = held.popleft()
            if not transport.is_closing():  # lost since
                write(data)


class _Line(asyncio.Transport):
    """A transport whose writes wait for the end of the turn; what else is asked of it comes after them."""

    def __init__(self, transport: asyncio.Transport, burst: Burst) -> None:
        super().__init__()
        self._transport = transport
        self._burst = burst
        self._write, self._writelines = transport.write, transport.writelines
        self.is_closing = transport.is_closing  # type: ignore[method-assign] # asked for each request

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """See asyncio.WriteTransport."""
        self._burst.add(self._transport, self._write, data)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        """See asyncio.WriteTransport."""
        self._burst.add(self._transport, self._writelines, list_of_data)

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
