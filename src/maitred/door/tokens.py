"""The token ids of requests, so that it can be known which blocks of an engine's cache they would use.

A model's source is its own tokenizer, run here (`ours.py`), or its engines (`theirs.py`). No request fails
for want of its ids: it is known by its bytes then, and the reason is counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from msgspec import structs

from maitred.config.tree import Model, TokensFolder
from maitred.core.endpoints import EndpointTable
from maitred.core.events import Emit
from maitred.core.tokens import NoTokens
from maitred.core.words import Request
from maitred.door.beside import Beside
from maitred.door.ours import OurTokens
from maitred.door.read import Order
from maitred.door.source import Shared, Source
from maitred.door.theirs import TheirTokens
from maitred.net.pool import Pool
from maitred.observe.findings import Findings
from maitred.wire.prefix import TOKEN_BYTES, blocks_of, root

PERIOD_S = 1.0
KINDS = ("tokenizer_unusable", "template_mismatch", "tokens_unchecked")
"""The findings that are made and settled here."""


class Tokens:
    """All sources, by pool: `sources.get(pool)` is None for a model that has none."""

    def __init__(
        self,
        pool: Pool,
        table: EndpointTable,
        emit: Emit,
        findings: Findings,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.sources: dict[str, Source] = {}
        self._shared = Shared(pool, table, Beside(), emit, clock)
        self._findings = findings
        self._sleep = sleep

    def apply(self, models: Iterable[Model]) -> None:
        """From now on go by these models; a folder that works is not read again."""
        before = self.sources.copy()
        self.sources.clear()
        for model in models:
            if model.tokens is None:
                continue
            known = before.get(model.name)
            if known is None or known.model.tokens != model.tokens or not _goes_on(known, model):
                known = self._source(model)
            self.sources[model.name] = known

    def _source(self, model: Model) -> Source:
        if isinstance(model.tokens, TokensFolder):
            return OurTokens(model, self._shared, model.tokens.folder)
        return TheirTokens(model, self._shared)

    async def run(self) -> None:
        """Compare ids, until cancelled."""
        while True:
            await self.compare()
            await self._sleep(PERIOD_S)

    async def compare(self) -> None:
        """Have every source compared with the engines it was not compared with yet."""
        for source in list(self.sources.values()):
            await source.compare()
        wrong = [finding for source in self.sources.values() for finding in source.wrong()]
        self._findings.review(KINDS, wrong)

    def close(self) -> None:
        """Tell nothing more."""
        self._shared.beside.close()


async def told(source: Source, order: Order, block_tokens: int) -> Request:
    """The request of an order, and what its token ids tell of it; blocks only where these have a size."""
    request, route = order.request, order.route
    ids = await source(order)
    if isinstance(ids, NoTokens):
        return structs.replace(request, untold=ids)
    blocks: tuple[int, ...] = ()
    if block_tokens and route.keyed:
        blocks = blocks_of(root(route.pool, route.adapter), ids, block_tokens, order.salt)
    return structs.replace(
        request,
        prompt_tokens=len(ids) // TOKEN_BYTES,
        prompt_exact=True,
        blocks=blocks,
        block_tokens=block_tokens,
    )


def _goes_on(source: Source, model: Model) -> bool:
    """Whether a source of before does for this model."""
    if source.model.served_as != model.served_as:
        return False
    return not isinstance(source, OurTokens) or source.works
