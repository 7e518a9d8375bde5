"""Server-sent events, sans I/O: cutting a byte stream into events, wherever the network cut it.

Three readers. `Blocks` cuts at blank lines and holds what is unfinished. `Scanner` reads the events in the
blocks; it is for the first events of an answer and for clients of ours. `Tail` is for the long middle of an
answer passing through at full speed: it counts events by their boundaries and keeps the end, so that the
last events can be judged when the stream is over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

EVENT_BYTES_MAX = 4 * 1024 * 1024
"""An event larger than this is given up on: no Scanner tells it, and it is not held until it is whole."""
TAIL_BYTES = 32 * 1024
"""How much of a stream's end is kept; the last events take less than 1 KiB."""
LAST_EVENTS = 3
"""How many events tell how a stream ended: what vLLM sends last is an error, the usage and [DONE]."""
DONE = b"[DONE]"
BOM = b"\xef\xbb\xbf"

_LINE_END = rb"(?:\r\n|\n|\r(?=[^\n]))"  # a CR at the very end is none yet, because an LF may follow it
FIRST_LINE_END = re.compile(_LINE_END)
BOUNDARY = re.compile(_LINE_END + _LINE_END)
_BOUNDARY_WITHOUT_CR = re.compile(rb"\n\n")  # found five times as fast, and all that engines send


class Event(Struct, frozen=True, gc=False):
    """One dispatched event: its name (b"" when none was given) and its payload, data lines joined by LF."""

    name: bytes
    data: bytes


def parse(block: bytes) -> Event | None:
    """One event from the lines of its block; None when it carries no data (comments, ids, retries)."""
    line = block.strip(b"\n")
    if line.startswith(b"data: ") and line.find(b"\n") < 0 and line.find(b"\r") < 0:
        return Event(b"", line[6:])  # as nearly all are
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


def _parsed(blocks: list[bytes]) -> list[Event]:
    return [event for block in blocks if (event := parse(block)) is not None]


def _lines(block: bytes) -> list[bytes]:
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return block.split(b"\n")


class Blocks:
    """Feed bytes, get blocks of lines. Each byte is looked at once, however small the reads are.

    `rest` is the unfinished block.
    """

    __slots__ = ("rest",)

    def __init__(self) -> None:
        self.rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The blocks completed by `data`, each with the blank line that ends it.

        One larger than EVENT_BYTES_MAX may come in parts: the rest is handed out once it is larger.
        """
        rest = self.rest
        if not rest and data.find(b"\r") < 0:
            blocks = data.split(b"\n\n")
            unfinished = blocks.pop()
            blocks = [block + b"\n\n" for block in blocks]
            if len(unfinished) > EVENT_BYTES_MAX:
                blocks.append(unfinished)
            elif unfinished:
                rest += unfinished
            return blocks
        blocks, start = [], 0
        at = max(0, len(rest) - 2) if rest else 0  # a line end and a CR may wait for what comes next
        rest += data
        search = (_BOUNDARY_WITHOUT_CR if rest.find(b"\r", at) < 0 else BOUNDARY).search
        while (found := search(rest, at)) is not None:
            at = found.end()
            blocks.append(bytes(rest[start:at]))
            start = at
        if len(rest) - start > EVENT_BYTES_MAX:
            blocks.append(bytes(rest[start:]))
            start = len(rest)
        del rest[:start]
        return blocks


class Scanner:
    """Feed bytes, get events."""

    __slots__ = ("_blocks", "_first")

    def __init__(self) -> None:
        self._blocks = Blocks()
        self._first = True  # no block has been complete yet

    @property
    def rest(self) -> bytes:
        """What came after the last boundary."""
        return bytes(self._blocks.rest)

    def feed(self, data: bytes) -> list[Event]:
        """The events completed by `data`, in order; those without data or over the limit are left out."""
        return list(self.each(data))

    def each(self, data: bytes) -> Iterator[Event]:
        """The same, one after the other; who has heard enough may leave the rest unread."""
        blocks = self._blocks.feed(data)
        if self._first and blocks:
            self._first = False
            if len(blocks[0]) <= EVENT_BYTES_MAX:  # else it may be a part, which is not to become an event
                blocks[0] = blocks[0].removeprefix(BOM)
        for block in blocks:
            if len(block) <= EVENT_BYTES_MAX and (event := parse(block)) is not None:
                yield event


class Tail:
    """Counts events and remembers the end of a stream, at a few hundred nanoseconds a read.

    `events` counts by boundary and how the next event begins, the same for every way of cutting.
    """

    __slots__ = ("_carry", "_kept", "_mark", "_parts", "_start", "events")

    def __init__(self, passed: bytes, start: bytes = b"data") -> None:
        """`passed`: what has passed so far; `start`: with what an event that counts begins."""
        self._start = start
        self._mark = b""  # how an event shows that another came before it; known with the first line end
        self._parts: list[bytes] = []
        self._kept = 0
        self._carry = b""
        self.events = 0
        self.feed(passed)

    @property
    def simple(self) -> bool:
        """Whether events are told apart by an LF LF before their data."""
        return self._mark == b"\n\ndata"

    def feed(self, data: bytes) -> None:
        """Take note of the next bytes."""
        seen = self._carry + data
        mark = self._mark or self._find_mark(seen)
        if mark:
            self.events += seen.count(mark)
            self._carry = seen[1 - len(mark) :]
        else:
            self._carry = seen[-1:]  # a CR may be half a line end
        self._parts.append(data)
        self._kept += len(data)
        if self._kept > 2 * TAIL_BYTES:
            end = b"".join(self._parts)[-TAIL_BYTES:]
            self._parts, self._kept = [end], len(end)

    def _find_mark(self, seen: bytes) -> bytes:
        if seen.find(b"\r") < 0:
            line_end = b"\n" if seen.find(b"\n") >= 0 else b""
        else:
            found = FIRST_LINE_END.search(seen)
            line_end = found[0] if found is not None else b""
        self._mark = 2 * line_end + self._start if line_end else b""
        return self._mark

    def text(self) -> bytes:
        """The bytes that are kept of the end, TAIL_BYTES of them at least."""
        return b"".join(self._parts)

    def last(self) -> list[Event]:
        """The last LAST_EVENTS events that carry data, an unfinished one left out."""
        end = b"".join(self._parts)
        if end.find(b"\r") >= 0:
            # What follows a last CR shows that it ends a line.
            return Scanner().feed(end + b":")[-LAST_EVENTS:]
        blocks = end.rsplit(b"\n\n", LAST_EVENTS + 1)
        blocks.pop()  # is unfinished
        if cut := len(blocks) > LAST_EVENTS:
            del blocks[0]
        events = _parsed(blocks)
        if cut and len(events) < LAST_EVENTS:  # some of them carry no data
            events = _parsed(end.rsplit(b"\n\n")[:-1])[-LAST_EVENTS:]
        return events
