"""Connections to engines, kept warm between requests: one small stack of idle ones an endpoint.

How many there may be is the core's business (the cap of an endpoint), so the pool has no limit and no
waiting of its own. The newest idle connection is used first; the others grow old and close.
"""

from __future__ import annotations

import asyncio
import errno
import re
import socket
import ssl
from collections.abc import Callable
from functools import lru_cache
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from maitred.core.outcome import FailureKind
from maitred.net.burst import AtOnce, Burst
from maitred.net.client import AnswerHead, ClientConnection, Patience
from maitred.net.repeats import Known
from maitred.net.seams import Network
from maitred.net.sweep import Sweep

LOCAL = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL}
"""What this machine lacks; no endpoint is to blame."""
REFUSED = {errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED}
"""What a machine says that is there, and has nobody who takes connections."""
RESOLVE_S = 1.0
"""How long a name may take to resolve when it is asked whether it still does."""


class ConnectFailed(Exception):  # noqa: N818 - names what happened
    """No connection: refused, unreachable, too slow, a name without address, or no agreement on TLS."""

    def __init__(self, kind: FailureKind, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


class Pool:
    """Connections by endpoint URL ("http://host:port").

    `patience` and `connect_s` (seconds) hold for connections that are opened from now on. Requests leave
    with the `burst`; without one each leaves at once.
    """

    def __init__(
        self,
        network: Network,
        sweep: Sweep,
        patience: Patience,
        connect_s: float = 2.0,
        burst: Burst | None = None,
    ) -> None:
        self._network = network
        self._sweep = sweep
        self._burst = burst or AtOnce()
        self.patience = patience
        self.connect_s = connect_s
        self.heads: Known[AnswerHead] = {}
        self.streams: dict[bytes, AnswerHead] = {}
        self._idle: dict[str, list[ClientConnection]] = {}
        self._open: dict[str, dict[ClientConnection, None]] = {}
        self._heard_at: dict[str, float] = {}  # by connections closed since; of URLs with open ones only
        self._questions = _Questions()
        self._tls: ssl.SSLContext | None = None

    @property
    def open(self) -> int:
        """Connections that are not closed, idle ones included."""
        return sum(map(len, self._open.values())) + len(self._questions.open)

    @property
    def idle(self) -> int:
        """Connections that wait for a request."""
        return sum(map(len, self._idle.values()))

    def silent_s(self, url: str, now: float) -> float:
        """For how long this endpoint has owed answers and said nothing at all; 0.0 where it owes none.

        Questions do not count: an engine may list its models long after it made its last token.
        """
        there = self._open.get(url, ())
        owing = [connection.sent_at for connection in there if connection.busy]
        if not owing:
            return 0.0
        heard_at = max(connection.heard_at for connection in there)
        return now - max(min(owing), heard_at, self._heard_at.get(url, 0.0))

    def take(self, url: str) -> ClientConnection | None:
        """An idle connection to this endpoint, the newest; None when there is none."""
        idle = self._idle.get(url)
        return idle.pop() if idle else None

    async def connect(self, url: str, *, question: bool = False) -> ClientConnection:
        """A fresh connection. Raises ConnectFailed; leaves nothing behind when cancelled.

        One for a `question` of the gateway's own is used once.
        """
        host, port, secure = _address(url)
        tls = self._context() if secure else None
        owner = self._questions if question else self
        connection = ClientConnection(url, self._sweep, self._burst, self.patience, owner)
        try:
            with _Limit(self.connect_s):
                return await self._network.connect(lambda: connection, host, port, tls)
        except asyncio.CancelledError:
            connection.abandon()
            raise
        except ssl.SSLError as error:
            raise ConnectFailed(FailureKind.TLS, error.reason or str(error)) from error
        except TimeoutError as error:
            connection.abandon()
            kind = FailureKind.UNREACHABLE if await _resolves(host) else FailureKind.UNRESOLVED
            raise ConnectFailed(kind, f"no connection in {self.connect_s:g} s") from error
        except UnicodeError as error:  # the resolver's, of what can be no name
            raise ConnectFailed(FailureKind.UNRESOLVED, f"{host!r} is no host name") from error
        except OSError as error:
            kind = _kind(error)
            raise ConnectFailed(kind, error.strerror or str(error) or kind.label) from error

    def close(self) -> None:
        """Close every connection at once, busy ones included."""
        for connections in (*self._open.values(), self._questions.open):
            for connection in list(connections):
                connection.abort()

    def opened(self, connection: ClientConnection) -> Callable[[ClientConnection], object]:
        """See Owner."""
        self._open.setdefault(connection.url, {})[connection] = None
        return self._idle.setdefault(connection.url, []).append

    def lost(self, connection: ClientConnection) -> None:
        """See Owner."""
        url = connection.url
        there, idle = self._open[url], self._idle[url]
        del there[connection]
        if connection in idle:
            idle.remove(connection)
        if there:
            self._heard_at[url] = max(self._heard_at.get(url, 0.0), connection.heard_at)
        else:
            del self._open[url], self._idle[url]
            self._heard_at.pop(url, None)

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls


class _Limit:
    """What `asyncio.timeout` is, for less than half: inside, this task may be for so many seconds."""

    __slots__ = ("_cancelling", "_late", "_task", "_timer")

    def __init__(self, limit_s: float) -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None  # noqa: S101 - a coroutine that runs has a task
        self._task = task
        self._cancelling = task.cancelling()
        self._late = False
        self._timer = loop.call_later(limit_s, self._expire)

    def _expire(self) -> None:
        self._late = True
        self._task.cancel()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: Any) -> None:
        """Raise TimeoutError where nothing but the limit has cancelled the task."""
        self._timer.cancel()
        if self._late and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error


class _Questions:
    """Owner of connections that carry one question each: they tell nothing of work, and are not kept."""

    def __init__(self) -> None:
        self.heads: Known[AnswerHead] = {}
        self.streams: dict[bytes, AnswerHead] = {}
        self.open: dict[ClientConnection, None] = {}

    def opened(self, connection: ClientConnection) -> Callable[[ClientConnection], object]:
        self.open[connection] = None
        return ClientConnection.abort

    def lost(self, connection: ClientConnection) -> None:
        del self.open[connection]


@lru_cache(maxsize=1024)
def _address(url: str) -> tuple[str, int, bool]:
    """Host and port of an endpoint, and whether it speaks TLS."""
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    return parts.hostname or "", parts.port or (443 if secure else 80), secure


def _kind(error: OSError) -> FailureKind:
    """What a failed connect was. Of several addresses asyncio tells all errors, but in one text."""
    if isinstance(error, socket.gaierror):
        return FailureKind.UNRESOLVED
    numbers = {error.errno} if error.errno else set(map(int, re.findall(r"\[Errno (\d+)\]", str(error))))
    if isinstance(error, ConnectionError) or numbers & REFUSED:
        return FailureKind.CONNECT
    return FailureKind.LOCAL_LIMIT if numbers and numbers <= LOCAL else FailureKind.UNREACHABLE


async def _resolves(host: str) -> bool:
    """Whether a host has an address. Where a connect was late, nobody else tells what it waited for."""
    try:
        ip_address(host)
    except ValueError:
        try:
            async with asyncio.timeout(RESOLVE_S):
                return bool(await asyncio.get_running_loop().getaddrinfo(host, None))
        except OSError:
            return False
    return True
