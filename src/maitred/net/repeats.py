"""Heads that come again: nearly every message differs in its body only from the last of its connection.

The first of a new connection differs as little from what others brought. Bytes that were once parsed to a
head are not parsed again. What is compared is every byte, with the length that the body has, so nothing is
let in that the parser had not let in before. It must have seen them as they are compared: from the first
byte of one read to the last, or the end of one head would make another be taken for it.
"""

from __future__ import annotations

import re
from typing import Any, Generic, TypeVar

NEVER_AGAIN = 8
"""Heads in a row that were not known, after which a connection neither looks for one nor keeps one."""
KNOWN_MAX = 1024
"""So many heads are known at most, of some 3 KB each with what is kept of them; then all are forgotten."""
HEAD_BYTES_MAX = 2 * 1024
"""A head beyond this is not kept. The most headers that fit into one come to 12 KB."""

Head = TypeVar("Head")
UNKNOWN: Any = None
Known = dict[tuple[bytes, bytes], tuple[bytes, int, Head]]
"""What all connections of one kind have learned: form, bare size and head, by the bytes around the length."""

_length = re.compile(rb"\r\ncontent-length: ([0-9]{1,8})\r\n", re.IGNORECASE).search


class Repeats(Generic[Head]):
    """The last `head` of one side of a connection, as a form to put another length into.

    `_size` bytes it has with as many digits as the last length had, `_bare` without any.
    """

    __slots__ = ("_bare", "_form", "_known", "_size", "_unlike", "head")

    def __init__(self, known: Known[Head]) -> None:
        self._known = known
        self._form = b""
        self._size = self._bare = 0
        self._unlike = 0
        self.head: Head = UNKNOWN

    def body(self, data: bytes) -> bytes | None:
        """The body, if this is exactly one message with the last head or a known one but for the length."""
        size = self._size
        if size:
            length = len(data) - size
            body = data.removeprefix(self._form % length)
            if len(body) == length:
                self._unlike = 0
                return body
            if (other := self._resized(data)) is not None:
                return other
        return self._recall(data) if self._unlike < NEVER_AGAIN else None

    def _resized(self, data: bytes) -> bytes | None:
        """The same where the length has more digits than the last one, or fewer."""
        size = self._size = self._bare + _digits(len(data) - self._bare)
        length = len(data) - size
        body = data.removeprefix(self._form % length)
        if len(body) != length:
            return None
        self._unlike = 0
        return body

    def _recall(self, data: bytes) -> bytes | None:
        """The same where the head is not the last one."""
        parts = _cut(data)
        if parts is None or (known := self._known.get(parts)) is None:
            return None
        form, bare, _ = known
        size = bare + _digits(len(data) - bare)
        if form % (len(data) - size) != data[:size]:
            return None
        self._form, self._bare, self.head = known
        self._size = size
        self._unlike = 0
        return data[size:]

    def learn(self, data: bytes, head: Head, body_bytes: int) -> None:
        """Remember a head that the parser found in `data`, if that was all of one message with such a body.

        0: it has none, or is not one that may come again.
        """
        self._size = 0
        self.head = UNKNOWN
        parts = _cut(data) if body_bytes and self._unlike < NEVER_AGAIN else None
        if parts is None:
            return
        self._unlike += 1
        before, after = parts
        form = b"%b%%d%b" % (before.replace(b"%", b"%%"), after.replace(b"%", b"%%"))
        size = len(data) - body_bytes
        if form % body_bytes != data[:size]:  # the head ends elsewhere, or more than one message came
            return
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._form, self._bare, self.head = self._known[parts] = form, len(before) + len(after), head
        self._size = size


def _cut(data: bytes) -> tuple[bytes, bytes] | None:
    """What a head says before its length and after it; None where it says none."""
    size = data.find(b"\r\n\r\n", 0, HEAD_BYTES_MAX) + 4
    cut = _length(data, 0, size)
    if cut is None:
        return None
    start, end = cut.span(1)
    return data[:start], data[end:size]


def _digits(size: int) -> int:
    """How many digits the length of a body has that is so large together with them."""
    return len(str(size - len(str(size))))
