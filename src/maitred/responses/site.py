"""The paths of what is remembered, and who answers at each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from maitred.config.responses import Kept
from maitred.config.tree import Config
from maitred.core.events import AtDoor
from maitred.core.outcome import Outcome, Refusal
from maitred.core.words import Api, Identity
from maitred.door.headers import on_behalf
from maitred.door.inflate import packed
from maitred.door.read import APIS
from maitred.net.exchange import HttpExchange
from maitred.observe.turns import Turns
from maitred.proxy.journey import UNKNOWN, Service
from maitred.responses import conversations, stored
from maitred.responses.asked import Asked
from maitred.responses.background import Background
from maitred.responses.beside import compact, count
from maitred.responses.create import create
from maitred.responses.errors import refusal_of
from maitred.responses.mcp.servers import Servers
from maitred.responses.news import News
from maitred.store.rows import StoreError
from maitred.store.state_rows import StateConflict

if TYPE_CHECKING:
    from maitred.store.state import StateStore

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


class Memory(Protocol):
    """Gives the store. `opened` is None until somebody has asked for it."""

    opened: StateStore | None

    async def __call__(self) -> StateStore:
        """The store. Raises StoreError."""

    def failed(self, error: StoreError) -> None:
        """It could not be used, so the operator is told."""

    def worked(self) -> None:
        """It could."""


class Site:
    """Front's `Stateful`. `service` and `config` may be replaced at any time; `servers` have turns' tools.

    `wall` is UTC in seconds. `running` holds the responses that are being made here and that the store knows
    of, each with what stops it.
    """

    def __init__(
        self,
        service: Service,
        config: Config,
        memory: Memory,
        servers: Servers,
        figures: Turns,
        wall: Callable[[], float],
    ) -> None:
        self.service = service
        self.servers = servers
        self.wall = wall
        self.running: dict[str, Callable[[], object]] = {}
        self.figures = figures
        self.news = News()
        self.background = Background(self)
        self.memory = memory
        self.apply(config)

    def apply(self, config: Config) -> None:
        """Go by this configuration from now on."""
        self.config = config
        self.settings = config.responses
        self.lease_ms = int(config.responses.lease_s * 1000)
        self.bands = {tier: band.name for band in config.bands for tier in band.service_tiers}

    def kept(self, tenant: str) -> Kept:
        """How this tenant's turns are kept."""
        return self.config.tenants.get(tenant, self.config.default_tenant).responses

    def now_ms(self) -> int:
        """The time, UTC, in ms since 1970."""
        return int(self.wall() * 1000)

    # -- Stateful ---------------------------------------------------------------------------------

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
        self.service.house.loop.create_task(answering)

    async def _answer(
        self, exchange: HttpExchange, request_id: str, handler: Handler, ids: list[str]
    ) -> None:
        """Answer one request; however it ends, the observers are told once."""
        service = self.service
        house, task = service.house, asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine that runs has a task
        service.journeys.add(task)
        outcome, identity, asked = Outcome.FAILED_INTERNAL, UNKNOWN, None
        try:
            identity = self._identify(service, exchange)
            if packed(exchange.head):
                exchange.body = await service.inflate(exchange.body)
            store = await self.memory()
            asked = Asked(self, task, exchange, request_id, service, identity, store, ids)
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
            self.figures.end(outcome)
        if not called:
            now, api = house.clock(), APIS.get(exchange.head.path)
            who = identity.tenant, identity.key
            house.at_door(AtDoor(now, request_id, outcome, api, "", *who))
        service.journeys.discard(task)
        exchange.on_gone = exchange.flow = None  # it is named by what it names there

    def _refuse(
        self, exchange: HttpExchange, request_id: str, wrong: Refusal | StateConflict | StoreError
    ) -> Outcome:
        if isinstance(wrong, StoreError):
            self.memory.failed(wrong)
        refusal = refusal_of(wrong)
        exchange.fail(refusal, request_id, Api.CHAT)
        return refusal.outcome

    def _identify(self, service: Service, exchange: HttpExchange) -> Identity:
        identity = service.identify(exchange.head.fields)
        if identity.may_set:
            identity = on_behalf(exchange.head.fields, identity, service.tenants)
        return identity

    # -- what runs --------------------------------------------------------------------------------

    def stop(self, response_id: str) -> None:
        """A response is not to be made any more: end it, if it is made here."""
        if (stop := self.running.pop(response_id, None)) is not None:
            stop()

    async def keep_leases(self) -> None:
        """Say again and again what is being made here, and hear what is not wanted any more."""
        while True:
            await asyncio.sleep(self.settings.lease_s / 3)
            if not self.running:
                continue
            asked = list(self.running)
            try:
                store = await self.memory()
                wanted = await store.renew(asked, self.now_ms() + self.lease_ms)
            except StoreError as error:
                self.memory.failed(error)
                continue  # the next time may be early enough
            for response_id in asked:
                if response_id not in wanted:
                    self.stop(response_id)


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
