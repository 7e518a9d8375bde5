"""The Model Context Protocol as far as tools go, sans I/O: requests to a server, and what it answers.

Two ways to speak are known. Until 2025-11-25 a client shakes hands first (`initialize`) and may be given a
session; from 2026-07-28 each request stands for itself and says in `_meta` who asks.
"""

from __future__ import annotations

from typing import Any

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder, encode

HANDSHAKE_VERSION = "2025-11-25"
STATELESS_VERSION = "2026-07-28"
UNSUPPORTED_VERSION = -32022
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602

INITIALIZE, INITIALIZED = "initialize", "notifications/initialized"
LIST, CALL = "tools/list", "tools/call"

NOTHING = Raw(b"null")
_Json = dict[str, Any]


class RpcError(Struct, frozen=True):
    """What a server refuses."""

    code: int
    message: str = ""


class _Message(Struct):
    id: int | str | None = None
    method: str | None = None
    result: Raw = NOTHING
    error: RpcError | None = None


class Tool(Struct, frozen=True, rename="camel"):
    """A tool, as its server tells it."""

    name: str
    input_schema: Raw
    description: str | None = None
    annotations: Raw = NOTHING


class _Tools(Struct, rename="camel"):
    tools: list[Tool]
    next_cursor: str | None = None


class _Welcome(Struct, rename="camel"):
    protocol_version: str


class _Resource(Struct, rename="camel"):
    text: str | None = None
    mime_type: str = "data"


class _Content(Struct, rename="camel"):
    type: str
    text: str | None = None
    mime_type: str = "data"
    uri: str = ""
    resource: _Resource | None = None


class _Result(Struct, rename="camel"):
    content: list[_Content] = []
    structured_content: Raw = NOTHING
    is_error: bool = False
    result_type: str = "complete"


class Result(Struct, frozen=True):
    """What came of a call; `failed` is the tool's own word for it."""

    text: str
    failed: bool


class NotMcp(ValueError):  # noqa: N818 - names what happened
    """A server answers what nobody asked."""


_message = Decoder(_Message).decode
_result, _tools, _welcome = Decoder(_Result), Decoder(_Tools), Decoder(_Welcome)


def request(request_id: int | None, method: str, params: _Json, client: _Json, version: str) -> bytes:
    """Return a request, or without an id a notification; `client` says who asks where each request must."""
    if version == STATELESS_VERSION:
        said = {"protocolVersion": version, "clientInfo": client, "clientCapabilities": {}}
        meta = {f"io.modelcontextprotocol/{name}": value for name, value in said.items()}
        params = {**params, "_meta": meta}
    body: _Json = {"jsonrpc": "2.0", "method": method}
    if request_id is not None:
        body["id"] = request_id
    if params:
        body["params"] = params
    return encode(body)


def handshake(client: _Json) -> _Json:
    """Return the parameters of `initialize`: we can tools, and nothing that servers would ask us for."""
    return {"protocolVersion": HANDSHAKE_VERSION, "capabilities": {}, "clientInfo": client}


def reply(data: bytes, request_id: int) -> Raw | RpcError | None:
    """Return what this message answers to the request, None where it is none to it. Raises NotMcp."""
    try:
        message = _message(data)
    except (DecodeError, RecursionError, UnicodeDecodeError):
        raise NotMcp("what it answers is no JSON-RPC") from None
    if message.method is not None:
        return None
    if message.error is not None and message.id in (request_id, str(request_id), None):
        return message.error
    if message.id not in (request_id, str(request_id)) or message.result == NOTHING:
        return None
    return message.result


def read_welcome(result: Raw) -> str:
    """Return the version that a server wants to speak. Raises NotMcp."""
    return str(_read(_welcome, result).protocol_version)


def read_tools(result: Raw) -> tuple[list[Tool], str | None]:
    """Return a page of tools, and where the next begins. Raises NotMcp."""
    page: _Tools = _read(_tools, result)
    return page.tools, page.next_cursor


def read_result(result: Raw) -> Result:
    """Return what came of a call. Raises NotMcp."""
    read: _Result = _read(_result, result)
    if read.result_type != "complete":
        raise NotMcp("the tool asks for more input, which is not supported here")
    text = "\n".join(map(_words, read.content))
    if not read.content and read.structured_content != NOTHING:
        text = bytes(read.structured_content).decode()
    return Result(text, read.is_error)


def _words(content: _Content) -> str:
    """What a model can read of a content; what it cannot is named."""
    if content.type == "text":
        return content.text or ""
    if content.type == "resource_link":
        return content.uri
    if content.resource is not None and content.resource.text is not None:
        return content.resource.text
    mime_type = content.mime_type if content.resource is None else content.resource.mime_type
    return f"[{mime_type}, left out]"


def _read(decoder: Decoder[Any], result: Raw) -> Any:
    try:
        return decoder.decode(result)
    except (ValidationError, DecodeError, RecursionError):
        raise NotMcp("what it answers is not of the form that MCP has") from None
