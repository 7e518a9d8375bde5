"""The admin port's answers. Reads only, loopback only, and so without a token.

Nothing here touches the gateway's state: `endpoints` fetches a snapshot made on the gateway's own loop,
and `render` reads numbers that may be read from any thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from ipaddress import ip_address
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from maitred.core.words import Endpoint
from maitred.observe.exposition import CONTENT_TYPE

PAUSE_S = 0.001
"""Rest between two pieces of metrics: a sleep of zero would take the interpreter back before a stream
that waits for it has woken up."""


class EndpointRow(Struct, frozen=True):
    """One endpoint as the admin API shows it."""

    name: str
    pool: str
    url: str
    state: str
    incarnation: int
    engine: str
    model: str
    context_tokens: int | None
    running: int
    seated: int
    why: str

    @classmethod
    def of(cls, endpoint: Endpoint) -> EndpointRow:
        """The endpoint as it is now; call it where endpoints change, on the gateway's loop."""
        facts = endpoint.facts
        return cls(
            name=endpoint.name,
            pool=endpoint.pool,
            url=endpoint.url,
            state=endpoint.state.label,
            incarnation=endpoint.incarnation,
            engine=facts.engine,
            model=facts.model,
            context_tokens=facts.context_tokens,
            running=endpoint.running,
            seated=endpoint.seated,
            why=endpoint.why,
        )


def build(
    render: Callable[[], Iterator[bytes]], endpoints: Callable[[], Awaitable[list[EndpointRow]]]
) -> Starlette:
    """The application; `endpoints` raises TimeoutError when the gateway does not answer in time."""

    async def livez(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def metrics(_request: Request) -> Response:
        return StreamingResponse(_unhurried(render()), headers={"content-type": CONTENT_TYPE})

    async def list_endpoints(_request: Request) -> Response:
        try:
            rows = await endpoints()
        except TimeoutError:
            return problem(503, "gateway_unresponsive", "the gateway's loop does not answer")
        return Response(msgspec.json.encode(rows), media_type="application/json")

    return Starlette(
        routes=[
            Route("/livez", livez),
            Route("/metrics", metrics),
            Route("/admin/v1/endpoints", list_endpoints),
        ],
        middleware=[Middleware(LocalHost)],
        exception_handlers={HTTPException: _refuse},
    )


class LocalHost:
    """Lets in only requests whose Host is this machine's, so that no web page can reach the port by DNS."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on or answer it."""
        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        answer = self._app if _is_local(host) else problem(421, "host", "use localhost or 127.0.0.1")
        await answer(scope, receive, send)


def problem(status: int, code: str, message: str) -> Response:
    """An error in the admin API's shape."""
    body = msgspec.json.encode({"error": {"code": code, "message": message}})
    return Response(body, status, media_type="application/json")


def is_loopback(name: str) -> bool:
    """Whether a host name or address means this machine."""
    try:
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


def _is_local(host: str) -> bool:
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False


async def _refuse(_request: Request, refusal: Exception) -> Response:
    """Starlette's own refusals (unknown path, other methods than GET) in the admin API's shape."""
    assert isinstance(refusal, HTTPException)  # noqa: S101 - registered for this class only
    code = refusal.detail.lower().replace(" ", "_")
    return problem(refusal.status_code, code, refusal.detail)


async def _unhurried(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
        await asyncio.sleep(PAUSE_S)
