"""The paths of what is remembered, and who answers at each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from maitred.core.events import AtDoor
from maitred.core.outcome import Outcome, Refusal
from maitred.core.words import Api, Identity
from maitred.door.headers import on_behalf
from maitred.door.inflate import packed
from maitred.door.read import APIS
from maitred.net.exchange import HttpExchange
from maitred.proxy.journey import UNKNOWN, Service
from maitred.responses import conversations, stored
from maitred.responses.asked import Asked
from maitred.responses.beside import compact, count
from maitred.responses.create import create
from maitred.responses.errors import refusal_of
from maitred.responses.site import Site
from maitred.store.rows import StoreError
from maitred.store.state_rows import StateConflict

COMPLETED = Outcome.COMPLETED

log = logging.getLogger("maitred.responses")

Handler = Callable[[Asked], Awaitable[Outcome]]
ROUTES: dict[tuple[str, ...], dict[str, Handler]] = {
    ("responses",): {"POST": create},
    ("responses", "*"): {"GET": stored.retrieve, "DELETE": stored.delete},
    ("responses", "*", "cancel"): {"POST": stored.cancel},
    ("responses", "*", "input_items"): {"GET": stored.input_items},
    ("conversations",): {"POST": conversations.create},
    ("conversations", "*"): {
        "GET": conversations.retrieve,
        "POST": conversations.update,
        "DELETE": conversations.delete,
    },
    ("conversations", "*", "items"): {"GET": conversations.list_items, "POST": conversations.add_items},
    ("conversations", "*", "items", "*"): {"GET": conversations.item, "DELETE": conversations.delete_item},
}
"""By the words of the path; a star is an id."""
NAMED: dict[str, dict[str, Handler]] = {
    "/v1/responses/compact": {"POST": compact},
    "/v1/responses/input_tokens": {"POST": count},
}
"""Those that stand where an id could, and are none: ids have a beginning."""
ROOT = "/v1/"


class Paths:
    """Front's `Stateful`."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def methods(self, path: str) -> Sequence[str] | None:
        """See Stateful."""
        route = _route(path)
        return None if route is None else tuple(route[0])

    def serve(self, exchange: HttpExchange, request_id: str) -> None:
        """See Stateful."""
        route = _route(exchange.head.path)
        assert route is not None  # noqa: S101 - its head was let in because there is one
        handlers, ids = route
        answering = self._answer(exchange, request_id, handlers[exchange.head.method], ids)
        self._site.service.house.loop.create_task(answering)

    async def _answer(
        self, exchange: HttpExchange, request_id: str, handler: Handler, ids: list[str]
    ) -> None:
        """Answer one request; however it ends, the observers are told once."""
        service = self._site.service
        house, task = service.house, asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine that runs has a task
        service.journeys[task.get_name()] = task
        outcome, identity, asked = Outcome.FAILED_INTERNAL, UNKNOWN, None
        try:
            identity = self._identify(service, exchange)
            if packed(exchange.head):
                exchange.body = await service.inflate(exchange.body)
                identity = self._identify(service, exchange)  # the key may be gone since
            store = await self._site.memory()
            asked = Asked(self._site, task, exchange, request_id, service, identity, store, ids)
            outcome = await handler(asked)
        except (Refusal, StateConflict, StoreError) as wrong:
            outcome = self._refuse(exchange, request_id, wrong)
        except asyncio.CancelledError:
            outcome = Outcome.CLIENT_GONE
        except Exception:
            log.exception("a bug of ours ended request %s", request_id)
            exchange.fail(Refusal(outcome, "the gateway failed"), request_id)
        called = asked is not None and asked.called
        if handler is create and (called or outcome is not COMPLETED):  # else it was queued, or a repeat
            self._site.figures.end(outcome)
        if not called:
            now, api = house.clock(), APIS.get(exchange.head.path)
            who = identity.tenant, identity.key
            house.at_door(AtDoor(now, request_id, outcome, api, "", *who))
        del service.journeys[task.get_name()]
        exchange.on_gone = exchange.flow = None  # it is named by what it names there

    def _refuse(
        self, exchange: HttpExchange, request_id: str, wrong: Refusal | StateConflict | StoreError
    ) -> Outcome:
        if isinstance(wrong, StoreError):
            self._site.memory.failed(wrong)
        refusal = refusal_of(wrong)
        exchange.fail(refusal, request_id, Api.CHAT)
        return refusal.outcome

    def _identify(self, service: Service, exchange: HttpExchange) -> Identity:
        identity = service.identify(exchange.head.fields)
        if identity.may_set:
            identity = on_behalf(exchange.head.fields, identity, service.tenants)
        return identity


def _route(path: str) -> tuple[Mapping[str, Handler], list[str]] | None:
    """Who answers at a path, by method, and the ids in it."""
    if not path.startswith(ROOT):
        return None
    if (named := NAMED.get(path)) is not None:
        return named, []
    parts = path[len(ROOT) :].split("/")
    ids = parts[1::2]
    handlers = ROUTES.get(tuple("*" if at % 2 else part for at, part in enumerate(parts)))
    return (handlers, ids) if handlers is not None and all(ids) else None
