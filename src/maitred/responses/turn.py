"""One turn: what was said before, what is said now, what the model says to it. Read this first.

Its stations are a screen: remember, ask the model, keep, say that it is complete. A call of the model is a
journey like any other (`call.py`), run inside this turn's task; what a stream brings passes through in
callbacks (`telling.py`). Before the client hears the end, the store has all of the turn or nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain

from maitred.core.outcome import Outcome, Refusal
from maitred.net.exchange import Flow
from maitred.proxy.answer import STREAM_LINES
from maitred.proxy.journey import journey
from maitred.responses.asked import Asked
from maitred.responses.call import ModelCall, inner_head
from maitred.responses.errors import PREVIOUS, refusal_of
from maitred.responses.ids import RESPONSE, mint
from maitred.responses.refused import EngineRefused
from maitred.responses.repeat import repeat
from maitred.responses.rounds import Work, rounds
from maitred.responses.settled import settled
from maitred.responses.telling import Telling
from maitred.store.rows import StoreError
from maitred.store.state_rows import (
    LEFT,
    Bounds,
    Finish,
    History,
    NewItem,
    NewResponse,
    Repeated,
    StateConflict,
)
from maitred.wire.errors import id_lines
from maitred.wire.responses import answer as answers
from maitred.wire.responses import chat, response
from maitred.wire.responses.answer import Answer, nobodys
from maitred.wire.responses.create import Create
from maitred.wire.responses.events import DONE, Events
from maitred.wire.responses.items import Item
from maitred.wire.responses.stream import ChatStream

NO_HISTORY = History("")
SSE_LINES = b"content-type: text/event-stream; charset=utf-8\r\n" + STREAM_LINES
"""The head of a stream that begins before any engine was asked."""


async def turn(asked: Asked, create: Create) -> Outcome:
    """Answer one turn. Raises Refusal, StateConflict or StoreError as long as nothing of it was said."""
    this = Turn(asked, create)
    asked.exchange.watch(this.leave)
    try:
        await this.remember()
        answer = await this.ask()
        if this.unwanted:
            return await this.give_up(answer)
        await this.keep(answer)
        return this.say()
    except EngineRefused as refused:
        await this.forget()
        asked.exchange.respond(refused.call.status, refused.call.headers, refused.call.answer)
        return Outcome.ENGINE_REFUSED
    except Repeated as before:
        return await repeat(asked, create, before.row)
    except (Refusal, StateConflict, StoreError) as wrong:
        if not this.telling.said:
            await this.forget()
            raise
        refusal = wrong if isinstance(wrong, Refusal) else refusal_of(wrong)
        this.telling.end(this.events.error(refusal.outcome.code, refusal.message) + DONE)
        return refusal.outcome


class Turn:
    """What one turn has in hand. `begun` is the writing of its row, where that comes before its end.

    `tools` are those that the gateway runs, None where it wants none; `made` is what came of earlier rounds.
    """

    def __init__(self, asked: Asked, create: Create) -> None:
        self.asked = asked
        self.create = create
        self.response = response.begin(create, mint(RESPONSE), int(asked.site.wall()))
        self.events = Events()
        self.telling = Telling(asked.exchange)
        self.inputs: list[Item] = []
        self.history = NO_HISTORY
        self.begun: asyncio.Future[History] | None = None
        self.work = Work()
        self.made: list[Item] = []
        self.tools = asked.site.servers.tools(create, asked.tenant, mint)
        self._finishes = asked.site.kept(asked.tenant).on_leave == "finish"
        self._left = False
        self._headers = b""
        self._rounds = 0
        self._call: ModelCall | None = None
        self._stream: ChatStream | None = None

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
        """Have the engine stop, if it is at work."""
        self.work.stop()
        if self._call is not None:
            self._call.leave()

    # -- remember ---------------------------------------------------------------------------------

    async def remember(self) -> None:
        """Learn what was said before; where turns exclude each other, be the one that runs."""
        self.inputs = await settled(self.asked, self.create.input)
        try:
            await self._recall(self.create.said.previous_response_id, self.create.conversation_id)
        except Repeated:
            raise
        except StateConflict as wrong:
            named = "conversation" if self.create.conversation_id is not None else PREVIOUS
            raise refusal_of(wrong, named) from None

    async def _recall(self, previous: str | None, conversation: str | None) -> None:
        store, tenant, stored = self.asked.store, self.asked.tenant, self.create.stored
        if previous is not None:
            self.history = await store.history(tenant, previous, self._bounds())
        if stored and (conversation is not None or self.asked.idempotency_key):
            begun = await self._begin()
            self.history = begun if conversation is not None else self.history
        elif conversation is not None:
            self.history = await store.conversation_history(tenant, conversation, self._bounds())
        elif stored and previous is None:
            await store.check()  # else only the end of the turn would show that it cannot be kept

    def _bounds(self) -> Bounds:
        site, truncate = self.asked.site, self.create.said.truncation == "auto"
        return Bounds(site.settings.items_max, site.config.http.body_bytes_max, truncate)

    def _begin(self) -> asyncio.Future[History]:
        """Have the store know of this turn from now on; nothing is said before it does."""
        site = self.asked.site
        now_ms = site.now_ms()
        writing = self.asked.store.begin(self._new(now_ms), self._bounds(), now_ms, now_ms + site.lease_ms)
        self.begun = begun = asyncio.ensure_future(writing)
        begun.add_done_callback(self._has_begun)
        return begun

    def _has_begun(self, begun: asyncio.Future[History]) -> None:
        if not begun.cancelled() and begun.exception() is None:
            self.asked.site.running[self.response.id] = self.stop
            self.telling.open()
        else:
            self.stop()  # what cannot be kept is not worth the engine's time

    def _new(self, now_ms: int) -> NewResponse:
        create, asked = self.create, self.asked
        return NewResponse(
            id=self.response.id,
            tenant=asked.tenant,
            model=create.said.model,
            snapshot=self.response.snapshot(),
            created_ms=now_ms,
            expires_ms=asked.expires_ms(now_ms),
            previous_id=create.said.previous_response_id,
            root_id=self.history.root_id,
            conversation_id=create.conversation_id,
            idempotency_key=asked.idempotency_key or None,
            digest=asked.digest if asked.idempotency_key else b"",
        )

    # -- ask the model ----------------------------------------------------------------------------

    async def ask(self) -> Answer:
        """Have the model say what it has to say. Raises Refusal, EngineRefused."""
        if self.unwanted:
            return Answer([])
        if self.tools is None:
            return await self.ask_once()
        if self.create.stored and self.begun is None:
            await self._begin()  # tools may do something before the model is asked
        if self.create.said.stream:
            self._announce(SSE_LINES + id_lines(None, self.asked.request_id))
        return await rounds(self, self.tools)

    async def ask_once(self) -> Answer:
        """Call the model with all that was said so far. Raises Refusal, EngineRefused."""
        asked, create, tools = self.asked, self.create, self.tools
        streamed = bool(create.said.stream)
        functions = tools.functions if tools is not None else ()
        mine = tools.mine if tools is not None else nobodys
        body = chat.request(create, self.said(), stream=streamed, tools=functions)
        band = asked.site.bands.get(create.said.service_tier or "", "")
        head = inner_head(asked.exchange.head, self._session(), band)
        call = self._call = ModelCall(head, body, self._hear, self._fed, streamed=streamed)
        self._stream = ChatStream(self.events, create, mint, mine) if streamed else None
        if not create.stored:
            self.telling.open()
        asked.called = True
        self._rounds += 1
        later = f"-{self._rounds}" if self._rounds > 1 else ""  # each is a request of its own
        await journey(asked.service_in(band), call, asked.request_id + later)
        asked.service.journeys.add(asked.task)  # which left it with the journey
        self._call = self.telling.source = None
        if self.begun is not None:
            await self.begun
        return self._answer(call)

    def _session(self) -> str:
        """What all turns of this conversation have in common, unless the client has a name for it."""
        if self.create.said.prompt_cache_key:
            return ""
        return self.create.conversation_id or self.history.root_id or self.response.id

    def said(self) -> Iterator[bytes]:
        """All items so far, oldest first."""
        history = (row.data for row in self.history.items)
        return chain(history, (item.data for item in chain(self.inputs, self.made)))

    @property
    def told_events(self) -> Events | None:
        """Where events are written, None where nobody streams."""
        return self.events if self.create.said.stream else None

    def _fed(self, flow: Flow) -> None:
        """The request leaves for an engine. Who was refused before has left no trace in the store."""
        self.telling.source = flow
        if self._stream is not None and self.create.stored and self.begun is None:
            self._begin()

    def _hear(self, data: bytes) -> None:
        """The next bytes of the engine's stream."""
        assert self._stream is not None  # noqa: S101 - only what is a stream is heard
        if not self.events.sequence:
            assert self._call is not None  # noqa: S101 - somebody answers
            self._announce(self._call.headers)
        if events := self._stream.feed(data):
            self.telling.say(events)

    def _announce(self, headers: bytes) -> None:
        self.telling.begin(headers)
        began = [self.events.response(kind, self.response) for kind in ("created", "in_progress")]
        self.telling.say(b"".join(began))

    def _answer(self, call: ModelCall) -> Answer:
        """What came of the call."""
        if call.refusal is not None:
            call.refusal.param = chat.param(call.refusal.param)
            raise call.refusal
        if call.started and call.status != 200:
            raise EngineRefused(call)
        self._headers = call.headers
        if self._stream is not None:
            if self.events.sequence and (events := self._stream.end(cut=not call.whole)):
                self.telling.say(events)
            return self._stream.answer()
        if not call.whole:
            if self._left:
                return Answer([])
            raise Refusal(Outcome.FAILED_TRUNCATED, "the engine's answer broke off")
        answer = answers.read(call.answer, self.create, mint, self.tools.mine if self.tools else nobodys)
        if answer.error:
            raise Refusal(Outcome.FAILED_UPSTREAM, answer.error)
        return answer

    # -- keep -------------------------------------------------------------------------------------

    async def keep(self, answer: Answer) -> None:
        """Write the turn down whole, once."""
        if answer.error:
            self.response.fail(Outcome.FAILED_UPSTREAM, answer.error, answer.items)
        else:
            at_s = int(self.asked.site.wall())
            self.response.conclude(answer.items, answer.usage, at_s, answer.incomplete)
        if self.create.stored:
            await self._write(answer)

    async def _write(self, answer: Answer, reason: str | None = None) -> None:
        items = [NewItem(item.id, item.data) for item in self.inputs]
        items += (NewItem(item.id, item.data, output=True) for item in answer.items)
        snapshot, status = self.response.snapshot(), self.response.status
        finish = Finish(self.asked.tenant, self.response.id, status, snapshot, items, reason)
        if self.begun is None:
            await self.asked.store.keep(self._new(self.asked.site.now_ms()), finish)
        else:
            self.asked.site.running.pop(self.response.id, None)
            await self.asked.store.finish(finish)

    async def give_up(self, answer: Answer) -> Outcome:
        """Its client has left: what was delivered stays, and is not to be gone on from."""
        if self.telling.said and self.begun is not None:
            self.response.conclude(answer.items, answer.usage, int(self.asked.site.wall()), None)
            with suppress(StateConflict, StoreError):
                await self._write(answer, LEFT)
        else:
            await self.forget()
        return Outcome.CLIENT_GONE

    async def forget(self) -> None:
        """Nobody has heard of this turn, so nothing of it stays."""
        begun, self.begun = self.begun, None
        if begun is None:
            return
        with suppress(StateConflict, StoreError):
            await begun
            self.asked.site.running.pop(self.response.id, None)
            await self.asked.store.delete_response(self.asked.tenant, self.response.id)

    # -- say --------------------------------------------------------------------------------------

    def say(self) -> Outcome:
        """Tell the client that its turn is over."""
        if self._stream is not None:
            self.telling.end(self.events.response(self.response.status, self.response) + DONE)
        else:
            self.asked.exchange.respond(200, self._headers, self.response.encode())
        return Outcome.COMPLETED if self.response.status != "failed" else Outcome.FAILED_UPSTREAM
