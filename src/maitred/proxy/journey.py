"""One request's life, from the door to the last byte. Read this first.

The journey is an ordinary coroutine, woken when it is seated and when its answer is over; the answer itself
passes in callbacks (`relay.py`). Whatever ends it, leaving included, is told exactly once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Mapping
from random import random

from msgspec import Struct

from maitred.control.models import Models
from maitred.core.events import AtDoor
from maitred.core.outcome import Outcome, Refusal
from maitred.core.words import Api, Identity, Phase, Request, Ticket, Usage
from maitred.door.house import House
from maitred.door.identify import Identify
from maitred.door.read import APIS, read
from maitred.door.source import Source
from maitred.door.tokens import told
from maitred.proxy.answer import UpstreamFailed, limit_refusal, refusal_of
from maitred.proxy.dispatch import Dispatch
from maitred.proxy.exchange import Exchange
from maitred.wire.requests import Rules

log = logging.getLogger("maitred.proxy")

SEATED, FAILED_INTERNAL = Phase.DISPATCHED, Outcome.FAILED_INTERNAL

UNKNOWN = Identity(tenant="")
"""Who asks, until that is known."""


class Service(Struct, frozen=True):
    """What every journey of a gateway shares.

    `journeys`: the tasks of those under way, by request id; and those of turns, which may be on several
    journeys one after the other, by the tasks' own names.
    `tenants` are those that the settings name. `sources` tell token ids, for the models that have one, by
    pool; `block_tokens` the size of a pool's blocks, 0 while that is not known. `sample`: the part
    of requests whose decisions are kept.
    """

    house: House
    models: Models
    dispatch: Dispatch
    inflate: Callable[[bytes], Awaitable[bytes]]
    rules: Rules
    identify: Identify
    journeys: dict[str, asyncio.Task[None]]
    tenants: Container[str] = ()
    sources: Mapping[str, Source] = {}
    block_tokens: Callable[[str], int] = lambda _pool: 0
    sample: float = 0.0


async def journey(service: Service, exchange: Exchange, request_id: str) -> None:
    """Read the request, let it in, wait for its seat, have it answered; once more where that may help."""
    house, head = service.house, exchange.head
    api = APIS[head.path]
    exchange.watch(service.journeys[request_id].cancel)
    ticket: Ticket | None = None
    usage: Usage | None = None
    outcome, identity, asked = FAILED_INTERNAL, UNKNOWN, None
    try:
        identity = service.identify(head.fields)
        if head.packed:
            exchange.body = await service.inflate(exchange.body)
            identity = service.identify(head.fields)  # the key may be gone since
        order = read(
            head,
            exchange.body,
            request_id,
            service.models,
            service.rules,
            identity,
            service.tenants,
            service.sample > 0 and random() < service.sample,
        )
        identity, asked = order.identity, order.request
        if service.sources and (source := service.sources.get(asked.pool)) is not None:
            asked = order.request = await told(source, order, service.block_tokens(asked.pool))
            service.identify(head.fields)  # likewise
        ticket = house.accept(asked, identity)
        while True:
            legs = ticket.legs if ticket.phase is SEATED else await house.seated(ticket)
            try:
                outcome, usage = await service.dispatch(house, order, legs, exchange)
                break
            except UpstreamFailed as failed:
                usage = failed.usage
                if not house.fail(failed.leg, failed.failure):
                    raise refusal_of(failed) from failed
    except Refusal as refusal:
        outcome = refusal.outcome
        if ticket is not None:
            limit_refusal(refusal, ticket, house.clock())
        exchange.refuse(refusal, request_id, api)
    except asyncio.CancelledError:
        outcome = Outcome.CLIENT_GONE
    except Exception:
        log.exception("a bug of ours ended request %s", request_id)
        exchange.fail(Refusal(outcome, "the gateway failed"), request_id, api)
    if ticket is not None:
        house.finish(ticket, outcome, usage)
    else:
        house.at_door(_turned_away(house, request_id, outcome, api, identity, asked))
    del service.journeys[request_id]


def _turned_away(
    house: House, request_id: str, outcome: Outcome, api: Api, who: Identity, asked: Request | None
) -> AtDoor:
    """What the observers are told of a request that got no ticket; `asked` is None unless it was read."""
    now = house.clock()
    if asked is None:
        return AtDoor(now, request_id, outcome, api, "", who.tenant, who.key)
    band = house.gateway.band_of(asked, who).name
    return AtDoor(now, request_id, outcome, api, asked.model, who.tenant, who.key, band, asked.retry)
