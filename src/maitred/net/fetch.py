"""Asking an engine a small question: one GET or POST, its whole answer, a deadline."""

from __future__ import annotations

import asyncio

from maitred.core.outcome import FailureKind
from maitred.net.client import AnswerHead, ClientConnection
from maitred.net.pool import ConnectFailed, Pool

ANSWER_BYTES_MAX = 4 * 1024 * 1024


class _Collector:
    """Reader of one small answer."""

    __slots__ = ("_bodies", "_size", "_status", "over")

    def __init__(self) -> None:
        self._bodies: list[bytes] = []
        self._size = 0
        self._status = 0
        self.over: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()

    def begin(self, head: AnswerHead, body: bytes, complete: bool) -> None:
        self._status = head.status
        self.read(body, complete)

    def read(self, body: bytes, complete: bool) -> None:
        self._bodies.append(body)
        self._size += len(body)
        if self._size > ANSWER_BYTES_MAX:
            self.failed(FailureKind.BAD_RESPONSE, f"the answer is larger than {ANSWER_BYTES_MAX} bytes")
        elif complete and not self.over.done():
            self.over.set_result((self._status, b"".join(self._bodies)))

    def failed(self, kind: FailureKind, detail: str) -> None:
        if not self.over.done():
            self.over.set_exception(ConnectFailed(kind, detail))


async def fetch(
    pool: Pool, url: str, path: str, timeout_s: float, json: bytes | None = None, lines: bytes = b""
) -> tuple[int, bytes]:
    """Status and body of `GET url+path`, or of a POST of this JSON, on a connection of its own.

    `lines` are more lines of the head, each with its CRLF. Raises ConnectFailed, also when it is late.
    """
    connection: ClientConnection | None = None
    collector: _Collector | None = None
    try:
        async with asyncio.timeout(timeout_s):
            connection = await pool.connect(url, question=True)
            collector = _Collector()
            connection.send(_request(path, connection.authority, json, lines), (), 0, collector)
            return await collector.over
    except TimeoutError:
        kind = FailureKind.FIRST_BYTE_TIMEOUT if connection else FailureKind.UNREACHABLE
        raise ConnectFailed(kind, f"no answer in {timeout_s:g} s") from None
    finally:
        collector = None  # its future names the exception, and that, by its traceback, this frame
        if connection is not None:
            connection.abort()


def _request(path: str, authority: bytes, json: bytes | None, lines: bytes) -> bytes:
    if json is None:
        return b"GET %b HTTP/1.1\r\nhost: %b\r\n%bconnection: close\r\n\r\n" % (
            path.encode(),
            authority,
            lines,
        )
    lines += b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(json), json)
    return b"POST %b HTTP/1.1\r\nhost: %b\r\nconnection: close\r\n%b" % (path.encode(), authority, lines)
