"""A network that reaches only public addresses: for URLs that clients name.

A name is resolved once for each connection, and every address that it has must be public; the connection
goes to one of those very addresses, so that a name which changes in between (DNS rebinding) gains nothing.
The certificate must still be the name's.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias

from maitred.net.seams import Listener, Network, P

Resolve: TypeAlias = Callable[[str, int], Awaitable[list[str]]]

_TUNNELS = tuple(map(IPv6Network, ("2001::/32", "2002::/16", "64:ff9b::/96", "64:ff9b:1::/48", "::/96")))
"""Addresses of IPv6 that lead to some of IPv4, which may be any."""


class NotPublic(OSError):  # noqa: N818 - names what happened
    """A host has an address that is not public; which, is not told."""


class Guarded(Network):
    """A Network that connects to public addresses only."""

    def __init__(
        self,
        network: Network,
        resolve: Resolve | None = None,
        may: Callable[[str], bool] | None = None,
    ) -> None:
        self._network = network
        self._resolve = resolve or addresses
        self._may = may or is_public

    async def connect(
        self,
        factory: Callable[[], P],
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
    ) -> P:
        """Connect to the first address of `host` that answers. Raises NotPublic before any connection."""
        found = await self._resolve(host, port)
        if not found or not all(map(self._may, found)):
            raise NotPublic("the host has an address that is not public")
        for address in found[:-1]:
            try:
                return await self._network.connect(factory, address, port, tls, server_name or host)
            except ssl.SSLError:
                raise
            except OSError:  # refused, or no way there: a machine without IPv6
                continue
        return await self._network.connect(factory, found[-1], port, tls, server_name or host)

    async def listen(
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int, backlog: int = 4096
    ) -> Listener:
        """See Network."""
        return await self._network.listen(factory, host, port, backlog)


async def addresses(host: str, port: int) -> list[str]:
    """All addresses of a host, as the system resolves it. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(place[0]) for *_, place in found))


def is_public(address: str) -> bool:
    """Whether this is an address of the public internet: no private, local, shared or reserved one."""
    try:
        read = ip_address(address)
    except ValueError:  # with a zone: link-local
        return False
    if isinstance(read, IPv6Address) and read.ipv4_mapped is not None:
        read = read.ipv4_mapped
    tunnelled = isinstance(read, IPv6Address) and any(read in net for net in _TUNNELS)
    return _is_global(read) and not tunnelled


def _is_global(address: IPv4Address | IPv6Address) -> bool:
    site_local = isinstance(address, IPv6Address) and address.is_site_local
    return address.is_global and not address.is_multicast and not address.is_reserved and not site_local
