"""The twin's port: which paths there are, and what everything else is answered with."""

from __future__ import annotations

from maitred.core.outcome import Outcome, Refusal
from maitred.net.exchange import HttpExchange, RequestHead
from maitred.net.repeats import Known
from maitred.net.server import ServerConnection
from maitred.twin import about, generate, tokenizing
from maitred.twin.answers import JSON_LINES
from maitred.twin.errors import INVALID, Wrong, detail
from maitred.twin.house import House, Route

ROUTES = {**generate.ROUTES, **tokenizing.ROUTES, **about.ROUTES}

NOT_JSON = "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed"


def route_of(path: str) -> Route | None:
    """What is at a path."""
    return ROUTES.get(path) or (about.STEERING if path.startswith(about.STEER) else None)


class Site:
    """The site of the twin's port. `draining`: every answer from now on closes its connection."""

    def __init__(self, house: House) -> None:
        self.draining = False
        self.heads: Known[RequestHead] = {}
        self.cors: frozenset[str] = frozenset()
        self.connections: dict[int, ServerConnection] = {}
        self._house = house

    def check(self, head: RequestHead) -> None:
        """See net.server.Site."""
        route = route_of(head.path)
        if route is None:
            raise Refusal(Outcome.PATH_NOT_FOUND, "Not Found")
        if head.method not in route.methods:
            raise Refusal(Outcome.METHOD_NOT_ALLOWED, "Method Not Allowed")

    def serve(self, exchange: HttpExchange) -> None:
        """See net.server.Site."""
        path = exchange.head.path
        route = route_of(path)
        assert route is not None  # noqa: S101 - `check` saw it
        try:
            if not route.always:
                self._check_served(exchange)
            route.handle(self._house, exchange)
        except Wrong as wrong:
            body = wrong.body(anthropic=path.startswith("/v1/messages"))
            exchange.respond(wrong.status, JSON_LINES, body)

    def _check_served(self, exchange: HttpExchange) -> None:
        phase = self._house.phase
        if phase is not None:
            raise Wrong(f"The engine is starting: {phase}.", kind="ServiceUnavailableError", status=503)
        media = exchange.head.fields.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if exchange.body and media != b"application/json":
            raise Wrong(NOT_JSON, kind=INVALID)

    def refuse(self, exchange: HttpExchange, refusal: Refusal, *, keep: bool) -> None:
        """See net.server.Site."""
        route = route_of(exchange.head.path)
        if refusal.outcome is Outcome.PATH_NOT_FOUND:
            exchange.respond(404, JSON_LINES, detail(refusal.message))
        elif refusal.outcome is Outcome.METHOD_NOT_ALLOWED and route is not None:
            allow = b"allow: %b\r\n" % ", ".join(route.methods).encode()
            exchange.respond(405, JSON_LINES + allow, detail(refusal.message))
        else:
            exchange.refuse(refusal, "", keep=keep)

    def left(self, exchange: HttpExchange) -> None:
        """See net.server.Site."""

    def opened(self, connection: ServerConnection) -> None:
        """See net.server.Site."""
        self.connections[id(connection)] = connection

    def closed(self, connection: ServerConnection) -> None:
        """See net.server.Site."""
        del self.connections[id(connection)]
