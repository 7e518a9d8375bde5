"""The data port: which paths there are, and who answers them. Nothing unknown is ever forwarded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol
from urllib.parse import unquote

from maitred.core.events import AtDoor
from maitred.core.outcome import Outcome, Refusal
from maitred.core.words import Api, EndpointState
from maitred.door.inflate import packed
from maitred.door.read import APIS, JSON, THEIRS, check_media
from maitred.net import cors
from maitred.net.exchange import HttpExchange, RequestHead
from maitred.net.repeats import Known
from maitred.net.server import ServerConnection
from maitred.net.target import ANY
from maitred.proxy.journey import Service, journey
from maitred.wire import errors
from maitred.wire import models as wire_models

MODELS = "/v1/models"
READ, WRITE = ("GET", "HEAD"), ("POST",)
HEALTH = {"/livez": False, "/ping": False, "/readyz": True, "/health": True}
"""Health paths, and whether each asks for readiness rather than for life."""
METHODS: dict[str, Sequence[str]] = {
    **dict.fromkeys(THEIRS, WRITE),
    **dict.fromkeys(HEALTH, READ),
    MODELS: READ,
    ANY: (*READ, *WRITE),
}
JSON_LINES = b"content-type: application/json\r\n"
TEXT_LINES = b"content-type: text/plain; charset=utf-8\r\n"
NOTHING_THERE = "there is nothing at this path"

Note = Callable[[str, HttpExchange], None]


class Stateful(Protocol):
    """Who answers at the paths of what is remembered: those that hold ids, so no table lists them all."""

    def methods(self, path: str) -> Sequence[str] | None:
        """What the path takes; None where there is nothing."""

    def serve(self, exchange: HttpExchange, request_id: str) -> None:
        """Answer one request, now or later, and tell the observers how it ended."""


class Front:
    """The site of the data port. `draining`: every answer from now on closes its connection.

    `note` is told each request's id and exchange before anything else happens to it, for the access log.
    `cors`: origins ("https://host:port") whose pages may ask and read. It and `service` may be replaced at
    any time; what runs goes on with what it began with. So may `stateful`, which is None where nothing is
    remembered.
    """

    def __init__(self, service: Service, note: Note, cors: frozenset[str] = frozenset()) -> None:
        self.draining = False
        self.heads: Known[RequestHead] = {}
        self.cors = cors
        self.connections: dict[int, ServerConnection] = {}
        self.service = service
        self.stateful: Stateful | None = None
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
        method, fields = head.method, head.fields
        methods = METHODS.get(head.path) or self._methods(head.path)
        if methods is None:
            raise Refusal(Outcome.PATH_NOT_FOUND, NOTHING_THERE)
        if method not in methods and not cors.is_preflight(self.cors, method, fields):
            allow = ", ".join(methods)
            message = f"this path takes {allow}"
            raise Refusal(Outcome.METHOD_NOT_ALLOWED, message, headers=(("allow", allow),))
        if method == "OPTIONS" or head.path in HEALTH:
            return
        self.service.identify(fields)
        if method in WRITE:
            if fields.get(b"content-type") != JSON or b"content-encoding" in fields:
                check_media(fields)
                head.packed = packed(head)
            head.known = True

    def serve(self, exchange: HttpExchange) -> None:
        """See Site."""
        head = exchange.head
        if head.method == "POST" and head.path in THEIRS:
            request_id = self._house.mint_id()
            self._note(request_id, exchange)
            service = self.service
            going = journey(service, exchange, request_id)
            # As `create_task` does it, without the detour by the loop and a name made for nobody.
            service.journeys[request_id] = asyncio.Task(going, loop=self._house.loop, name=request_id)
        elif head.method == "OPTIONS":  # only a preflight gets here
            methods = METHODS.get(head.path) or self._methods(head.path) or READ
            self._tell(exchange, 204, cors.permission(methods, head.fields), b"")
        elif head.path in HEALTH:
            well = self.ready or not HEALTH[head.path]
            exchange.respond(200 if well else 503, TEXT_LINES, b"ok\n" if well else b"not ready\n")
        elif head.path.startswith(MODELS):
            self._list_models(exchange, head.path)
        elif self.stateful is not None:
            request_id = self._house.mint_id()
            self._note(request_id, exchange)
            self.stateful.serve(exchange, request_id)
        else:  # there was, when its head was looked at
            self.refuse(exchange, Refusal(Outcome.PATH_NOT_FOUND, NOTHING_THERE), keep=True)

    def _methods(self, path: str) -> Sequence[str] | None:
        """What a path takes that no table lists."""
        if path.startswith(MODELS + "/"):
            return READ
        return self.stateful.methods(path) if self.stateful is not None else None

    def refuse(self, exchange: HttpExchange, refusal: Refusal, *, keep: bool) -> None:
        """See Site."""
        request_id = self._house.mint_id()
        self._note(request_id, exchange)
        api = APIS.get(exchange.head.path)
        exchange.refuse(refusal, request_id, _shape(exchange.head), keep=keep)
        self._house.at_door(AtDoor(self._house.clock(), request_id, refusal.outcome, api))

    def _tell(self, exchange: HttpExchange, status: int, lines: bytes, body: bytes) -> None:
        request_id = self._house.mint_id()
        self._note(request_id, exchange)
        exchange.respond(status, lines + errors.id_lines(_shape(exchange.head), request_id), body)
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
        try:  # once more: the answer before it on this connection may have taken long
            identity = self.service.identify(exchange.head.fields)
        except Refusal as unknown:
            self.refuse(exchange, unknown, keep=True)
            return
        entries = self.service.models.entries(identity.models)
        anthropic = _asks_anthropic(exchange.head)
        if path == MODELS:
            self._tell(exchange, 200, JSON_LINES, wire_models.listing(entries, anthropic=anthropic))
            return
        name = unquote(path.removeprefix(MODELS + "/"))
        for served, card in entries:
            if served == name:
                self._tell(exchange, 200, JSON_LINES, wire_models.one(served, card, anthropic=anthropic))
                return
        refusal = Refusal(Outcome.MODEL_NOT_FOUND, "the model does not exist here", param="model")
        self.refuse(exchange, refusal, keep=True)


def _asks_anthropic(head: RequestHead) -> bool:
    """Whether the client speaks Anthropic's API, whatever the path: its libraries always say its version."""
    return b"anthropic-version" in head.fields


def _shape(head: RequestHead) -> Api | None:
    """Whose errors the client reads: the path's, and at paths of no API those its version header asks for."""
    return APIS.get(head.path, Api.MESSAGES if _asks_anthropic(head) else None)
