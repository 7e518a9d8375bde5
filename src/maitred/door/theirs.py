"""Token ids that engines tell."""

from __future__ import annotations

import asyncio

from maitred.config.tree import Model
from maitred.core.tokens import NoTokens
from maitred.core.words import Api
from maitred.door.beside import TIMEOUT_S, WAITING_MAX
from maitred.door.read import Order
from maitred.door.source import Refused, Shared, Source
from maitred.engines.tokenize import asking, packed, rendering
from maitred.net.pool import ConnectFailed
from maitred.wire.conversation import SENT, prompt


class TheirTokens(Source):
    """The engines tell: the one of the model with the least to do is asked. `model.tokens` says how."""

    def __init__(self, model: Model, shared: Shared) -> None:
        super().__init__(model, shared)
        self._under_way = 0

    async def _find(self, order: Order) -> bytes | NoTokens:
        if self._under_way >= WAITING_MAX:
            return NoTokens.BUSY
        self._under_way += 1
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self._ask(order.request.api, b"".join(order.parts))
        except TimeoutError:
            return NoTokens.TIMEOUT
        except (ConnectFailed, Refused, ValueError, OverflowError):
            return NoTokens.FAILED
        finally:
            self._under_way -= 1

    async def _ask(self, api: Api, body: bytes) -> bytes | NoTokens:
        asked = await self._shared.beside.run(lambda: prompt(api, body, parts=False, form=SENT))
        if isinstance(asked, NoTokens):
            return asked
        if isinstance(asked, list):
            return packed(asked)
        endpoint = min(self._shared.ready(self.model.name), key=lambda it: it.running, default=None)
        if endpoint is None:
            return NoTokens.FAILED
        rendered = self.model.tokens == "render"
        question = rendering(api, body) if rendered else asking(endpoint.facts.engine, api, body)
        if question is None:
            return NoTokens.UNSUPPORTED
        return await self._shared.ask(endpoint.url, question, 2 * TIMEOUT_S)
