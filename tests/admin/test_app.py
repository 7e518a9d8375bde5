"""The admin answers without a socket: the application is called as a server would call it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from maitred.admin.app import EndpointRow, build
from maitred.core.words import Endpoint, EndpointState, Facts

ENDPOINT = Endpoint(
    name="qwen/127.0.0.1:8001",
    pool="qwen",
    url="http://127.0.0.1:8001",
    state=EndpointState.EJECTED,
    incarnation=2,
    facts=Facts("vllm", "Qwen/Qwen3", 32768),
    why="connection refused",
    running=3,
    seated=40,
)


async def rows() -> list[EndpointRow]:
    return [EndpointRow.of(ENDPOINT)]


async def no_rows() -> list[EndpointRow]:
    raise TimeoutError


def render() -> Iterator[bytes]:
    yield b"one 1\n"
    yield b"two 2\n"


def call(
    path: str, method: str = "GET", host: str = "127.0.0.1:9000", endpoints: Any = rows
) -> tuple[int, bytes]:
    """Status and body of one request."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", host.encode())] if host else []
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": headers,
    }
    asyncio.run(build(render, endpoints)(scope, receive, send))
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


def test_health_and_metrics() -> None:
    assert call("/livez") == (200, b"ok\n")
    assert call("/metrics") == (200, b"one 1\ntwo 2\n")


def test_endpoints_are_shown_whole() -> None:
    status, body = call("/admin/v1/endpoints")
    assert (status, msgspec.json.decode(body)) == (
        200,
        [
            {
                "name": "qwen/127.0.0.1:8001",
                "pool": "qwen",
                "url": "http://127.0.0.1:8001",
                "state": "ejected",
                "incarnation": 2,
                "engine": "vllm",
                "model": "Qwen/Qwen3",
                "context_tokens": 32768,
                "running": 3,
                "seated": 40,
                "why": "connection refused",
            }
        ],
    )


@pytest.mark.parametrize(
    ("path", "method", "status", "code"),
    [
        ("/", "GET", 404, "not_found"),
        ("/admin/v1/nothing", "GET", 404, "not_found"),
        ("/metrics", "POST", 405, "method_not_allowed"),
    ],
)
def test_what_is_not_there_is_refused_in_json(path: str, method: str, status: int, code: str) -> None:
    got, body = call(path, method)
    assert (got, msgspec.json.decode(body)["error"]["code"]) == (status, code)


def test_a_gateway_that_does_not_answer_is_a_503() -> None:
    status, body = call("/admin/v1/endpoints", endpoints=no_rows)
    assert (status, msgspec.json.decode(body)["error"]["code"]) == (503, "gateway_unresponsive")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9:1", "[::1]:9000"])
def test_a_host_of_this_machine_is_let_in(host: str) -> None:
    assert call("/livez", host=host)[0] == 200


@pytest.mark.parametrize("host", ["", "evil.example", "127.0.0.1.evil.example:9000", "10.0.0.1", "[::1"])
def test_another_host_is_not(host: str) -> None:
    assert call("/metrics", host=host)[0] == 421
