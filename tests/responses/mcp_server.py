"""MCP servers for tests: real ones, of the reference implementation, and some that nobody wants to meet."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ToolAnnotations

from maitred.config.mcp import McpServer
from maitred.net.seams import Listener, Network
from tests.proxy.upstream import DONE, FINISH, MODEL, ROLE, Plan, event, stream, whole

CANARY = "canary-0123456789abcdef"
"""A token that must be nowhere but in the head of requests to its server."""
Calls = tuple[str, dict[str, Any]]


def made(name: str, seen: list[dict[str, str]]) -> MCPServer:
    """A server with some tools; `seen` are the headers of the calls of `whoami`."""
    server = MCPServer(name, log_level="CRITICAL")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    def name_of() -> str:
        return name

    @server.tool()
    def boom() -> str:
        raise ValueError("it broke")

    @server.tool()
    def big(chars: int) -> str:
        return "x" * chars

    @server.tool()
    def whoami(ctx: Context) -> str:
        request = ctx.request_context.request
        headers = dict(request.headers) if request is not None else {}
        seen.append(headers)
        return f"you said {headers.get('authorization')} and {headers.get('x-team')}"

    return server


class Real:
    """A server that runs. `seen`: see `made`."""

    def __init__(self, url: str, seen: list[dict[str, str]]) -> None:
        self.url = url
        self.seen = seen

    def said(self, **more: Any) -> McpServer:
        """As the operator writes it; its calls need nobody's word."""
        return McpServer(self.url, **{"approval": "never", **more})


@contextmanager
def real(name: str = "real", **how: Any) -> Iterator[Real]:
    """A real server in a thread of its own."""
    seen: list[dict[str, str]] = []
    app = made(name, seen).streamable_http_app(**how)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", ws="none", lifespan="on"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
        port = server.servers[0].sockets[0].getsockname()[1]
        yield Real(f"http://127.0.0.1:{port}/mcp", seen)
    finally:
        server.should_exit = True
        thread.join()


Told = Callable[[str, dict[str, Any]], bytes | None]


class Odd(asyncio.Protocol):
    """One connection of a server that answers by script."""

    def __init__(self, answer: Told) -> None:
        self._answer = answer
        self._got = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, over, rest = self._got.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
        if not over or len(rest) < length:
            return
        self._got = rest[length:]
        said = self._answer(head.decode(), json.loads(rest[:length] or b"{}"))
        if said is not None:
            self._transport.write(said)


async def odd(network: Network, answer: Told, host: str = "127.0.0.1", port: int = 0) -> tuple[str, Listener]:
    """A server that answers heads and bodies with these bytes, None for never; its URL, and what to close."""
    listener = await network.listen(lambda: Odd(answer), host, port)
    return f"http://{host}:{listener.address[1]}/mcp", listener


def behaves(calls: Told, tools: Sequence[str] = ("t",), era: str = "2025-06-18") -> Told:
    """A server that does all well but for calls."""

    def answer(head: str, body: dict[str, Any]) -> bytes | None:
        match body.get("method"):
            case "initialize":
                return rpc({"protocolVersion": era, "capabilities": {}, "serverInfo": {}}, body)
            case "tools/list":
                return rpc(
                    {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in tools]}, body
                )
            case "tools/call":
                return calls(head, body)
        return whole(b"", status=202)

    return answer


def rpc(result: Any, body: dict[str, Any]) -> bytes:
    """A whole answer to this request."""
    return whole(json.dumps({"jsonrpc": "2.0", "id": body.get("id"), "result": result}).encode())


def rpc_error(code: int, message: str, status: int = 200) -> bytes:
    """A whole answer that refuses whatever was asked."""
    error = {"code": code, "message": message}
    return whole(json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode(), status=status)


# -- models that call ---------------------------------------------------------------------------------


def _calls(calls: tuple[Calls, ...]) -> list[dict[str, Any]]:
    return [
        {
            "index": at,
            "id": f"call_{at}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for at, (name, arguments) in enumerate(calls)
    ]


def asks_for(*calls: Calls) -> Plan:
    """A whole answer that calls these functions."""
    message = {"role": "assistant", "content": None, "tool_calls": _calls(calls)}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    return (whole(json.dumps({"id": "c", "model": MODEL, "choices": [choice], "usage": usage}).encode()),)


def streams_for(*calls: Calls) -> Plan:
    """A stream that calls them."""
    told = [
        event(json.dumps({"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}))
        for call in _calls(calls)
    ]
    return stream(ROLE, *told, FINISH, DONE)
