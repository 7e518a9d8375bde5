"""A source of token ids: what is asked for those of a request, and what all of them have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from maitred.config.tree import Model
from maitred.core.endpoints import EndpointTable
from maitred.core.events import Emit, Tokenized
from maitred.core.tokens import NoTokens
from maitred.core.words import Api, Endpoint, EndpointState
from maitred.door.beside import Beside
from maitred.door.read import Order
from maitred.engines.tokenize import Asking
from maitred.net.fetch import fetch
from maitred.net.pool import Pool

BODY_BYTES_MAX = 1024 * 1024
"""A longer body is known by its bytes: its tokens would hold up those of everybody else."""

READY = EndpointState.READY
OFF = NoTokens.OFF

_PROMPTED = frozenset({Api.CHAT, Api.COMPLETIONS, Api.MESSAGES})
"""The APIs that make an answer out of a prompt."""


class Shared(Struct, frozen=True):
    """What all sources need."""

    pool: Pool
    table: EndpointTable
    beside: Beside
    emit: Emit
    clock: Callable[[], float]

    def ready(self, pool: str) -> list[Endpoint]:
        """The endpoints of a model that can be asked."""
        return [it for it in self.table.by_pool.get(pool, ()) if it.state is READY]

    async def ask(self, url: str, asking: Asking, timeout_s: float) -> bytes:
        """The ids that an engine tells. Raises ConnectFailed, Refused, or ValueError for an odd answer."""
        path, body = next(asking)
        while True:
            status, answer = await fetch(self.pool, url, path, timeout_s, body)
            if status != 200:
                raise Refused(status)
            try:
                path, body = asking.send(answer)
            except StopIteration as told:
                return bytes(told.value)


class Refused(Exception):  # noqa: N818 - names what happened
    """An engine answers with this status instead."""

    def __init__(self, status: int) -> None:
        super().__init__(f"answers with {status}")
        self.status = status


class Source:
    """Tells the ids of one model's requests."""

    def __init__(self, model: Model, shared: Shared) -> None:
        self.model = model
        self._shared = shared

    async def __call__(self, order: Order) -> bytes | NoTokens:
        """The ids, four bytes each, little-endian; or why there are none. Raises nothing."""
        request = order.request
        if request.api not in _PROMPTED:
            return OFF
        began = self._shared.clock()
        found = NoTokens.TOO_LONG if request.body_bytes > BODY_BYTES_MAX else await self._find(order)
        now = self._shared.clock()
        missing = found if isinstance(found, NoTokens) else None
        self._shared.emit(Tokenized(now, request.model, now - began, missing))
        return found

    async def _find(self, order: Order) -> bytes | NoTokens:
        raise NotImplementedError

    async def compare(self) -> None:
        """See whether engines agree that were not asked yet."""

    def wrong(self) -> Iterator[tuple[str, str, str, str]]:
        """What is wrong, each as (kind, where, what, do)."""
        yield from ()
