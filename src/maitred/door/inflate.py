"""Compressed request bodies: gzip only, never larger than a plain body may be, never in the loop's way.

What may turn out large is inflated in one thread of its own, so that a bomb costs a core for a moment but
no stream a word. Engines get plain bodies.
"""

from __future__ import annotations

import asyncio
import zlib
from concurrent.futures import ThreadPoolExecutor

from maitred.core.outcome import Outcome, Refusal
from maitred.net.exchange import RequestHead

GZIP = (b"gzip", b"x-gzip")
INLINE_BYTES_MAX = 16 * 1024
INLINE_INFLATED_MAX = 256 * 1024
"""What is at most this, before and after, takes less time than a thread is worth."""
RATIO_MAX = 100
"""Text shrinks to a tenth or so; what grows more than this, beyond INLINE_INFLATED_MAX, means harm."""
WAITING_MAX = 32
"""Bodies in the thread's queue; each may be as large as a body may be."""
MEMBERS_MAX = 1024
"""A gzip file may have several members, but each costs time even if it is empty."""
PIECE_BYTES = 64 * 1024
"""zlib copies what it leaves of its input, so it is never given all of a body."""


def packed(head: RequestHead) -> bool:
    """Whether the body comes compressed (in a way we understand: `check_media` let no other in)."""
    fields = head.fields
    return b"content-encoding" in fields and fields[b"content-encoding"].lower() in GZIP


def inflated(body: bytes, bytes_max: int) -> bytes | None:
    """The plain bytes; None if they are more than `bytes_max`. Raises Refusal where it is not whole gzip."""
    rest, parts, room, members = memoryview(body), list[bytes](), bytes_max, 1
    member = zlib.decompressobj(zlib.MAX_WBITS | 16)
    while rest:
        if member.eof:
            member, members = zlib.decompressobj(zlib.MAX_WBITS | 16), members + 1
        piece = rest[:PIECE_BYTES]
        try:
            part = member.decompress(piece, room + 1)
        except zlib.error as error:
            raise Refusal(Outcome.BAD_REQUEST, f"the body is not valid gzip: {error}") from None
        parts.append(part)
        room -= len(part)
        rest = rest[len(piece) - len(member.unused_data) :]
        if room < 0:
            return None
        if members > MEMBERS_MAX:
            raise Refusal(Outcome.BAD_REQUEST, f"the body is more than {MEMBERS_MAX} gzip members")
    if not member.eof:
        raise Refusal(Outcome.BAD_REQUEST, "the body is not valid gzip: it ends too early")
    return b"".join(parts)


class Inflater:
    """Inflates bodies to at most `bytes_max` bytes, large ones one after the other. `close` it at the end."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="inflate")
        self._waiting = 0

    async def __call__(self, body: bytes) -> bytes:
        """The plain body. Raises Refusal: broken, too large, or too many wait."""
        most = min(self.bytes_max, max(INLINE_INFLATED_MAX, RATIO_MAX * len(body)))
        plain = None
        if len(body) <= INLINE_BYTES_MAX:
            plain = inflated(body, min(most, INLINE_INFLATED_MAX))
        if plain is None and most > INLINE_INFLATED_MAX:
            plain = await self._in_thread(body, most)
        if plain is None:
            raise Refusal(Outcome.BODY_TOO_LARGE, f"the body inflates to more than {most} bytes")
        return plain

    async def _in_thread(self, body: bytes, bytes_max: int) -> bytes | None:
        if self._waiting >= WAITING_MAX:
            raise Refusal(Outcome.QUEUE_FULL, "too many compressed bodies are waiting", retry_after_s=1.0)
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, inflated, body, bytes_max)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Inflate nothing more; the thread ends with what it has in hand."""
        self._thread.shutdown(wait=False, cancel_futures=True)
