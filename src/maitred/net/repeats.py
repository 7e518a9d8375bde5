"""Heads that come again: on a kept connection nearly every request differs from the last in its body only.

Bytes that were once parsed to a head are not parsed again. What is compared is every byte but the digits of
the length, so nothing is let in that the parser had not let in before.
"""

from __future__ import annotations

import re

from maitred.net.exchange import RequestHead

NEVER_AGAIN = 8
"""Heads in a row unlike the one before them, after which none is kept any more."""
HEAD_BYTES_MAX = 2 * 1024
"""A head beyond this is not kept: it would be, for as long as its connection is idle."""

_length = re.compile(rb"\r\ncontent-length: ([0-9]{1,8})\r\n", re.IGNORECASE).search


class Repeats:
    """The last head of one connection, cut where the digits of its length stand."""

    __slots__ = ("_after", "_before", "_head", "_unlike")

    def __init__(self) -> None:
        self._before = self._after = b""
        self._head: RequestHead | None = None
        self._unlike = 0

    def read(self, data: bytes) -> tuple[RequestHead, bytes] | None:
        """Head and body, if this is exactly one request whose head is the last one but for the length."""
        known = self._head
        if known is None or not data.startswith(self._before):
            return None
        start, after = len(self._before), self._after
        end = data.find(b"\r", start, start + 9)
        digits, body_at = data[start:end], end + len(after)
        if not digits.isdigit() or not data.startswith(after, end):
            return None
        length = int(digits)
        if len(data) - body_at != length:
            return None
        self._unlike = 0
        return RequestHead(known.method, known.path, known.fields, True, length, True), data[body_at:]

    def learn(self, data: bytes, head: RequestHead) -> None:
        """Remember a head that the parser found in `data`, if that was all of one plain request."""
        self._before = self._after = b""
        self._head = None
        if self._unlike >= NEVER_AGAIN or not head.keep_alive or not head.http11 or not head.length:
            return
        self._unlike += 1
        size = data.find(b"\r\n\r\n", 0, HEAD_BYTES_MAX) + 4
        cut = _length(data, 0, size)
        # Where the parser saw the head end elsewhere, the rest is not the body that it saw.
        if cut is None or len(data) - size != head.length:
            return
        self._before, self._after = data[: cut.start(1)], data[cut.end(1) : size]
        self._head = head
