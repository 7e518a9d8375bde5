"""One turn: what was said before, what is said now, what the model says to it. Read this first.

Its stations are a screen: remember, ask the model, keep, say that it is complete. A call of the model is a
journey like any other (`model.py`), run inside this turn's task; what a stream brings passes through in
callbacks (`telling.py`). Before the client hears the end, the store has all of the turn or nothing.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import chain

from maitred.core.outcome import Outcome, Refusal
from maitred.proxy.answer import STREAM_LINES
from maitred.responses.asked import Asked
from maitred.responses.errors import PREVIOUS, refusal_of
from maitred.responses.ids import RESPONSE, mint
from maitred.responses.mcp.tools import Tools
from maitred.responses.model import EngineRefused, Model
from maitred.responses.record import NO_HISTORY, Record
from maitred.responses.repeat import repeat
from maitred.responses.rounds import Work, rounds
from maitred.responses.settled import settled
from maitred.responses.telling import Audience, Telling
from maitred.store.rows import StoreError
from maitred.store.state_rows import LEFT, Bounds, History, Repeated, StateConflict
from maitred.wire.errors import id_lines
from maitred.wire.responses import response
from maitred.wire.responses.answer import Answer
from maitred.wire.responses.create import Create
from maitred.wire.responses.events import DONE, Events
from maitred.wire.responses.items import Item
from maitred.wire.responses.response import Response

NO_ANSWER = Answer([])
SSE_LINES = b"content-type: text/event-stream; charset=utf-8\r\n" + STREAM_LINES
"""The head of a stream that begins before an engine has answered."""


async def turn(asked: Asked, create: Create) -> Outcome:
    """Answer one turn. Raises Refusal, StateConflict or StoreError as long as nothing of it was said."""
    audience, events = Telling(asked.exchange), Events()
    this = Turn(asked, create, _begun(asked, create), events, audience)
    asked.exchange.watch(this.leave)
    try:
        await this.remember()
        answer = await this.ask() if not this.unwanted else NO_ANSWER
        if this.unwanted:
            return await this.give_up(answer)
        await this.keep(answer)
        return this.say()
    except EngineRefused as refused:
        await this.record.forget()
        return refused.tell(asked)
    except Repeated as before:
        return await repeat(asked, create, before.row)
    except (Refusal, StateConflict, StoreError) as wrong:
        if not audience.said:
            await this.record.forget()
            raise
        return _broken_off(asked, audience, events, wrong)
    finally:
        this.record.leave()


def _broken_off(
    asked: Asked, audience: Audience, events: Events, wrong: Refusal | StateConflict | StoreError
) -> Outcome:
    """Something went wrong of which the client has heard the beginning."""
    refusal = refusal_of(wrong)
    if isinstance(wrong, StoreError):
        asked.site.memory.failed(wrong)
    audience.end(events.error(refusal.outcome.code, refusal.message) + DONE)
    return refusal.outcome


def _begun(asked: Asked, create: Create) -> Response:
    return response.begin(create, mint(RESPONSE), int(asked.site.wall()))


class Turn:
    """What one turn has in hand. `record` is what the store holds of it.

    `tools` are those that the gateway runs, None where it wants none; `made` is what came of earlier rounds.
    """

    def __init__(
        self, asked: Asked, create: Create, response: Response, events: Events, audience: Audience
    ) -> None:
        self.asked = asked
        self.create = create
        self.response = response
        self.events = events
        self.audience = audience
        self.inputs: list[Item] = []
        self.history = NO_HISTORY
        self.record = Record(asked, create, response)
        self.tools: Tools | None = None
        self.made: list[Item] = []
        self.work = Work()
        self.model = Model(asked, create, response, events, audience)
        self._finishes = asked.site.kept(asked.tenant).on_leave == "finish"
        self._left = False

    @property
    def unwanted(self) -> bool:
        """Whether its client has left, and nobody else wants it."""
        return self._left and not self._finishes

    def leave(self) -> None:
        """The client has left."""
        self._left = True
        if self.unwanted:
            self.stop()

    def stop(self) -> None:
        """Have engine and tools stop, if they are at work."""
        self.work.stop()
        self.model.stop()

    # -- remember ---------------------------------------------------------------------------------

    async def remember(self) -> None:
        """Learn what was said before; where turns exclude each other, be the one that runs."""
        self.tools = self.asked.site.servers.tools(self.create, self.asked.tenant, mint)
        self.inputs = await settled(self.asked, self.create.input)
        try:
            await self._recall(self.create.said.previous_response_id, self.create.conversation_id)
        except Repeated:
            raise
        except StateConflict as wrong:
            named = "conversation" if self.create.conversation_id is not None else PREVIOUS
            raise refusal_of(wrong, named) from None
        self.asked.site.figures.recalled(len(self.history.items))

    async def _recall(self, previous: str | None, conversation: str | None) -> None:
        store, tenant, opens = self.asked.store, self.asked.tenant, self.record.wanted
        if previous is not None:
            self.history = await store.history(tenant, previous, self._bounds())
            self.record.root_id = self.history.root_id
        if opens and (conversation is not None or self.asked.idempotency_key):
            begun = await self._begin()
            self.history = begun if conversation is not None else self.history
        elif conversation is not None:
            self.history = await store.conversation_history(tenant, conversation, self._bounds())
        elif opens:
            await store.check()  # else only the end of the turn would show that it cannot be kept

    def _bounds(self) -> Bounds:
        site, truncate = self.asked.site, self.create.said.truncation == "auto"
        return Bounds(site.settings.items_max, site.config.http.body_bytes_max, truncate)

    def _begin(self) -> asyncio.Future[History]:
        """Have the store know of this turn from now on; nothing is said before it does."""
        return self.record.begin(self._bounds(), self.audience.open, self.stop)

    # -- ask the model ----------------------------------------------------------------------------

    async def ask(self) -> Answer:
        """Have the model answer to all that was said so far. Raises Refusal, EngineRefused."""
        if self.tools is None:
            answer = await self.ask_once()
        else:
            answer = await rounds(self, self.tools)
        if self.record.begun is not None:
            await self.record.begun
        return answer

    async def ask_once(self) -> Answer:
        """One call of it. Raises Refusal, EngineRefused."""
        return await self.model.ask(self.create, self.said(), self.session(), self.tools, self._sent)

    async def known(self) -> None:
        """Have the client know of it from now on, and so first the store."""
        self._told()
        if self.record.begun is not None:
            await self.record.begun
        if self.create.said.stream:
            self.model.announce(SSE_LINES + id_lines(None, self.asked.request_id))

    def _sent(self) -> None:
        """The request leaves for an engine. Who was refused before has left no trace in the store."""
        if self.create.said.stream:
            self._told()

    def _told(self) -> None:
        if not self.create.stored:
            self.audience.open()
        elif self.record.wanted:
            self._begin()

    def said(self) -> list[bytes]:
        """All items so far."""
        history = [row.data for row in self.history.items]
        return history + [item.data for item in chain(self.inputs, self.made)]

    def session(self) -> str:
        """What all turns of this conversation have in common, unless the client has a name for it."""
        if self.create.said.prompt_cache_key:
            return ""
        return self.create.conversation_id or self.history.root_id or self.response.id

    # -- keep -------------------------------------------------------------------------------------

    async def keep(self, answer: Answer) -> None:
        """Write the turn down whole, once."""
        if answer.error:
            self.response.fail(Outcome.FAILED_UPSTREAM, answer.error, answer.items)
        else:
            at_s = int(self.asked.site.wall())
            self.response.conclude(answer.items, answer.usage, at_s, answer.incomplete)
        if self.create.stored:
            await self.record.write(self.inputs, answer.items)

    async def fail(self, refusal: Refusal) -> None:
        """Write down that nothing came of it."""
        self.response.fail(refusal.outcome, refusal.message)
        await self.record.write(self.inputs, ())

    async def give_up(self, answer: Answer) -> Outcome:
        """Its client has left: what was delivered stays, and is not to be gone on from."""
        if self.audience.said and self.record.begun is not None:
            self.response.conclude(answer.items, answer.usage, int(self.asked.site.wall()), None)
            with suppress(StateConflict, StoreError):
                await self.record.write(self.inputs, answer.items, LEFT)
        else:
            await self.record.forget()
        return Outcome.CLIENT_GONE

    # -- say --------------------------------------------------------------------------------------

    def say(self) -> Outcome:
        """Tell the client that its turn is over."""
        if self.create.said.stream:
            self.audience.end(self.events.response(self.response.status, self.response) + DONE)
        else:
            self.asked.exchange.respond(200, self.model.headers, self.response.encode())
        return Outcome.COMPLETED if self.response.status != "failed" else Outcome.FAILED_UPSTREAM
