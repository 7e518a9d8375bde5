"""Asking the model within a turn: one call and its answer, whole or told to the audience as it comes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from msgspec import structs

from maitred.control.models import Route
from maitred.core.outcome import Outcome, Refusal
from maitred.core.words import Api
from maitred.engines.errors import overflow, words
from maitred.net.exchange import Flow
from maitred.proxy.journey import journey
from maitred.responses.aside import ITEMS_MAX, aside
from maitred.responses.asked import JSON_LINES, Asked
from maitred.responses.call import ModelCall, inner_head
from maitred.responses.ids import mint
from maitred.responses.mcp.tools import Tools
from maitred.responses.telling import Audience
from maitred.wire import errors
from maitred.wire.errors import id_lines
from maitred.wire.responses.answer import Answer, Mine, nobodys
from maitred.wire.responses.create import Create
from maitred.wire.responses.dialects import CHAT, NATIVE, Dialect
from maitred.wire.responses.events import Events
from maitred.wire.responses.response import Response
from maitred.wire.responses.stream import Stream
from maitred.wire.responses.tools import FunctionTool

BROKEN_OFF = "the answer was broken off"


def nothing() -> None:
    """Nobody wants to know."""


class EngineRefused(Exception):  # noqa: N818 - names what happened
    """The engine would not take the request; `call` has what it said."""

    def __init__(self, call: ModelCall) -> None:
        super().__init__()
        self.call = call

    @property
    def message(self) -> str:
        """What it said, in words."""
        return words(self.call.answer) or "the engine refused it"

    def tell(self, asked: Asked) -> Outcome:
        """Answer with its status and its words, in the shape that all errors have here."""
        outcome = Outcome.ENGINE_REFUSED if overflow(self.call.answer) is None else Outcome.CONTEXT_TOO_LONG
        error = errors.body(Refusal(outcome, self.message), Api.CHAT, asked.request_id)
        asked.respond(error, self.call.status)
        return Outcome.ENGINE_REFUSED


def route_of(asked: Asked, create: Create) -> Route | None:
    """The model that is asked for; None where there is no such one."""
    models, name = asked.service.models, create.said.model
    return models.find(name) if name else models.only


def dialect_of(asked: Asked, create: Create) -> Dialect:
    """How the engines of the model that is asked for are asked."""
    route = route_of(asked, create)
    return NATIVE if route is not None and route.native else CHAT


async def written(
    asked: Asked,
    dialect: Dialect,
    create: Create,
    items: Sequence[bytes],
    tools: Sequence[FunctionTool] = (),
) -> bytes:
    """The body of a request to an engine for what these items say. Raises Refusal, StoreError."""
    unseal, stream = await asked.unsealing(), bool(create.said.stream)
    return await aside(
        lambda: dialect.request(create, items, stream=stream, tools=tools, unseal=unseal),
        large=len(items) > ITEMS_MAX,
    )


class Model:
    """The model of one turn.

    `headers` are those of its last answer, as lines. `stopped`: its last was stopped, or is not to be made.
    """

    def __init__(
        self,
        asked: Asked,
        create: Create,
        response: Response,
        events: Events,
        audience: Audience,
    ) -> None:
        self.headers = JSON_LINES + id_lines(None, asked.request_id)
        self.stopped = False
        self._asked = asked
        self._create = create
        self._response = response
        self._events = events
        self._audience = audience
        self._mine: Mine = nobodys
        self._ahead: list[bytes] = []
        self._announced = False
        self._calls = 0
        self._dialect = dialect_of(asked, create)
        self._call: ModelCall | None = None
        self._stream: Stream | None = None

    async def ask(
        self,
        create: Create,
        items: Sequence[bytes],
        session: str,
        tools: Tools | None = None,
        sent: Callable[[], object] = nothing,
    ) -> Answer:
        """Tell it what was said so far. Raises Refusal, EngineRefused, where nothing came of it.

        `tools` are those that the gateway runs; their calls are no items of the answer. `sent` is called
        when the request leaves for an engine.
        """
        self._create, self._mine = create, tools.mine if tools is not None else nobodys
        asked, dialect, streamed = self._asked, self._dialect, bool(create.said.stream)
        functions = tools.functions if tools is not None else ()
        body = await written(asked, dialect, create, items, functions)
        if self.stopped:
            return Answer([], error=BROKEN_OFF)
        band = asked.site.bands.get(create.said.service_tier or "", "")
        head = inner_head(asked.exchange.head, session, band, dialect.path)
        call = self._call = ModelCall(head, body, self._hear, partial(self._fed, sent), streamed=streamed)
        self._stream = dialect.stream(self._events, create, mint, self._mine) if streamed else None
        request_id = self._next_id()
        asked.service.journeys[request_id] = asked.task
        await journey(asked.service_in(band), call, request_id)
        self._call = self._audience.source = None
        self.stopped = not call.over
        return self._answer(call)

    def stop(self) -> None:
        """Have the engine stop, if it is at work, or not begin."""
        self.stopped = True
        if self._call is not None:
            self._call.leave()

    def announce(self, headers: bytes) -> None:
        """Begin to tell of the response, unless that was done; `headers` are the head's lines."""
        if not self._announced:
            self._announced = True
            self.prepare()
            self._audience.begin(headers)
            self.tell(b"".join(self._ahead))

    def prepare(self) -> None:
        """Make the first events, unless that was done; they are told when its answer begins."""
        if not self._events.sequence:
            began = [self._events.response(kind, self._response) for kind in ("created", "in_progress")]
            self._ahead += began

    def tell(self, events: bytes) -> None:
        """Tell of what happens beside it, but not before its answer begins: till then it may be refused."""
        if not self._announced:
            self._ahead.append(events)
        elif events:
            self._audience.say(events)

    def _next_id(self) -> str:
        """The first call is told of by the request's own id, and so instead of it."""
        self._calls += 1
        self._asked.called = True
        request_id = self._asked.request_id
        return request_id if self._calls == 1 else f"{request_id}-{self._calls}"

    def _fed(self, sent: Callable[[], object], flow: Flow) -> None:
        self._audience.source = flow
        sent()

    def _hear(self, data: bytes) -> None:
        """The next bytes of the engine's stream."""
        stream, call = self._stream, self._call
        assert stream is not None  # noqa: S101 - only what is a stream is heard
        assert call is not None  # noqa: S101 - and while it runs
        self.announce(call.headers)
        if events := stream.feed(data):
            self._audience.say(events)

    def _answer(self, call: ModelCall) -> Answer:
        """What came of the call."""
        if call.refusal is not None:
            raise self._taken(call, call.refusal)
        if call.started and call.status != 200:
            raise EngineRefused(call)
        self.headers = call.headers
        if self._stream is not None:
            if self._events.sequence and (events := self._stream.end(cut=not call.whole)):
                self._audience.say(events)
            answer = self._stream.answer()
            return answer if call.whole else structs.replace(answer, error=answer.error or BROKEN_OFF)
        if not call.over:
            return Answer([], error=BROKEN_OFF)
        if not call.whole:
            raise Refusal(Outcome.FAILED_TRUNCATED, BROKEN_OFF)
        answer = self._dialect.read(call.answer, self._create, mint, self._mine)
        if answer.error:
            raise Refusal(Outcome.FAILED_UPSTREAM, answer.error)
        return answer

    def _taken(self, call: ModelCall, refusal: Refusal) -> Refusal:
        """The refusal, in words of Responses. Once raised it holds the call, which must not hold it."""
        call.refusal = None
        refusal.param = self._dialect.param(refusal.param)
        return refusal
