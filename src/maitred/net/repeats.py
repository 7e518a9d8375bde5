"""Heads that come again: on a kept connection nearly every message differs from the last in its body only.

Bytes that were once parsed to a head are not parsed again. What is compared is every byte but the digits of
the length, so nothing is let in that the parser had not let in before.
"""

from __future__ import annotations

import re
from typing import Generic, TypeVar

NEVER_AGAIN = 8
"""Heads in a row unlike the one before them, after which none is kept any more."""
HEAD_BYTES_MAX = 2 * 1024
"""A head beyond this is not kept: it would be, for as long as its connection is idle."""

Head = TypeVar("Head")

_length = re.compile(rb"\r\ncontent-length: ([0-9]{1,8})\r\n", re.IGNORECASE).search


class Repeats(Generic[Head]):
    """The last `head` of one side of a connection, cut where the digits of its length stand."""

    __slots__ = ("_after", "_before", "_unlike", "head")

    def __init__(self) -> None:
        self._before = self._after = b""
        self._unlike = 0
        self.head: Head | None = None

    def body(self, data: bytes) -> bytes | None:
        """The body, if this is exactly one message whose head is the last one but for the length."""
        before, after = self._before, self._after
        if not before or not data.startswith(before):
            return None
        start = len(before)
        end = data.find(b"\r", start, start + 9)
        digits, body_at = data[start:end], end + len(after)
        if not digits.isdigit() or not data.startswith(after, end) or len(data) - body_at != int(digits):
            return None
        self._unlike = 0
        return data[body_at:]

    def learn(self, data: bytes, head: Head, length: int | None) -> None:
        """Remember a head that the parser found in `data`, if that was all of one message of this length.

        None: it is not one that may come again.
        """
        self._before = self._after = b""
        self.head = None
        if self._unlike >= NEVER_AGAIN or not length:
            return
        self._unlike += 1
        size = data.find(b"\r\n\r\n", 0, HEAD_BYTES_MAX) + 4
        cut = _length(data, 0, size)
        # Where the parser saw the head end elsewhere, the rest is not the body that it saw.
        if cut is None or len(data) - size != length:
            return
        self._before, self._after = data[: cut.start(1)], data[cut.end(1) : size]
        self.head = head
