"""Asking the model within a turn: one call and its answer, whole or told to the audience as it comes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import structs

from maitred.core.outcome import Outcome, Refusal
from maitred.net.exchange import Flow
from maitred.proxy.journey import journey
from maitred.responses.asked import Asked
from maitred.responses.call import ModelCall, inner_head
from maitred.responses.ids import mint
from maitred.responses.telling import Audience
from maitred.wire.responses import answer as answers
from maitred.wire.responses import chat
from maitred.wire.responses.answer import Answer
from maitred.wire.responses.create import Create
from maitred.wire.responses.events import Events
from maitred.wire.responses.response import Response
from maitred.wire.responses.stream import ChatStream

BROKEN_OFF = "the answer was broken off"


class EngineRefused(Exception):  # noqa: N818 - names what happened
    """The engine would not take the request; `call` has what it said, in the client's shape."""

    def __init__(self, call: ModelCall) -> None:
        super().__init__()
        self.call = call


class Model:
    """The model of one turn. `sent` is called when a request leaves for an engine.

    `headers` are those of its last answer, as lines. `stopped`: its last answer was stopped.
    """

    def __init__(
        self,
        asked: Asked,
        create: Create,
        response: Response,
        events: Events,
        audience: Audience,
        sent: Callable[[], object],
    ) -> None:
        self.headers = b""
        self.stopped = False
        self._asked = asked
        self._create = create
        self._response = response
        self._events = events
        self._audience = audience
        self._sent = sent
        self._calls = 0
        self._call: ModelCall | None = None
        self._stream: ChatStream | None = None

    async def ask(self, items: Iterable[bytes], session: str) -> Answer:
        """Tell it what was said so far. Raises Refusal, EngineRefused, where nothing came of it."""
        asked, streamed = self._asked, bool(self._create.said.stream)
        body = chat.request(self._create, items, stream=streamed)
        band = asked.site.bands.get(self._create.said.service_tier or "", "")
        head = inner_head(asked.exchange.head, session, band)
        call = self._call = ModelCall(head, body, self._hear, self._fed, streamed=streamed)
        self._stream = ChatStream(self._events, self._create, mint) if streamed else None
        await journey(asked.service_in(band), call, self._next_id())
        asked.service.journeys.add(asked.task)  # which left it with the journey
        self._call = self._audience.source = None
        self.stopped = not call.over
        return self._answer(call)

    def stop(self) -> None:
        """Have the engine stop, if it is at work."""
        if self._call is not None:
            self._call.leave()

    def _next_id(self) -> str:
        """The first call is told of by the request's own id, and so instead of it."""
        self._calls += 1
        self._asked.called = True
        request_id = self._asked.request_id
        return request_id if self._calls == 1 else f"{request_id}-{self._calls}"

    def _fed(self, flow: Flow) -> None:
        self._audience.source = flow
        self._sent()

    def _hear(self, data: bytes) -> None:
        """The next bytes of the engine's stream."""
        stream, call = self._stream, self._call
        assert stream is not None  # noqa: S101 - only what is a stream is heard
        assert call is not None  # noqa: S101 - and while it runs
        if not self._events.sequence:
            self._audience.begin(call.headers)
            began = [self._events.response(kind, self._response) for kind in ("created", "in_progress")]
            self._audience.say(b"".join(began))
        if events := stream.feed(data):
            self._audience.say(events)

    def _answer(self, call: ModelCall) -> Answer:
        """What came of the call."""
        if call.refusal is not None:
            call.refusal.param = chat.param(call.refusal.param)
            raise call.refusal
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
        answer = answers.read(call.answer, self._create, mint)
        if answer.error:
            raise Refusal(Outcome.FAILED_UPSTREAM, answer.error)
        return answer
