"""What is written in one turn of the loop leaves together, at the turn's end.

A write to a socket that somebody waits on wakes him, on another core more often than not, and that wake-up
is dearer than the copy. Writes spread over a turn find their readers asleep again each time; one after the
other they find them awake, and the kernel's code in the cache besides. Under load that is a sixth of what a
request costs, and nobody waits longer: what is written early in a turn would only be read early by someone
whose next question is taken in the next turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

log = logging.getLogger("maitred.net")

WRITES_MAX = 64
"""So many are held at most; past that they leave at once, so that a long turn holds up nobody."""

Data = bytes | bytearray | memoryview


class Burst:
    """The writes of one turn of a loop, in their order."""

    __slots__ = ("held", "later")

    def __init__(self) -> None:
        self.later: Callable[[Callable[[], None]], object]
        self.held: deque[tuple[asyncio.Transport, Iterable[Data]]] = deque()

    def ready(self) -> None:
        """Write at the ends of the running loop's turns; called before a connection is written to."""
        self.later = asyncio.get_running_loop().call_soon  # asking each time costs a system call

    def outlet(self, transport: asyncio.Transport) -> Outlet:
        """The same transport, but for the moment at which what is written to it leaves."""
        self.ready()
        return Outlet(transport, self)

    def write(self, transport: asyncio.Transport, parts: Iterable[Data]) -> None:
        """Let this leave by `transport`, the one below an outlet; who calls it changes the parts no more."""
        held = self.held
        if not held:
            self.later(self.flush)
        elif len(held) >= WRITES_MAX or held[-1][0] is transport:
            self.flush()  # who writes on and on hears in time that his reader is slow
        held.append((transport, parts))

    def flush(self) -> None:
        """Let all of it leave now."""
        held = self.held
        while held:
            transport, parts = held.popleft()
            if transport.is_closing():  # lost since
                continue
            try:
                transport.writelines(parts)
            except Exception:  # this connection's alone: whoever has us flush is none of its callers
                log.exception("a write failed; its connection is broken off")
                transport.abort()


class AtOnce(Burst):
    """Each write leaves where it is made."""

    def write(self, transport: asyncio.Transport, parts: Iterable[Data]) -> None:
        """See Burst."""
        transport.writelines(parts)


class Outlet(asyncio.Transport):
    """A transport whose writes wait for the end of the turn; what ends it, or asks for its size, does not.

    `below` is what it writes to, by the `burst`: who writes often may do so himself.
    """

    __slots__ = ("below", "burst")

    def __init__(self, below: asyncio.Transport, burst: Burst) -> None:
        self.below = below
        self.burst = burst

    def write(self, data: Data) -> None:
        """See asyncio.WriteTransport."""
        self.burst.write(self.below, (data,))

    def writelines(self, list_of_data: Iterable[Data]) -> None:
        """See asyncio.WriteTransport; who calls it changes the list no more."""
        self.burst.write(self.below, list_of_data)

    def is_closing(self) -> bool:
        """See asyncio.BaseTransport."""
        return self.below.is_closing()

    def get_write_buffer_size(self) -> int:
        """See asyncio.WriteTransport."""
        self.burst.flush()
        return self.below.get_write_buffer_size()

    def can_write_eof(self) -> bool:
        """See asyncio.WriteTransport."""
        return self.below.can_write_eof()

    def write_eof(self) -> None:
        """See asyncio.WriteTransport."""
        self.burst.flush()
        self.below.write_eof()

    def close(self) -> None:
        """See asyncio.BaseTransport."""
        self.burst.flush()
        self.below.close()

    def abort(self) -> None:
        """See asyncio.WriteTransport."""
        self.burst.flush()
        self.below.abort()

    def pause_reading(self) -> None:
        """See asyncio.ReadTransport."""
        self.below.pause_reading()

    def resume_reading(self) -> None:
        """See asyncio.ReadTransport."""
        self.below.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See asyncio.BaseTransport."""
        return self.below.get_extra_info(name, default)
