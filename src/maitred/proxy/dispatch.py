"""How a seated ticket becomes an answer: `single` sends it to its one leg."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from msgspec import Struct

from maitred.core.outcome import FailureKind
from maitred.core.words import Failure, Leg
from maitred.door.house import House
from maitred.door.read import Order
from maitred.net.client import ClientConnection
from maitred.net.pool import ConnectFailed, Pool
from maitred.proxy.answer import Answered, UpstreamFailed
from maitred.proxy.exchange import Exchange
from maitred.proxy.relay import Hold, Relay

Dispatch = Callable[[House, Order, list[Leg], Exchange], Awaitable[Answered]]


class Single(Struct, frozen=True):
    """One leg produces the whole answer. Raises UpstreamFailed; aborts the engine when cancelled."""

    pool: Pool
    hold: Hold = Hold()

    async def __call__(self, house: House, order: Order, legs: list[Leg], exchange: Exchange) -> Answered:
        """Send the order to its leg and see the answer through to the client."""
        leg = legs[0]
        connection = self.pool.take(leg.endpoint.url) or await self._connect(leg)
        try:
            return await self._converse(house, order, leg, exchange, connection)
        except UpstreamFailed as failed:
            if failed.failure.kind is not FailureKind.STALE_CONNECTION:
                raise
        # The idle connection had died unnoticed before a byte of answer: nothing was lost, try a fresh one.
        return await self._converse(house, order, leg, exchange, await self._connect(leg))

    async def _connect(self, leg: Leg) -> ClientConnection:
        try:
            return await self.pool.connect(leg.endpoint.url)
        except ConnectFailed as failed:
            raise UpstreamFailed(leg, Failure(failed.kind, detail=failed.detail)) from None

    async def _converse(
        self, house: House, order: Order, leg: Leg, exchange: Exchange, connection: ClientConnection
    ) -> Answered:
        relay = Relay(house, order, leg, exchange, connection, self.hold)
        exchange.flow = relay
        house.running[leg.number] = relay
        try:
            connection.send((upstream_head(order, leg.endpoint.url), *order.parts), relay)
            house.sent(leg)
            return await relay.over
        finally:
            del house.running[leg.number]
            relay.drop()


def upstream_head(order: Order, url: str) -> bytes:
    """The head of the engine's request, made anew: nothing of the client's head gets there unnamed."""
    size = sum(map(len, order.parts))
    host = urlsplit(url).netloc
    return (
        (
            f"POST {order.path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
            f"content-length: {size}\r\nx-request-id: {order.request.id}\r\n"
        ).encode()
        + order.forwarded
        + b"\r\n"
    )
