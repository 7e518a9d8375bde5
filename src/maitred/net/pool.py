"""Connections to engines, kept warm between requests: one small stack of idle ones an endpoint.

How many there may be is the core's business (the cap of an endpoint), so the pool has no limit and no
waiting of its own. The newest idle connection is used first; the others grow old and close.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
from urllib.parse import urlsplit

from maitred.core.outcome import FailureKind
from maitred.net.client import ClientConnection, Patience
from maitred.net.seams import Network
from maitred.net.sweep import Sweep

LOCAL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL)
"""What this machine lacks; no endpoint is to blame."""


class ConnectFailed(Exception):  # noqa: N818 - names what happened
    """No connection: refused, unreachable, too slow, or no agreement on TLS."""

    def __init__(self, kind: FailureKind, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


class Pool:
    """Connections by endpoint URL ("http://host:port").

    `patience` and `connect_s` (seconds) hold for connections that are opened from now on.
    """

    def __init__(self, network: Network, sweep: Sweep, patience: Patience, connect_s: float = 2.0) -> None:
        self._network = network
        self._sweep = sweep
        self.patience = patience
        self.connect_s = connect_s
        self._idle: dict[str, list[ClientConnection]] = {}
        self._open: dict[int, ClientConnection] = {}
        self._tls: ssl.SSLContext | None = None

    @property
    def open(self) -> int:
        """Connections that are not closed, idle ones included."""
        return len(self._open)

    @property
    def idle(self) -> int:
        """Connections that wait for a request."""
        return sum(map(len, self._idle.values()))

    def silent_s(self, url: str, now: float) -> float:
        """For how long this endpoint has owed answers and said nothing at all; 0.0 where it owes none."""
        there = [connection for connection in self._open.values() if connection.url == url]
        owing = [connection.sent_at for connection in there if connection.busy]
        return now - max(min(owing), *(connection.heard_at for connection in there)) if owing else 0.0

    def take(self, url: str) -> ClientConnection | None:
        """An idle connection to this endpoint, the newest; None when there is none."""
        idle = self._idle.get(url)
        return idle.pop() if idle else None

    async def connect(self, url: str) -> ClientConnection:
        """A fresh connection. Raises ConnectFailed; leaves nothing behind when cancelled."""
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        tls = self._context() if secure else None
        connection = ClientConnection(url, self._sweep, self.patience, self)
        try:
            async with asyncio.timeout(self.connect_s):
                return await self._network.connect(lambda: connection, parts.hostname or "", port, tls)
        except asyncio.CancelledError:
            connection.abandon()
            raise
        except ssl.SSLError as error:
            raise ConnectFailed(FailureKind.TLS, error.reason or str(error)) from error
        except TimeoutError as error:
            connection.abandon()
            raise ConnectFailed(FailureKind.CONNECT, f"no connection in {self.connect_s:g} s") from error
        except UnicodeError as error:  # the resolver's, of what can be no name
            raise ConnectFailed(FailureKind.CONNECT, f"{parts.hostname!r} is no host name") from error
        except OSError as error:
            kind = FailureKind.LOCAL_LIMIT if error.errno in LOCAL else FailureKind.CONNECT
            raise ConnectFailed(kind, error.strerror or str(error)) from error

    def close(self) -> None:
        """Close every connection at once, busy ones included."""
        for connection in list(self._open.values()):
            connection.abort()

    def opened(self, connection: ClientConnection) -> None:
        """See Owner."""
        self._open[id(connection)] = connection

    def freed(self, connection: ClientConnection) -> None:
        """See Owner."""
        self._idle.setdefault(connection.url, []).append(connection)

    def lost(self, connection: ClientConnection) -> None:
        """See Owner."""
        self._open.pop(id(connection), None)
        idle = self._idle.get(connection.url)
        if idle is not None:
            if connection in idle:
                idle.remove(connection)
            if not idle:
                del self._idle[connection.url]

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls
