"""Tools that the gateway runs for a turn of the Responses API: MCP servers, and how they may be used."""

from __future__ import annotations

import re
from typing import Annotated, TypeAlias

from msgspec import Struct, structs

from maitred.config.kinds import HOST, NUMBER, SIZE, TEXT, TIMEOUT, Kind, choice, parse_endpoint
from maitred.config.secret import SECRET, Secret
from maitred.config.setting import Forms, Listed, Mapped, Setting
from maitred.config.units import quote

SERVER = "https://tools.example.com/mcp"
OURS = frozenset(
    (
        *("host", "connection", "content-length", "content-type", "transfer-encoding", "accept", "expect"),
        *("accept-encoding", "authorization", "mcp-session-id", "mcp-protocol-version"),
        *("mcp-method", "mcp-name", "upgrade", "te", "trailer", "keep-alive", "proxy-authorization"),
    )
)
"""Headers of a request that nobody else may set."""

_HEADER = "[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}"
_header = re.compile(_HEADER).fullmatch
_target = re.compile(r"[!$%&'()*+,./:;=?@\w~-]*", re.ASCII).fullmatch


def parse_server(text: str) -> str:
    """The URL of an MCP server: scheme, host, path; what is secret belongs into headers."""
    place, _, query = text.partition("?")
    scheme, separator, rest = place.partition("://")
    origin, slash, path = rest.partition("/")
    parse_endpoint(f"{scheme}{separator}{origin}", SERVER)
    if not _target(f"{slash}{path}{query}"):
        raise ValueError(
            f"{quote(f'{scheme}://{origin}')}: its path is none of a URL; write such as {SERVER}"
        )
    return text


def parse_header(text: str) -> str:
    """The name of a header that a server may be sent beside ours."""
    if not is_header(text):
        advice = "write authorization: beside headers:" if text.lower() == "authorization" else "leave it out"
        raise ValueError(f"{quote(text)} cannot be set as a header here; {advice}")
    return text


def is_header(name: str) -> bool:
    """Whether a server may be sent a header of this name beside ours."""
    return bool(_header(name)) and name.lower() not in OURS


TOOL = structs.replace(TEXT, example="search_issues")
HEADER = Kind(parse_header, str, {"type": "string", "pattern": f"^{_HEADER}$"}, "x-api-version")
URL = Kind(parse_server, str, {"type": "string", "format": "uri", "pattern": "^https?://"}, SERVER)


class ToolList(Struct, frozen=True):
    """Some tools of a server."""

    tools: Annotated[tuple[str, ...], Setting("tools", Listed(TOOL, length_min=1), "Their names.")]


Approval: TypeAlias = str | ToolList
APPROVAL = Forms((choice("always", "never"), ToolList), "always, never or {tools: [NAME, …]}")


class McpServer(Struct, frozen=True):
    """One server, as the operator knows it."""

    url: Annotated[str, Setting("url", URL, "Where it is: the URL of its streamable HTTP.")]
    authorization: Annotated[
        Secret | None,
        Setting(
            "authorization",
            SECRET,
            "The token it is sent, as `Authorization: Bearer …`: `{env: NAME}` or `{file: PATH}`.",
            "none",
        ),
    ] = None
    headers: Annotated[
        dict[str, Secret],
        Setting(
            "headers",
            Mapped(SECRET, HEADER),
            "More headers it is sent, each `{env: NAME}` or `{file: PATH}`.",
        ),
    ] = {}
    tools: Annotated[
        tuple[str, ...], Setting("tools", Listed(TOOL), "Its tools that may be used.", "all")
    ] = ()
    approval: Annotated[
        Approval | None,
        Setting(
            "approval",
            APPROVAL,
            "Which calls the client must approve, whatever it says; `never`: those only for which it says so "
            "itself; `{tools: [NAME, …]}`: these tools always, the others as with `never`.",
            "what the request says; `always` where it says nothing",
        ),
    ] = None
    timeout_s: Annotated[float, Setting("timeout", TIMEOUT, "Longest wait for one answer.")] = 60.0
    answer_bytes_max: Annotated[
        int, Setting("answer_max", SIZE, "Largest answer: the result of a call, or a list of tools.")
    ] = 1024 * 1024
    list_ttl_s: Annotated[float, Setting("list_ttl", TIMEOUT, "How long its list of tools is good for.")] = (
        300.0
    )

    @property
    def secrets(self) -> list[Secret]:
        """Where all is kept that nobody but the server may know."""
        token = () if self.authorization is None else (self.authorization,)
        return [*token, *self.headers.values()]


class Mcp(Struct, frozen=True):
    """MCP servers, and what bounds their use in a turn."""

    servers: Annotated[
        dict[str, McpServer],
        Setting("servers", Mapped(McpServer), "Servers by the label that requests say (`server_label`)."),
    ] = {}
    hosts: Annotated[
        tuple[str, ...],
        Setting(
            "hosts",
            Listed(HOST),
            "Hosts, each with all names below it, of servers that clients may bring themselves "
            "(`server_url`, with their own `authorization` and `headers`); by https, at public addresses "
            "only.",
        ),
    ] = ()
    rounds_max: Annotated[
        int,
        Setting("rounds", NUMBER, "Most times in a turn that the model may call tools and go on."),
    ] = 10
    calls_max: Annotated[int, Setting("calls", NUMBER, "Most calls in a turn.")] = 100
    parallel_max: Annotated[int, Setting("parallel", NUMBER, "Most calls of a turn at once.")] = 8
    running_max: Annotated[
        int,
        Setting("running", NUMBER, "Most calls at once in one gateway; others wait, within their `timeout`."),
    ] = 256
    limit_s: Annotated[
        float, Setting("limit", TIMEOUT, "Longest time that all calls of a turn may take together.")
    ] = 600.0
