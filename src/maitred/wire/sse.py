"""Server-sent events, sans I/O: cutting a byte stream into events, wherever the network cut it.

Two readers. `Scanner` finds every event and its payload; it is for the first events of an answer and for
clients of ours. `Tail` is for the long middle of an answer passing through at full speed: it counts events
by their boundaries and keeps the end, so that the last events can be judged when the stream is over.
Neither ever changes or delays a byte.
"""

from __future__ import annotations

import re
from typing import NamedTuple

EVENT_BYTES_MAX = 4 * 1024 * 1024
"""An event larger than this is given up on: it counts as one opaque event."""
TAIL_BYTES = 32 * 1024
"""How much of a stream's end is kept; the usage event and [DONE] take less than 1 KiB."""
DONE = b"[DONE]"
FIRST_LINE_END = re.compile(rb"\r\n|\n|\r(?=[^\n])")


class Event(NamedTuple):
    """One dispatched event: its name (b"" when none was given) and its payload, data lines joined by LF."""

    name: bytes
    data: bytes


def parse(block: bytes) -> Event | None:
    """One event from the lines of its block; None when it carries no data (comments, ids, retries)."""
    name, data = b"", []
    for line in _lines(block):
        field, colon, value = line.partition(b":")
        if colon and value.startswith(b" "):
            value = value[1:]
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
    return Event(name, b"\n".join(data)) if data else None


def _lines(block: bytes) -> list[bytes]:
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return block.split(b"\n")


def boundary(data: bytes, start: int = 0) -> tuple[int, int] | None:
    """The first blank line at or after `start`: where the event ends and where the next one begins.

    A CR at the very end is no boundary yet, because an LF may follow it.
    """
    if b"\r" not in data:
        at = data.find(b"\n\n", start)
        return (at, at + 2) if at >= 0 else None
    at = start
    while True:
        ends = [i for i in (data.find(b"\n", at), data.find(b"\r", at)) if i >= 0]
        if not ends:
            return None
        end = min(ends)
        after = _line_end(data, end)
        if after is None:
            return None
        second = _line_end(data, after) if after < len(data) and data[after] in b"\r\n" else None
        if second is not None:
            return end, second
        at = after


def _line_end(data: bytes, at: int) -> int | None:
    """Where the line terminator at `at` is over; None when only more bytes can tell."""
    if data[at] == 0x0A:
        return at + 1
    if at + 1 == len(data):
        return None
    return at + 2 if data[at + 1] == 0x0A else at + 1


class Scanner:
    """Feed bytes, get events. `rest` is what came after the last boundary."""

    __slots__ = ("_started", "rest")

    def __init__(self) -> None:
        self.rest = b""
        self._started = False

    def feed(self, data: bytes) -> list[Event]:
        """The events completed by `data`, in order; blocks without data are left out."""
        rest = self.rest + data if self.rest else data
        if not self._started:
            if len(rest) < 3 and b"\xef\xbb\xbf".startswith(rest):
                self.rest = rest
                return []
            self._started = True
            rest = rest.removeprefix(b"\xef\xbb\xbf")
        events, start = [], 0
        while (found := boundary(rest, start)) is not None:
            end, following = found
            if (event := parse(rest[start:end])) is not None:
                events.append(event)
            start = following
        self.rest = rest[start:] if len(rest) - start <= EVENT_BYTES_MAX else b""
        return events


class Tail:
    """Counts events and remembers the end of a stream, at a few hundred nanoseconds a read.

    `events` counts by boundary and first field of the next event, the same for every way of cutting.
    """

    __slots__ = ("_carry", "_kept", "_mark", "_parts", "events")

    def __init__(self, start: bytes) -> None:
        """`start`: what has passed so far."""
        self._mark = b""  # how an event shows that another came before it; known with the first line end
        self._parts: list[bytes] = []
        self._kept = 0
        self._carry = b""
        self.events = 0
        self.feed(start)

    def feed(self, data: bytes) -> None:
        """Take note of the next bytes."""
        seen = self._carry + data
        if not self._mark and (line := FIRST_LINE_END.search(seen)) is not None:
            self._mark = 2 * line[0] + b"data"
        if self._mark:
            self.events += seen.count(self._mark)
            seen = seen[1 - len(self._mark) :]
        self._carry = seen
        self._parts.append(data)
        self._kept += len(data)
        if self._kept > 2 * TAIL_BYTES:
            end = b"".join(self._parts)[-TAIL_BYTES:]
            self._parts, self._kept = [end], len(end)
            self._carry = self._carry[-TAIL_BYTES:]

    def last(self) -> list[Event]:
        """The last two events that carry data, an unfinished one left out."""
        end = b"".join(self._parts)
        if b"\r" in end:
            return Scanner().feed(end + b":")[-2:]  # what follows a last CR shows that it ends a line
        events: list[Event] = []
        stop = end.rfind(b"\n\n")
        while stop >= 0 and len(events) < 2:
            start = end.rfind(b"\n\n", 0, stop)
            if (event := parse(end[max(0, start) : stop])) is not None:
                events.insert(0, event)
            stop = start
        return events
