"""Heads that come again: on a kept connection nearly every message differs from the last in its body only.

Bytes that were once parsed to a head are not parsed again. What is compared is every byte, with the length
that the body has, so nothing is let in that the parser had not let in before.
"""

from __future__ import annotations

import re
from typing import Any, Generic, TypeVar

NEVER_AGAIN = 8
"""Heads in a row unlike the one before them, after which none is kept any more."""
HEAD_BYTES_MAX = 2 * 1024
"""A head beyond this is not kept: it would be, for as long as its connection is idle."""

Head = TypeVar("Head")
UNKNOWN: Any = None

_length = re.compile(rb"\r\ncontent-length: ([0-9]{1,8})\r\n", re.IGNORECASE).search


class Repeats(Generic[Head]):
    """The last `head` of one side of a connection, as a form to put another length into.

    `_size` bytes it has with as many digits as the last length had, `_bare` without any.
    """

    __slots__ = ("_bare", "_form", "_size", "_unlike", "head")

    def __init__(self) -> None:
        self._form = b""
        self._size = self._bare = 0
        self._unlike = 0
        self.head: Head = UNKNOWN

    def body(self, data: bytes) -> bytes | None:
        """The body, if this is exactly one message whose head is the last one but for the length."""
        size = self._size
        if not size:
            return None
        head = self._form % (len(data) - size)
        if len(head) != size:  # its length has more digits than the last one, or fewer
            size = self._size = self._bare + _digits(len(data) - self._bare)
            head = self._form % (len(data) - size)
            if len(head) != size:
                return None
        if not data.startswith(head):
            return None
        self._unlike = 0
        return data[size:]

    def learn(self, data: bytes, head: Head, length: int | None) -> None:
        """Remember a head that the parser found in `data`, if that was all of one message of this length.

        None: it is not one that may come again.
        """
        self._size = 0
        self.head = UNKNOWN
        if self._unlike >= NEVER_AGAIN or not length:
            return
        self._unlike += 1
        size = data.find(b"\r\n\r\n", 0, HEAD_BYTES_MAX) + 4
        cut = _length(data, 0, size)
        # Where the parser saw the head end elsewhere, the rest is not the body that it saw.
        if cut is None or len(data) - size != length:
            return
        start, end = cut.span(1)
        self._form = b"%d".join([part.replace(b"%", b"%%") for part in (data[:start], data[end:size])])
        self._size, self._bare = size, size - (end - start)
        self.head = head


def _digits(size: int) -> int:
    """How many digits the length of a body has that is so large together with them."""
    return len(str(size - len(str(size))))
