"""One item of a stream while it is being said: its events, and what it comes to.

A piece of text is written into bytes that are ready but for the text and the number; this runs for each token
of each stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from msgspec import Raw, structs
from msgspec.json import Encoder

from maitred.wire.responses.answer import Result, custom_input, text_part
from maitred.wire.responses.events import Events
from maitred.wire.responses.items import (
    CustomCall,
    FunctionCall,
    Logprob,
    Message,
    Reasoning,
    ReasoningText,
    RefusalPart,
    Status,
)

_encode = Encoder().encode

ADDED, DONE = "response.output_item.added", "response.output_item.done"
CUSTOM_INPUT = "response.custom_tool_call_input"
_NUMBER = b',"sequence_number":%d}\n\n'
_NO_LOGPROBS = b',"logprobs":[]' + _NUMBER

Members: TypeAlias = dict[str, Any]
_Spoken: TypeAlias = Callable[[list[Any], Status], Message | Reasoning]


class Form(NamedTuple):
    """A kind of text: `event` begins its events, the last has it as `member`; `part` and `item` hold it."""

    event: str
    member: str
    part: Callable[[str, list[Logprob]], Any]
    item: _Spoken
    prefix: str
    tail: bytes = _NUMBER


def _message(parts: list[Any], status: Status) -> Message:
    return Message(role="assistant", status=status, content=parts)


def _reasoning(parts: list[Any], status: Status) -> Reasoning:
    return Reasoning(content=parts, status=status)


TEXT = Form("response.output_text", "text", text_part, _message, "msg", _NO_LOGPROBS)
REFUSAL = Form("response.refusal", "refusal", lambda text, _: RefusalPart(text), _message, "msg")
THOUGHT = Form("response.reasoning_text", "text", lambda text, _: ReasoningText(text), _reasoning, "rs")


def opening(event: str, members: Members) -> bytes:
    """The bytes of a delta up to its text."""
    name = event.encode()
    data = _encode({"type": event, **members, "delta": ""})
    return b"event: %b\ndata: %b" % (name, data[: -len('""}')])


class Spoken:
    """A message or a thought; one of its parts is open."""

    __slots__ = ("_events", "_head", "_logprobs", "_members", "_parts", "_pieces", "form", "item_id")

    def __init__(self, events: Events, item_id: str, form: Form) -> None:
        self.form = form
        self.item_id = item_id
        self._events = events
        self._members: Members = {"item_id": item_id, "output_index": events.place()}
        self._parts: list[Any] = []

    def begin(self) -> bytes:
        """It appears, with its first part."""
        item = structs.replace(self.form.item([], "in_progress"), id=self.item_id)
        added = self._events.event(ADDED, {"output_index": self._members["output_index"], "item": item})
        return added + self._begin_part()

    def change(self, form: Form) -> bytes:
        """The same message goes on in another form."""
        ended = self._end_part()
        self.form = form
        return ended + self._begin_part()

    def say(self, text: str, logprobs: list[Logprob] | None) -> bytes:
        """A piece of its text."""
        self._pieces.append(text)
        events = self._events
        number = events.sequence
        events.sequence = number + 1
        if logprobs:
            self._logprobs += logprobs
            told = _encode(logprobs)
            return b'%b%b,"logprobs":%b,"sequence_number":%d}\n\n' % (self._head, _encode(text), told, number)
        return self._head + _encode(text) + self.form.tail % number

    def close(self, status: Status, result: Result) -> bytes:
        """It is over."""
        ended = self._end_part()
        kept = result.add(self.form.item(self._parts, status), self.item_id)
        members = {"output_index": self._members["output_index"], "item": Raw(kept.data)}
        return ended + self._events.event(DONE, members)

    def _begin_part(self) -> bytes:
        members = self._members
        members["content_index"] = len(self._parts)
        self._head = opening(self.form.event + ".delta", members)
        self._pieces: list[str] = []
        self._logprobs: list[Logprob] = []
        part = self.form.part("", [])
        return self._events.event("response.content_part.added", {**members, "part": part})

    def _end_part(self) -> bytes:
        events, members, form = self._events, self._members, self.form
        text = "".join(self._pieces)
        part = form.part(text, self._logprobs)
        self._parts.append(part)
        told: Members = {**members, form.member: text}
        if form is TEXT:
            told["logprobs"] = self._logprobs
        done = events.event(form.event + ".done", told)
        return done + events.event("response.content_part.done", {**members, "part": part})


class Called:
    """A call of a tool."""

    __slots__ = ("call_id", "index", "name", "pieces")

    def __init__(self, call_id: str, name: str, index: int) -> None:
        self.call_id, self.name, self.index = call_id, name, index
        self.pieces: list[str] = []

    def begin(self) -> bytes:
        """It appears."""
        return b""

    def say(self, arguments: str) -> bytes:
        """A piece of its arguments."""
        self.pieces.append(arguments)
        return b""

    def close(self, status: Status, result: Result) -> bytes:
        """It is over."""
        raise NotImplementedError


class Hidden(Called):
    """A call of a tool of the gateway's own: what the client is told of it is told by who calls."""

    __slots__ = ()

    def close(self, status: Status, result: Result) -> bytes:
        """See Called."""
        arguments = "".join(self.pieces)
        call = FunctionCall(call_id=self.call_id, name=self.name, arguments=arguments, status=status)
        result.calls.append(call)
        return b""


class _Told(Called):
    """A call that is an item of the output."""

    __slots__ = ("_events", "_members", "item_id")

    def __init__(self, events: Events, item_id: str, call_id: str, name: str, index: int) -> None:
        super().__init__(call_id, name, index)
        self._events = events
        self.item_id = item_id
        self._members: Members = {"item_id": item_id, "output_index": events.place()}

    def begin(self) -> bytes:
        """See Called."""
        item = structs.replace(self._item("", "in_progress"), id=self.item_id)
        return self._events.event(ADDED, {"output_index": self._members["output_index"], "item": item})

    def close(self, status: Status, result: Result) -> bytes:
        """See Called."""
        item = self._item("".join(self.pieces), status)
        kept = result.add(item, self.item_id)
        members = {"output_index": self._members["output_index"], "item": Raw(kept.data)}
        return self._done(item) + self._events.event(DONE, members)

    def _item(self, arguments: str, status: Status) -> Any:
        raise NotImplementedError

    def _done(self, item: Any) -> bytes:
        raise NotImplementedError


class FunctionCalled(_Told):
    """A call of a function of the client's."""

    __slots__ = ("_head",)

    delta = "response.function_call_arguments.delta"

    def begin(self) -> bytes:
        """See Called."""
        self._head = opening(self.delta, self._members)
        return super().begin()

    def say(self, arguments: str) -> bytes:
        """See Called."""
        self.pieces.append(arguments)
        events = self._events
        number = events.sequence
        events.sequence = number + 1
        return self._head + _encode(arguments) + _NUMBER % number

    def _item(self, arguments: str, status: Status) -> FunctionCall:
        return FunctionCall(call_id=self.call_id, name=self.name, arguments=arguments, status=status)

    def _done(self, item: FunctionCall) -> bytes:
        done = {**self._members, "name": item.name, "arguments": item.arguments}
        return self._events.event("response.function_call_arguments.done", done)


class CustomCalled(_Told):
    """A call of a custom tool; what it is called with is known only when it is whole."""

    __slots__ = ()

    def _item(self, arguments: str, status: Status) -> CustomCall:
        said = custom_input(arguments) if arguments else ""
        return CustomCall(call_id=self.call_id, name=self.name, input=said, status=status)

    def _done(self, item: CustomCall) -> bytes:
        events, members = self._events, self._members
        delta = events.event(CUSTOM_INPUT + ".delta", {**members, "delta": item.input})
        return delta + events.event(CUSTOM_INPUT + ".done", {**members, "input": item.input})


class NativeCustomCalled(FunctionCalled):
    """A call of a custom tool by an engine that knows such tools."""

    __slots__ = ()

    delta = CUSTOM_INPUT + ".delta"

    def _item(self, arguments: str, status: Status) -> CustomCall:  # type: ignore[override]
        return CustomCall(call_id=self.call_id, name=self.name, input=arguments, status=status)

    def _done(self, item: CustomCall) -> bytes:  # type: ignore[override]
        return self._events.event(CUSTOM_INPUT + ".done", {**self._members, "input": item.input})
