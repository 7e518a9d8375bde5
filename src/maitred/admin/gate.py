"""Who may use the admin port: the Host it is called by, and the token.

On loopback without a token everybody may read and nobody may change anything; with a token both need it.
Health and metrics are open, because orchestrators and Prometheus come without.
"""

from __future__ import annotations

import hmac
import socket
from collections.abc import Collection, Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

OPEN = frozenset({"/livez", "/metrics"})
READS = frozenset({"GET", "HEAD"})


class Gate:
    """Passes a request on or refuses it. `hosts` are names besides `localhost` and this machine's own."""

    def __init__(self, app: ASGIApp, token: str | None, hosts: Collection[str]) -> None:
        self._app = app
        self._token = token.encode() if token else None
        self._names = {"localhost", socket.gethostname().lower(), *hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        answer = self._refusal(scope["method"], scope["path"], dict(scope["headers"])) or self._app
        await answer(scope, receive, send)

    def _refusal(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> Response | None:
        if not self._is_ours(headers.get(b"host", b"").decode("latin-1")):
            return problem(421, "host", "this name is not known here; use an address, or set admin.hosts")
        if path in OPEN:
            return None
        if self._token is None:
            if method in READS:
                return None
            return problem(403, "read_only", "nothing can be changed here until admin.token is set")
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), self._token):
            return None
        refusal = problem(401, "unauthenticated", "the token of admin.token is needed")
        refusal.headers["www-authenticate"] = 'Bearer realm="maitred admin"'
        return refusal

    def _is_ours(self, host: str) -> bool:
        """Whether the Host is an address or a name of ours: a web page could come by any other name."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
            return name in self._names or bool(ip_address(name))
        except ValueError:
            return False


def problem(status: int, code: str, message: str, **more: object) -> Response:
    """An error in the admin API's shape."""
    body = msgspec.json.encode({"error": {"code": code, "message": message, **more}})
    return Response(body, status, media_type="application/json")
