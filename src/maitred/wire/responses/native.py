"""Asking an engine that speaks Responses itself: it gets all items each time, and keeps nothing.

What it answers is told anew, in the items, ids, numbers and order that clients of ours know: engines differ
in all of these, and llama.cpp's events have neither numbers nor places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from msgspec import structs
from msgspec.json import encode

from maitred.engines.errors import words
from maitred.wire.answers import UNREADABLE
from maitred.wire.responses.answer import BROKEN, Answer, Mine, Result, nobodys, text_part, thought
from maitred.wire.responses.create import Create
from maitred.wire.responses.events import Events
from maitred.wire.responses.items import (
    CustomCall,
    CustomOutput,
    FunctionCall,
    FunctionOutput,
    KeptItem,
    McpApprovalRequest,
    McpApprovalResponse,
    McpCall,
    McpListTools,
    Message,
    Mint,
    Part,
    RefusalPart,
    Unseal,
    all_kept,
    unsealed,
)
from maitred.wire.responses.messages import NO_CALL, served_output, since_compaction
from maitred.wire.responses.native_said import NativeItem, NativeResponse, response
from maitred.wire.responses.native_said import event as native_event
from maitred.wire.responses.reading import refuse
from maitred.wire.responses.saying import (
    REFUSAL,
    TEXT,
    THOUGHT,
    Called,
    Form,
    FunctionCalled,
    Hidden,
    NativeCustomCalled,
)
from maitred.wire.responses.stream import Stream
from maitred.wire.responses.tools import (
    AllowedTools,
    ChosenFunction,
    ChosenMcp,
    FunctionTool,
    McpTool,
    ToolChoice,
    function_name,
    offered,
)
from maitred.wire.sse import Event

UNKNOWN_ITEM = "the engine answered with an item that is not supported here"

_SAME = (
    "instructions", "max_output_tokens", "temperature", "top_p", "frequency_penalty", "presence_penalty",
    "prompt_cache_key", "user", "reasoning", "text", "top_logprobs", "include",
)  # fmt: skip


def request(
    create: Create,
    items: Iterable[bytes],
    *,
    stream: bool,
    tools: Sequence[FunctionTool] = (),
    unseal: Unseal = unsealed,
) -> bytes:
    """Return the body of a request for what `items` say; see `chat.request`."""
    said = create.said
    body: dict[str, Any] = {
        "model": said.model,
        "store": False,
        "input": _told(since_compaction(all_kept(items), unseal)),
    }
    if stream:
        body["stream"] = True
    for name in _SAME:
        if (value := getattr(said, name)) is not None:
            body[name] = value
    own = [tool for tool in offered(create.tools, said.tool_choice) if not isinstance(tool, McpTool)]
    if own or tools:
        body["tools"] = [*own, *tools]
        body["parallel_tool_calls"] = said.parallel_tool_calls is not False
        if (choice := _choice(said.tool_choice)) is not None:
            body["tool_choice"] = choice
    return encode(body)


def param(of_engine: str | None) -> str | None:
    """What a refusal names: the client's own words."""
    return of_engine


def _choice(choice: ToolChoice | None) -> Any:
    if isinstance(choice, AllowedTools):
        return choice.mode
    if not isinstance(choice, ChosenMcp):
        return choice
    if choice.name is None:
        return "required"
    return ChosenFunction(function_name(choice.server_label, choice.name))


def _told(items: Iterable[KeptItem]) -> list[KeptItem]:
    """The items that an engine is told; calls that the gateway made are calls of functions."""
    told: list[KeptItem] = []
    calls: set[str] = set()
    for item in items:
        if isinstance(item, FunctionCall | CustomCall):
            calls.add(item.call_id)
        elif isinstance(item, FunctionOutput | CustomOutput) and item.call_id not in calls:
            refuse(NO_CALL, "input")
        if isinstance(item, McpCall):
            told += _served(item)
        elif not isinstance(item, McpListTools | McpApprovalRequest | McpApprovalResponse):
            told.append(item)
    return told


def _served(call: McpCall) -> tuple[FunctionCall, FunctionOutput]:
    call_id = call.id or ""
    name = function_name(call.server_label, call.name)
    called = FunctionCall(id=call.id, call_id=call_id, name=name, arguments=call.arguments)
    return called, FunctionOutput(id=call.id, call_id=call_id, output=served_output(call))


def read(body: bytes, create: Create, mint: Mint, mine: Mine = nobodys) -> Answer:  # noqa: ARG001 - see `answer.read`
    """Read a whole response; see `answer.read`."""
    try:
        whole = response(body)
        said = [_item(item, mint) for item in whole.output]
    except UNREADABLE:
        return Answer([], error=BROKEN)
    except LookupError:
        return Answer([], error=UNKNOWN_ITEM)
    usage = whole.usage.usage() if whole.usage is not None else None
    failed = whole.failure
    if not said and not failed:
        said = [Message(role="assistant", content=[text_part("", [])])]
    if said and (whole.early or failed):
        said[-1] = structs.replace(said[-1], status="incomplete")
    result = Result().take(said, mine, mint)
    return Answer(result.items, result.calls, usage, whole.early, failed)


def _message(item: NativeItem, _mint: Mint) -> Message:
    parts: list[Part] = []
    for part in item.content or ():
        if part.refusal is not None:
            parts.append(RefusalPart(part.refusal))
        else:
            parts.append(text_part(part.text or "", part.logprobs or []))
    return Message(role="assistant", content=parts)


def _function(item: NativeItem, mint: Mint) -> FunctionCall:
    return FunctionCall(
        call_id=item.call_id or mint("call"), name=item.name or "", arguments=item.arguments or ""
    )


def _custom(item: NativeItem, mint: Mint) -> CustomCall:
    return CustomCall(call_id=item.call_id or mint("call"), name=item.name or "", input=item.input or "")


_KINDS: dict[str, Callable[[NativeItem, Mint], Any]] = {
    "message": _message,
    "reasoning": lambda item, _mint: thought(item.thinking, "completed"),
    "function_call": _function,
    "custom_tool_call": _custom,
}


def _item(item: NativeItem, mint: Mint) -> Any:
    return _KINDS[item.type](item, mint)


_Told: TypeAlias = list[bytes]


class NativeStream(Stream):
    """The stream of an engine's own response. `_said`: something of the item that is open was told."""

    __slots__ = ("_said",)

    def __init__(self, events: Events, create: Create, mint: Mint, mine: Mine = nobodys) -> None:  # noqa: ARG002
        """See `ChatStream`."""
        super().__init__(events, mint, mine)
        self._said = False

    def _take(self, event: Event, told: _Told) -> None:
        try:
            said = native_event(event.data)
        except UNREADABLE:
            self._error = BROKEN
            return
        kind = event.name.decode(errors="replace") or said.type
        if kind == "error" or said.error is not None:
            self._error = words(event.data)
        elif (form := _FORMS.get(kind)) is not None:
            if said.delta:
                told.append(self._speak(form, told).say(said.delta, said.logprobs))
                self._said = True
        elif kind in _CALLED:
            if isinstance(self._open, Called) and said.delta:
                told.append(self._open.say(said.delta))
                self._said = True
        elif said.item is not None:
            self._item(kind, said.item, told)
        elif said.response is not None and kind in _ENDS:
            self._conclude(said.response)

    def _item(self, kind: str, item: NativeItem, told: _Told) -> None:
        if item.type not in _KINDS:
            self._error = UNKNOWN_ITEM
        elif kind == "response.output_item.added":
            self._close("completed", told)
            self._said = False
            if item.type in _CALLS:
                self._open = self._begin_call(item)
                told.append(self._open.begin())
        elif kind == "response.output_item.done":
            if not self._said:
                self._say_whole(item, told)
            self._said = True

    def _say_whole(self, item: NativeItem, told: _Told) -> None:
        """Some engines tell an item only when it is there."""
        if item.type in _CALLS:
            if not isinstance(self._open, Called):
                self._close("completed", told)
                self._open = self._begin_call(item)
                told.append(self._open.begin())
            if text := item.input or item.arguments:
                told.append(self._open.say(text))
        elif item.type == "reasoning":
            if item.thinking:
                told.append(self._speak(THOUGHT, told).say(item.thinking, None))
        else:
            for part in item.content or ():
                form, text = (TEXT, part.text) if part.refusal is None else (REFUSAL, part.refusal)
                if text:
                    told.append(self._speak(form, told).say(text, part.logprobs))

    def _begin_call(self, item: NativeItem) -> Called:
        call_id, name = item.call_id or self._mint("call"), item.name or ""
        if item.type == "custom_tool_call":
            return NativeCustomCalled(self._events, self._mint("ctc"), call_id, name, 0)
        if self._mine(name):
            return Hidden(call_id, name, 0)
        return FunctionCalled(self._events, self._mint("fc"), call_id, name, 0)

    def _conclude(self, response: NativeResponse) -> None:
        if response.usage is not None:
            self._usage = response.usage.usage()
        self._early = response.early
        self._error = response.failure


_FORMS: dict[str, Form] = {
    "response.output_text.delta": TEXT,
    "response.refusal.delta": REFUSAL,
    "response.reasoning_text.delta": THOUGHT,
}
_CALLED = ("response.function_call_arguments.delta", "response.custom_tool_call_input.delta")
_CALLS = ("function_call", "custom_tool_call")
_ENDS = ("response.completed", "response.incomplete", "response.failed")
