"""How a seated ticket becomes an answer: `Single` sends it to its one leg."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from maitred.core.outcome import FailureKind, Refusal
from maitred.core.words import Failure, Leg
from maitred.door.house import House
from maitred.door.read import Order
from maitred.net.client import ClientConnection
from maitred.net.pool import ConnectFailed, Pool
from maitred.proxy.answer import Answered, UpstreamFailed
from maitred.proxy.exchange import Exchange
from maitred.proxy.relay import Hold, Relay

OPENING = b"POST %b HTTP/1.1\r\nhost: %b\r\ncontent-type: application/json\r\ncontent-length: "
Dispatch = Callable[[House, Order, Sequence[Leg], Exchange], Awaitable[Answered]]


class Single(Struct, frozen=True):
    """One leg produces the whole answer. Raises UpstreamFailed; aborts the engine when cancelled."""

    pool: Pool
    hold: Hold = Hold()

    async def answer(self, house: House, order: Order, legs: Sequence[Leg], exchange: Exchange) -> Answered:
        """Send the order to its leg and see the answer through to the client."""
        leg = legs[0]
        idle, lost = self.pool.take(leg.endpoint.url), False
        while True:
            connection = idle or await self._connect(house, leg, lost=lost)
            relay = Relay(house, order, leg, connection, self.hold, house.loop.create_future(), exchange)
            exchange.flow = relay
            house.running[leg.number] = relay
            try:
                head = upstream_head(order, connection, leg.attempt)
                connection.send(head, order.parts, order.size, relay)
                house.sent(leg)
                return await relay.over
            except UpstreamFailed as failed:
                # An idle connection that had died unnoticed, before a byte of answer: try a fresh one.
                if idle is None or failed.failure.kind is not FailureKind.STALE_CONNECTION:
                    raise
                idle, lost = None, True
            except BaseException:
                relay.drop()
                raise
            finally:
                del house.running[leg.number]
                del relay  # its future names the failure, and that, by its traceback, this frame

    async def _connect(self, house: House, leg: Leg, *, lost: bool) -> ClientConnection:
        connecting = house.running[leg.number] = _Connecting(house)
        try:
            return await self.pool.connect(leg.endpoint.url)
        except ConnectFailed as failed:
            raise UpstreamFailed(leg, Failure(failed.kind, detail=failed.detail, lost=lost)) from None
        except asyncio.CancelledError:
            if connecting.refusal is None:
                raise
            raise connecting.refusal from None
        finally:
            del house.running[leg.number], connecting  # as above


class _Connecting:
    """Call of a leg whose connection is not there yet."""

    def __init__(self, house: House) -> None:
        self.refusal: Refusal | None = None
        self._task = asyncio.current_task(house.loop)

    def drop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def cut(self, refusal: Refusal) -> None:
        self.refusal = refusal
        self.drop()


def upstream_head(order: Order, connection: ClientConnection, attempt: int) -> bytes:
    """The head of the engine's request, made anew: nothing of the client's head gets there unnamed.

    A repeat says so, in the words that proxies have for it, that what lies behind does not repeat it too.
    """
    path, openings, forwarded = order.path, connection.openings, order.forwarded
    opening = openings.get(path)
    if opening is None:
        opening = openings[path] = OPENING % (path.encode(), connection.authority)
    if attempt > 1:
        forwarded += b"x-envoy-attempt-count: %d\r\n" % attempt
    return b"%b%d\r\n%b%b\r\n" % (opening, order.size, order.id_line, forwarded)
