"""The MCP servers that turns may use: the operator's by label, clients' own where their hosts are listed.

Secrets are read when the configuration is, and go to their server only. Lists of the operator's servers are
kept for a while; a client's own depend on its token, so nothing of them is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from urllib.parse import urlsplit

from msgspec import Struct

from maitred.config.mcp import Mcp, McpServer, is_header, parse_server
from maitred.config.tree import Config
from maitred.net.client import Patience
from maitred.net.guarded import Guarded
from maitred.net.pool import Pool
from maitred.net.seams import Network
from maitred.net.sweep import Sweep
from maitred.responses.mcp.rules import Wanted
from maitred.responses.mcp.server import Server, head_lines, http_failed, place
from maitred.responses.mcp.session import Session
from maitred.responses.mcp.tools import Tools
from maitred.wire.mcp import Tool
from maitred.wire.responses.create import Create
from maitred.wire.responses.items import McpApprovalResponse, Mint
from maitred.wire.responses.reading import refuse
from maitred.wire.responses.tools import McpTool

CONNECT_S = 5.0
LONG_S = 24 * 3600.0
"""A call has a timeout of its own, so its connection needs none."""
SECRET_CHARS_MAX = 8192
HEADERS_MAX = 32


class _List(Struct, frozen=True):
    tools: list[Tool]
    until: float


class Servers:
    """All of them, in one gateway. `observed(server, outcome, seconds)` counts calls.

    `network` reaches the operator's servers, `guarded` those of clients; `clock` is monotonic. Raises
    ValueError where a secret cannot be had.
    """

    def __init__(
        self,
        config: Config,
        network: Network,
        sweep: Sweep,
        clock: Callable[[], float],
        environ: Mapping[str, str],
        observed: Callable[[str, str, float], None],
        guarded: Network | None = None,
    ) -> None:
        patience = Patience(LONG_S, LONG_S)
        self.clock = clock
        self.observed = observed
        self._environ = environ
        self._pool = Pool(network, sweep, patience, CONNECT_S)
        self._guarded = Pool(guarded or Guarded(network), sweep, patience, CONNECT_S)
        self._ending: set[asyncio.Task[None]] = set()
        self.apply(config)

    def apply(self, config: Config) -> None:
        """Go by this configuration from now on; turns that run go on by theirs."""
        servers = {label: self._server(label, server) for label, server in config.mcp.servers.items()}
        self.settings: Mcp = config.mcp
        self.running = asyncio.Semaphore(config.mcp.running_max)
        self._config = config
        self._servers = servers
        self._lists: dict[str, _List] = {}

    async def close(self) -> None:
        """Close all connections."""
        for task in self._ending:
            task.cancel()
        await asyncio.gather(*self._ending, return_exceptions=True)
        self._pool.close()
        self._guarded.close()

    # -- what a turn asks for ---------------------------------------------------------------------

    def tools(self, create: Create, tenant: str, mint: Mint) -> Tools | None:
        """Those that a request wants, None where it wants none. Raises Refusal."""
        asked = [(at, tool) for at, tool in enumerate(create.tools) if isinstance(tool, McpTool)]
        approves = any(isinstance(item, McpApprovalResponse) for item in create.input.items)
        if not asked and not approves:
            return None
        wanted = [self._wanted(tool, f"tools[{at}]", tenant, create) for at, tool in asked]
        return Tools(self, wanted, create, mint)

    def pool(self, server: Server) -> Pool:
        """By what it is reached."""
        return self._guarded if server.clients else self._pool

    async def tools_of(self, session: Session) -> list[Tool]:
        """The tools of its server. Raises Failed."""
        server = session.server
        known = self._lists.get(server.label)
        if known is not None and known.until > self.clock():
            return known.tools
        try:
            async with asyncio.timeout(server.timeout_s), self.running:
                tools = await session.tools()
        except TimeoutError:
            raise http_failed("timeout", 504, f"no answer in {server.timeout_s:g} s") from None
        if self._servers.get(server.label) is server:
            self._lists[server.label] = _List(tools, self.clock() + server.list_ttl_s)
        return tools

    def end(self, sessions: Iterable[Session]) -> None:
        """A turn needs these no longer; servers are told so beside it."""
        for session in sessions:
            if session.is_open:
                task = asyncio.get_running_loop().create_task(session.end())
                self._ending.add(task)
                task.add_done_callback(self._ending.discard)

    # -- who may be asked -------------------------------------------------------------------------

    def _server(self, label: str, said: McpServer) -> Server:
        token = None if said.authorization is None else said.authorization.reveal(self._environ, 1)
        headers = {name: secret.reveal(self._environ, 1) for name, secret in said.headers.items()}
        lines, secrets = head_lines(token, headers)
        return _made(label, said, lines, secrets)

    def _wanted(self, tool: McpTool, at: str, tenant: str, create: Create) -> Wanted:
        config, label = self._config, tool.server_label
        if isinstance(tool.server_url, str):
            return Wanted(tool, self._clients(tool, tool.server_url, at, create))
        for name in ("authorization", "headers"):
            if getattr(tool, name):
                refuse(
                    "the server of a label is sent what the operator says, and nothing else", f"{at}.{name}"
                )
        labels = config.tenants.get(tenant, config.default_tenant).mcp
        server = self._servers.get(label)
        if server is None or (labels is not None and label not in labels):
            known = ", ".join(known for known in self._servers if labels is None or known in labels)
            refuse(f"no server has this label; there are {known or 'none'}", f"{at}.server_label")
        said = config.mcp.servers[label]
        return Wanted(tool, server, said.tools, said.approval)

    def _clients(self, tool: McpTool, url: str, at: str, create: Create) -> Server:
        """A server that a client brings. No message repeats what it says of it."""
        host = ""
        try:
            parts = urlsplit(parse_server(url))
            host = (parts.hostname or "").rstrip(".")
        except ValueError:
            refuse("this is no URL of a server", f"{at}.server_url")
        if not any(host == known or host.endswith(f".{known}") for known in self.settings.hosts):
            refuse(
                "servers of this host may not be used; name one by its server_label alone", f"{at}.server_url"
            )
        if parts.scheme != "https":
            refuse("the scheme must be https", f"{at}.server_url")
        if tool.server_label in self._servers:
            refuse("this is the label of a server that needs no server_url", f"{at}.server_label")
        token = tool.authorization if isinstance(tool.authorization, str) else None
        headers = tool.headers if isinstance(tool.headers, dict) else {}
        if (token or headers or parts.query) and create.said.background:
            refuse("what runs in the background would have to keep secrets", at)
        if token is not None and (not _is_value(token) or " " in token):
            refuse("this is no token", f"{at}.authorization")
        if (
            len(headers) > HEADERS_MAX
            or not all(map(is_header, headers))
            or not all(map(_is_value, headers.values()))
        ):
            refuse("these are headers that cannot be sent", f"{at}.headers")
        lines, secrets = head_lines(token, headers)
        return _made(tool.server_label, McpServer(url), lines, secrets, clients=True)


def _made(
    label: str, said: McpServer, lines: bytes, secrets: tuple[bytes, ...], *, clients: bool = False
) -> Server:
    origin, path = place(said.url)
    return Server(
        label, origin, path, lines, secrets, said.timeout_s, said.answer_bytes_max, said.list_ttl_s, clients
    )


def _is_value(text: str) -> bool:
    """Whether a header may say this."""
    return (
        text.isascii() and text.isprintable() and text == text.strip() and 0 < len(text) <= SECRET_CHARS_MAX
    )
