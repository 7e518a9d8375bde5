"""The data port: which paths there are, and who answers them. Nothing unknown is ever forwarded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from urllib.parse import unquote

from maitred.core.events import AtDoor
from maitred.core.outcome import Outcome, Refusal
from maitred.core.words import EndpointState
from maitred.door.read import APIS, JSON, check_media
from maitred.net.exchange import HttpExchange, RequestHead
from maitred.net.server import ServerConnection
from maitred.proxy.journey import Service, journey
from maitred.wire import models as wire_models

MODELS = "/v1/models"
READ, WRITE = ("GET", "HEAD"), ("POST",)
HEALTH = {"/livez": False, "/ping": False, "/readyz": True, "/health": True}
"""Health paths, and whether each asks for readiness rather than for life."""
METHODS = {**dict.fromkeys(APIS, WRITE), **dict.fromkeys(HEALTH, READ), MODELS: READ}
JSON_LINES = b"content-type: application/json\r\n"
TEXT_LINES = b"content-type: text/plain; charset=utf-8\r\n"

Note = Callable[[str, HttpExchange], None]


class Front:
    """The site of the data port. `draining`: every answer from now on closes its connection.

    `note` is told each request's id and exchange before anything else happens to it, for the access log.
    """

    def __init__(self, service: Service, note: Note) -> None:
        self.draining = False
        self.connections: dict[int, ServerConnection] = {}
        self._service = service
        self._house = service.house
        self._note = note

    @property
    def ready(self) -> bool:
        """Whether new requests can be served."""
        endpoints = self._house.gateway.table.by_name.values()
        return not self.draining and any(e.state is EndpointState.READY for e in endpoints)

    # -- Site -------------------------------------------------------------------------------------

    def check(self, head: RequestHead) -> None:
        """See Site."""
        path = head.path
        methods: Sequence[str] | None = METHODS.get(path)
        if methods is None and path.startswith(MODELS + "/"):
            methods = READ
        if head.method == "CONNECT":
            raise Refusal(Outcome.METHOD_NOT_ALLOWED, "nobody is connected through here")
        if methods is None:
            raise Refusal(Outcome.PATH_NOT_FOUND, "there is nothing at this path")
        if head.method not in methods:
            allow = ", ".join(methods)
            message = f"this path takes {allow}"
            raise Refusal(Outcome.METHOD_NOT_ALLOWED, message, headers=(("allow", allow),))
        fields = head.fields
        if methods is WRITE and (fields.get(b"content-type") != JSON or b"content-encoding" in fields):
            check_media(fields)

    def serve(self, exchange: HttpExchange) -> None:
        """See Site."""
        path = exchange.head.path
        if path in APIS:
            request_id = self._house.mint_id()
            self._note(request_id, exchange)
            self._house.loop.create_task(journey(self._service, exchange, request_id))
        elif path in HEALTH:
            well = self.ready or not HEALTH[path]
            exchange.respond(200 if well else 503, TEXT_LINES, b"ok\n" if well else b"not ready\n")
        else:
            self._list_models(exchange, path)

    def refuse(self, exchange: HttpExchange, refusal: Refusal, *, keep: bool) -> None:
        """See Site."""
        request_id = self._house.mint_id()
        self._note(request_id, exchange)
        exchange.refuse(refusal, request_id, keep=keep)
        self._house.at_door(AtDoor(self._house.clock(), request_id, refusal.outcome, None))

    def _tell(self, exchange: HttpExchange, body: bytes) -> None:
        request_id = self._house.mint_id()
        self._note(request_id, exchange)
        exchange.respond(200, JSON_LINES + b"x-request-id: %b\r\n" % request_id.encode(), body)
        self._house.at_door(AtDoor(self._house.clock(), request_id, Outcome.COMPLETED))

    def left(self, exchange: HttpExchange) -> None:
        """See Site."""
        request_id = self._house.mint_id()
        self._note(request_id, exchange)
        api = APIS.get(exchange.head.path)
        self._house.at_door(AtDoor(self._house.clock(), request_id, Outcome.CLIENT_GONE, api))

    def opened(self, connection: ServerConnection) -> None:
        """See Site."""
        self.connections[id(connection)] = connection

    def closed(self, connection: ServerConnection) -> None:
        """See Site."""
        del self.connections[id(connection)]

    # -- answering --------------------------------------------------------------------------------

    def _list_models(self, exchange: HttpExchange, path: str) -> None:
        entries = self._service.models.entries()
        if path == MODELS:
            self._tell(exchange, wire_models.listing(entries))
            return
        name = unquote(path.removeprefix(MODELS + "/"))
        for served, card in entries:
            if served == name:
                self._tell(exchange, wire_models.one(served, card))
                return
        refusal = Refusal(Outcome.MODEL_NOT_FOUND, "the model does not exist here", param="model")
        self.refuse(exchange, refusal, keep=True)
