"""What a turn has to do with one MCP server: its tools, and calls of them.

A server that hands out sessions keeps something between the calls of one turn, and nothing between turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from msgspec import Raw

import maitred
from maitred.net.pool import Pool
from maitred.responses.mcp.asking import ask
from maitred.responses.mcp.server import Failed, Server, protocol_failed
from maitred.wire import mcp
from maitred.wire.mcp import NotMcp, Result, RpcError, Tool

TOOLS_MAX, PAGES_MAX = 512, 64
BYE_S = 5.0
CLIENT: dict[str, Any] = {"name": "maitred", "version": maitred.__version__}

_T = TypeVar("_T")


class Session:
    """One server, for one turn. Nothing is sent before something is asked. All methods raise Failed."""

    def __init__(self, pool: Pool, server: Server) -> None:
        self.server = server
        self._pool = pool
        self._opening = asyncio.Lock()
        self._version = ""
        self._id = b""
        self._last = 0

    @property
    def is_open(self) -> bool:
        """Whether the server keeps something for it."""
        return bool(self._id)

    async def tools(self) -> list[Tool]:
        """All tools that it has."""
        found: list[Tool] = []
        cursor: str | None = None
        for _ in range(PAGES_MAX):
            params = {} if cursor is None else {"cursor": cursor}
            tools, cursor = self._read(mcp.read_tools, await self._request(mcp.LIST, params))
            found += tools
            if cursor is None and len(found) <= TOOLS_MAX:
                return found
            if len(found) > TOOLS_MAX:
                break
        raise protocol_failed("protocol_error", 0, f"the server has more than {TOOLS_MAX} tools")

    async def call(self, tool: str, arguments: dict[str, Raw]) -> Result:
        """Call one."""
        params = {"name": tool, "arguments": arguments}
        return self._read(mcp.read_result, await self._request(mcp.CALL, params, tool))

    async def end(self) -> None:
        """Tell the server that nothing more comes."""
        if self._id:
            with suppress(Failed, TimeoutError):
                async with asyncio.timeout(BYE_S):
                    await ask(self._pool, self.server, b"DELETE", self._lines(), b"", None)

    async def _request(self, method: str, params: dict[str, Any], tool: str = "") -> Raw:
        """Ask for this, on a session if the server wants one."""
        async with self._opening:
            if not self._version:
                await self._open()
        found = await self._ask(method, params, tool)
        if isinstance(found, RpcError):
            raise protocol_failed("protocol_error", found.code, found.message)
        return found

    async def _open(self) -> None:
        """Shake hands; a server that knows no handshake any more says so."""
        found = await self._ask(mcp.INITIALIZE, mcp.handshake(CLIENT))
        if isinstance(found, RpcError):
            if found.code not in (mcp.UNSUPPORTED_VERSION, mcp.METHOD_NOT_FOUND):
                raise protocol_failed("protocol_error", found.code, found.message)
            self._version = mcp.STATELESS_VERSION
            return
        self._version = self._read(mcp.read_welcome, found)
        await self._ask(mcp.INITIALIZED, {})

    async def _ask(self, method: str, params: dict[str, Any], tool: str = "") -> Raw | RpcError:
        self._last += 1
        request_id = None if method == mcp.INITIALIZED else self._last
        body = mcp.request(request_id, method, params, CLIENT, self._version)
        found, answer = await ask(
            self._pool, self.server, b"POST", self._lines(method, tool), body, request_id
        )
        if method == mcp.INITIALIZE:
            self._id = answer.session
        return found

    def _lines(self, method: str = "", tool: str = "") -> bytes:
        """What the head of a request says of the session, or where there are none of the request itself."""
        lines = b"mcp-session-id: %b\r\n" % self._id if self._id else b""
        if self._version:
            lines += b"mcp-protocol-version: %b\r\n" % self._version.encode()
        if self._version == mcp.STATELESS_VERSION:
            lines += b"mcp-method: %b\r\n" % method.encode()
            if tool and tool.isascii() and tool.isprintable():
                lines += b"mcp-name: %b\r\n" % tool.encode()
        return lines

    @staticmethod
    def _read(read: Callable[[Raw], _T], result: Raw) -> _T:
        try:
            return read(result)
        except NotMcp as wrong:
            raise protocol_failed("protocol_error", 0, str(wrong)) from None
