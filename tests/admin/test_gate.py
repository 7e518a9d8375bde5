"""Who is let in: by which Host, and with which token."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import msgspec
import pytest
from starlette.responses import PlainTextResponse

from maitred.admin.gate import Gate

TOKEN = "canary-0123456789"
HOSTS = ("gateway.example.com",)


def call(
    path: str = "/admin/v1/endpoints",
    method: str = "GET",
    host: str = "127.0.0.1:9000",
    token: str | None = None,
    **headers: str,
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the gate's answer; 200 is that of the application behind it."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    written = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    if host:
        written.append((b"host", host.encode("latin-1")))
    scope = {"type": "http", "method": method, "path": path, "headers": written}
    asyncio.run(Gate(PlainTextResponse("in\n"), token, HOSTS)(scope, receive, send))
    answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], answered, b"".join(message.get("body", b"") for message in sent[1:])


@pytest.mark.parametrize(
    "host",
    [
        "localhost", "LOCALHOST:9000", "127.0.0.1", "127.9.9.9:1", "[::1]:9000", "10.0.0.1:9000", "[fd00::1]",
        "gateway.example.com", "Gateway.example.com:9000", socket.gethostname(),
    ],
)  # fmt: skip
def test_addresses_and_names_of_ours_are_let_in(host: str) -> None:
    assert call(host=host)[0] == 200


@pytest.mark.parametrize(
    "host",
    [
        "", "evil.example", "127.0.0.1.evil.example:9000", "a.gateway.example.com", "[::1",
        "0x7f000001", "2130706433", "127.1",
        "localhost@evil.example", "localhost.evil.example", "löcalhost", "evil.example#localhost",
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/metrics", "/livez", "/admin/v1/reload"])
def test_other_names_are_not(path: str, host: str) -> None:
    status, _, body = call(path, host=host, token=TOKEN, authorization=f"Bearer {TOKEN}")
    assert (status, msgspec.json.decode(body)["error"]["code"]) == (421, "host")


@pytest.mark.parametrize("path", ["/livez", "/metrics"])
@pytest.mark.parametrize("token", [None, TOKEN])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_health_and_metrics_are_open(path: str, token: str | None, method: str) -> None:
    assert call(path, method, token=token)[0] == 200


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_without_a_token_everybody_may_read(method: str) -> None:
    assert call("/admin/v1/findings", method)[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "get"])
def test_without_a_token_nobody_may_change_anything(method: str) -> None:
    status, headers, body = call(
        "/admin/v1/reload", method, authorization=f"Bearer {TOKEN}", origin="http://a"
    )
    error = msgspec.json.decode(body)["error"]
    assert (status, error["code"]) == (403, "read_only")
    assert "admin.token" in error["message"]
    assert not [name for name in headers if name.startswith("access-control")]


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("given", [f"Bearer {TOKEN}", f"bearer  {TOKEN}", f"BEARER {TOKEN} "])
def test_with_the_token_all_is_let_in(method: str, given: str) -> None:
    assert call(method=method, token=TOKEN, authorization=given)[0] == 200


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS"])
@pytest.mark.parametrize(
    "given",
    [None, "", "Bearer", "Bearer ", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}x",
     f"Bearer {TOKEN.upper()}", "Bearer ÿ", f"Bearer Bearer {TOKEN}"],
)  # fmt: skip
def test_without_it_nothing_is(method: str, given: str | None) -> None:
    headers = {} if given is None else {"authorization": given}
    status, answered, body = call(method=method, token=TOKEN, **headers)
    assert (status, msgspec.json.decode(body)["error"]["code"]) == (401, "unauthenticated")
    assert answered["www-authenticate"].startswith("Bearer ")
    assert b"canary" not in body


@pytest.mark.parametrize("path", ["/livez/", "/metrics/x", "//livez", "/", "/LIVEZ", "/admin/v1/nothing"])
def test_what_only_looks_like_an_open_path_is_none(path: str) -> None:
    assert call(path, token=TOKEN)[0] == 401
