"""MCP on the wire: what is said to a server, and what is understood of it."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from maitred.wire.mcp import (
    HANDSHAKE_VERSION,
    STATELESS_VERSION,
    NotMcp,
    Result,
    RpcError,
    handshake,
    read_result,
    read_tools,
    read_welcome,
    reply,
    request,
)

CLIENT = {"name": "us", "version": "1"}


def raw(value: Any) -> Raw:
    return Raw(json.dumps(value).encode())


def test_a_request_says_who_asks_only_where_there_is_no_handshake() -> None:
    said = json.loads(request(3, "tools/list", {}, CLIENT, HANDSHAKE_VERSION))
    assert said == {"jsonrpc": "2.0", "method": "tools/list", "id": 3}
    meta = json.loads(request(3, "tools/list", {}, CLIENT, STATELESS_VERSION))["params"]["_meta"]
    assert meta["io.modelcontextprotocol/clientInfo"] == CLIENT
    assert "id" not in json.loads(request(None, "notifications/initialized", {}, CLIENT, ""))
    assert handshake(CLIENT)["capabilities"] == {}


@pytest.mark.parametrize(
    ("message", "wanted"),
    [
        ({"id": 1, "result": {"a": 1}}, b'{"a": 1}'),
        ({"id": "1", "result": {}}, b"{}"),
        ({"id": 2, "result": {}}, None),
        ({"id": 1}, None),
        ({"id": 1, "result": None}, None),
        ({"method": "ping", "id": 1}, None),
        ({"method": "notifications/progress"}, None),
        ({"id": 1, "error": {"code": -1, "message": "no", "data": [1]}}, RpcError(-1, "no")),
        ({"id": None, "error": {"code": -1}}, RpcError(-1)),
        ({"id": 2, "error": {"code": -1}}, None),
    ],
)
def test_what_answers_a_request(message: dict[str, Any], wanted: Any) -> None:
    found = reply(json.dumps({"jsonrpc": "2.0", **message}).encode(), 1)
    assert (bytes(found) if isinstance(found, Raw) else found) == wanted


@given(st.binary(max_size=50) | st.sampled_from([b"[" * 100_000, b'{"error":"x"}', b'{"id":1.5}', b"\xff"]))
def test_what_is_no_message_is_told(data: bytes) -> None:
    with suppress(NotMcp):
        assert not isinstance(reply(data, 1), RpcError)


@pytest.mark.parametrize(
    ("result", "wanted"),
    [
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, Result("a\nb", False)),
        ({"content": [], "isError": True}, Result("", True)),
        ({"structuredContent": {"a": 1}}, Result('{"a": 1}', False)),
        ({"content": [{"type": "text", "text": "a"}], "structuredContent": {"a": 1}}, Result("a", False)),
        (
            {"content": [{"type": "image", "data": "aaaa", "mimeType": "image/png"}]},
            Result("[image/png, left out]", False),
        ),
        (
            {"content": [{"type": "resource_link", "uri": "file:///a", "name": "a"}]},
            Result("file:///a", False),
        ),
        ({"content": [{"type": "resource", "resource": {"uri": "a:", "text": "t"}}]}, Result("t", False)),
        (
            {"content": [{"type": "resource", "resource": {"uri": "a:", "blob": "b", "mimeType": "x/y"}}]},
            Result("[x/y, left out]", False),
        ),
    ],
)
def test_what_a_model_reads_of_a_result(result: dict[str, Any], wanted: Result) -> None:
    assert read_result(raw(result)) == wanted


def test_what_is_not_of_its_form_is_told() -> None:
    with pytest.raises(NotMcp, match="more input"):
        read_result(raw({"resultType": "input_required"}))
    for read in (read_result, read_tools, read_welcome):
        wrongs: list[Any] = [[], {"content": 1, "tools": 1, "protocolVersion": 1}]
        for wrong in wrongs:
            with pytest.raises(NotMcp):
                read(raw(wrong))
    with pytest.raises(NotMcp):
        read_tools(raw({"tools": [{"name": "no schema"}]}))
