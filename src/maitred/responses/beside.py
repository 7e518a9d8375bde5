"""What is asked about a conversation without going on with it: its tokens, counted, and a shorter form of it.

Both are calls of the model like those of a turn, of which nothing is kept. Only the engine knows how many
tokens its template makes, so it is asked for one more of them; what it read stays in its cache for the turn
that comes next.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

from maitred.core.outcome import Outcome, Refusal
from maitred.net.exchange import Flow
from maitred.responses.asked import Asked
from maitred.responses.ids import RESPONSE, mint
from maitred.responses.model import EngineRefused, route_of
from maitred.responses.turn import Turn
from maitred.wire.responses import beside, response
from maitred.wire.responses.answer import Answer
from maitred.wire.responses.create import Create, decode_compact, decode_count
from maitred.wire.responses.events import Events
from maitred.wire.responses.tools import McpTool

SUMMARY_TOKENS_MAX = 8192
"""So long may a summary be, or an eighth of the context: engines want room for as much beside the prompt."""


class Nobody:
    """An Audience (telling.py): these answers are no streams."""

    said = False
    source: Flow | None = None

    def begin(self, headers: bytes) -> None:
        """See Audience."""

    def open(self) -> None:
        """See Audience."""

    def say(self, events: bytes) -> None:
        """See Audience."""

    end = say


async def count(asked: Asked) -> Outcome:
    """Answer how many tokens a request has."""
    create = decode_count(asked.exchange.body)
    if any(isinstance(tool, McpTool) for tool in create.tools):
        raise Refusal(Outcome.BAD_REQUEST, "tools of servers are not counted", param="tools")

    def told(answer: Answer) -> bytes:
        if answer.usage is None:
            raise Refusal(Outcome.FAILED_UPSTREAM, "the engine does not say how many tokens it has read")
        return beside.counted(answer.usage)

    return await _ask(asked, create, lambda this: this.model.ask(create, this.said(), this.session()), told)


async def compact(asked: Asked) -> Outcome:
    """Answer with an item that stands for the conversation so far."""
    create = decode_compact(asked.exchange.body)
    route = route_of(asked, create)
    context = route.limits.context if route is not None else 0
    bounded = create.within(min(SUMMARY_TOKENS_MAX, context // 8 or SUMMARY_TOKENS_MAX))
    seal = await asked.store.seal()

    async def ask(this: Turn) -> Answer:
        items, session = beside.asking(this.said(), mint), this.session()
        with suppress(EngineRefused):
            return await this.model.ask(bounded, items, session)
        return await this.model.ask(create, items, session)  # there may be room for a shorter one

    def told(answer: Answer) -> bytes:
        summary = beside.summary(answer)
        if answer.incomplete or not summary:
            raise Refusal(Outcome.FAILED_UPSTREAM, "the model did not come to the end of its summary")
        sealed, now_s = seal.close(asked.tenant, summary), int(asked.site.wall())
        return beside.compacted(mint(RESPONSE), now_s, sealed, answer.usage, mint)

    return await _ask(asked, create, ask, told)


async def _ask(
    asked: Asked,
    create: Create,
    ask: Callable[[Turn], Awaitable[Answer]],
    told: Callable[[Answer], bytes],
) -> Outcome:
    """Ask the model about all that was said, and tell what is `told` of its answer."""
    begun = response.begin(create, mint(RESPONSE), 0)
    this = Turn(asked, create, begun, Events(), Nobody())
    asked.exchange.watch(this.leave)
    try:
        await this.remember()
        answer = await ask(this)
    except EngineRefused as refused:
        return refused.tell(asked)
    if this.unwanted:
        return Outcome.CLIENT_GONE
    asked.respond(told(answer))
    return Outcome.COMPLETED
