"""The two seams to the operating system's network: opening a connection and listening for them.

Only `Sockets` calls `create_connection` and `create_server`. Everything above is given a `Network`, so the
same protocols run on real sockets and, in virtual time, on `maitred.net.memory`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Protocol, TypeVar

P = TypeVar("P", bound=asyncio.Protocol)


class Listener(Protocol):
    """An open port."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port in use; the port is the real one where 0 was asked for."""

    def close(self) -> None:
        """Accept nothing more from now on; connections already accepted live on. May be repeated."""


class Network(Protocol):
    """Where connections come from."""

    async def connect(
        self,
        factory: Callable[[], P],
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
    ) -> P:
        """Connect, and return the factory's protocol once `connection_made` has run.

        `server_name` is whom the certificate must name where that is not `host`. There is no timeout:
        callers cancel. Raises OSError (ssl.SSLError is one) where nothing answers.
        """

    async def listen(
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int, backlog: int = 4096
    ) -> Listener:
        """Accept connections, one protocol each. Raises OSError where the port is taken."""


class Sockets(Network):
    """Real TCP on the running loop. Both asyncio and uvloop set TCP_NODELAY on every connection."""

    async def connect(
        self,
        factory: Callable[[], P],
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
    ) -> P:
        """Connect by TCP, and by TLS verified against the server's name where a context is given."""
        loop = asyncio.get_running_loop()
        named = server_name if tls is not None else None
        _, protocol = await loop.create_connection(factory, host, port, ssl=tls, server_hostname=named)
        return protocol

    async def listen(
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int, backlog: int = 4096
    ) -> Listener:
        """Listen at once. A port whose last connections still linger may be taken again."""
        loop = asyncio.get_running_loop()
        return _Port(await loop.create_server(factory, host, port, backlog=backlog, reuse_address=True))


class _Port:
    """The real listener."""

    __slots__ = ("_server", "address")

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self.address: tuple[str, int] = server.sockets[0].getsockname()[:2]

    def close(self) -> None:
        """Close the listening sockets."""
        self._server.close()
