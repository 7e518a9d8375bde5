"""A streamed chat answer -> the events of a response, sans I/O, wherever the network cut it.

A model says one thing after the other: when the next begins, the last is over. An answer that goes back to a
call it had left cannot be told in this order; no engine does that, and it counts as broken.
"""

from __future__ import annotations

from maitred.engines.errors import words
from maitred.wire.answers import UNREADABLE
from maitred.wire.responses.answer import BROKEN, Answer, Mine, Result, custom_names, nobodys
from maitred.wire.responses.create import Create
from maitred.wire.responses.events import Events
from maitred.wire.responses.items import Mint, Status
from maitred.wire.responses.response import Incomplete, Usage
from maitred.wire.responses.said import ChatCall, Choice, chat, failure, incomplete
from maitred.wire.responses.saying import (
    REFUSAL,
    TEXT,
    THOUGHT,
    Called,
    CustomCalled,
    Form,
    FunctionCalled,
    Hidden,
    Spoken,
)
from maitred.wire.sse import DONE, Event, Scanner


class Stream:
    """Feed what an engine streams, get what the client is to be told."""

    __slots__ = (
        "_early", "_error", "_events", "_mine", "_mint", "_open", "_result", "_scanner", "_usage"
    )  # fmt: skip

    def __init__(self, events: Events, mint: Mint, mine: Mine) -> None:
        self._scanner = Scanner()
        self._events = events
        self._mint = mint
        self._mine = mine
        self._open: Spoken | Called | None = None
        self._early: Incomplete = ""
        self._error = ""
        self._usage: Usage | None = None
        self._result = Result()

    def feed(self, data: bytes) -> bytes:
        """The next bytes of the engine's; events for the client, b"" for none."""
        told: list[bytes] = []
        for event in self._scanner.feed(data):
            if not self._error and event.data != DONE:
                self._take(event, told)
        return b"".join(told)

    def end(self, *, cut: bool = False) -> bytes:
        """The answer is over, or `cut`: what is open is closed."""
        told: list[bytes] = []
        wrong = bool(cut or self._error)
        nothing = self._open is None and not (self._result.items or self._result.calls)
        if nothing and not wrong:
            self._speak(TEXT, told)
        self._close("incomplete" if wrong or self._early else "completed", told)
        return b"".join(told)

    def answer(self) -> Answer:
        """What it came to."""
        result = self._result
        return Answer(result.items, result.calls, self._usage, self._early, self._error)

    def _take(self, event: Event, told: list[bytes]) -> None:
        """One event of the engine's."""
        raise NotImplementedError

    def _speak(self, form: Form, told: list[bytes]) -> Spoken:
        """What text of this form is to be added to."""
        speaking = self._open
        if isinstance(speaking, Spoken):
            if speaking.form is form:
                return speaking
            if speaking.form.item is form.item:
                told.append(speaking.change(form))
                return speaking
        self._close("completed", told)
        speaking = self._open = Spoken(self._events, self._mint(form.prefix), form)
        told.append(speaking.begin())
        return speaking

    def _close(self, status: Status, told: list[bytes]) -> None:
        if self._open is not None:
            told.append(self._open.close(status, self._result))
            self._open = None


class ChatStream(Stream):
    """The stream of a chat answer."""

    __slots__ = ("_custom", "_left")

    def __init__(self, events: Events, create: Create, mint: Mint, mine: Mine = nobodys) -> None:
        """`mine`: see `answer.read`."""
        super().__init__(events, mint, mine)
        self._custom = custom_names(create)
        self._left: set[int] = set()

    def _take(self, event: Event, told: list[bytes]) -> None:
        try:
            chunk = chat(event.data)
        except UNREADABLE:
            self._error = BROKEN
            return
        if chunk.error is not None or event.name == b"error":
            self._error = words(event.data)
            return
        if chunk.usage is not None:
            self._usage = chunk.usage.usage()
        for choice in chunk.choices or ():
            self._choose(choice, told)

    def _choose(self, choice: Choice, told: list[bytes]) -> None:
        if (delta := choice.delta) is not None:
            if thought := delta.reasoning or delta.reasoning_content:
                told.append(self._speak(THOUGHT, told).say(thought, None))
            if delta.content:
                logprobs = choice.logprobs.content if choice.logprobs is not None else None
                told.append(self._speak(TEXT, told).say(delta.content, logprobs))
            if delta.refusal:
                told.append(self._speak(REFUSAL, told).say(delta.refusal, None))
            for call in delta.tool_calls or ():
                self._call(call, told)
        if choice.finish_reason is not None:
            self._early = incomplete(choice.finish_reason)
            self._error = failure(choice.finish_reason)

    def _call(self, call: ChatCall, told: list[bytes]) -> None:
        function = call.function
        name = function.name if function is not None else None
        arguments = function.arguments if function is not None else None
        calling = self._open
        if not isinstance(calling, Called) or not _is_same(calling, call, name):
            if not name or (call.index in self._left and not call.id):
                self._error = BROKEN if arguments else ""
                return
            self._close("completed", told)
            calling = self._open = self._begin_call(call, name)
            self._left.add(call.index)
            told.append(calling.begin())
        if arguments:
            told.append(calling.say(arguments))

    def _begin_call(self, call: ChatCall, name: str) -> Called:
        call_id = call.id or self._mint("call")
        if self._mine(name):
            return Hidden(call_id, name, call.index)
        if name in self._custom:
            return CustomCalled(self._events, self._mint("ctc"), call_id, name, call.index)
        return FunctionCalled(self._events, self._mint("fc"), call_id, name, call.index)


def _is_same(calling: Called, call: ChatCall, name: str | None) -> bool:
    """Whether this goes on with a call. Some engines number all calls 0, and tell them apart by their ids."""
    return call.index == calling.index and not (name and call.id and call.id != calling.call_id)
