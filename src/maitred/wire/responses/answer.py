"""A chat answer -> items, and what else is to be known of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Self, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.json import Decoder

from maitred.wire.answers import UNREADABLE
from maitred.wire.responses.create import Create
from maitred.wire.responses.items import (
    PREFIXES,
    CustomCall,
    FunctionCall,
    Item,
    KeptItem,
    Logprob,
    Message,
    Mint,
    OutputText,
    Part,
    Reasoning,
    ReasoningText,
    RefusalPart,
    Status,
    keep,
)
from maitred.wire.responses.response import Incomplete, Usage
from maitred.wire.responses.said import ChatCall, ChatFunction, Delta, chat, failure, incomplete
from maitred.wire.responses.tools import CustomTool

Mine: TypeAlias = Callable[[str], bool]
"""Whether a function of this name is the gateway's own to call."""

BROKEN = "the engine sent an answer that cannot be read"


def nobodys(_name: str) -> bool:
    """No function is the gateway's own."""
    return False


class Answer(Struct, frozen=True):
    """What one call of the model came to.

    `calls` are those of `items` that call a tool, and those that are the gateway's own. `incomplete`: why it
    ended early. `error`: what was wrong with it, "" for nothing.
    """

    items: list[Item]
    calls: list[FunctionCall | CustomCall] = []
    usage: Usage | None = None
    incomplete: Incomplete = ""
    error: str = ""


class Result(Struct):
    """Collects items as they come to their end."""

    items: list[Item] = []
    calls: list[FunctionCall | CustomCall] = []

    def add(self, item: KeptItem, item_id: str) -> Item:
        """One more."""
        kept = keep(item, item_id)
        self.items.append(kept)
        if isinstance(item, FunctionCall | CustomCall):
            self.calls.append(item)
        return kept

    def take(self, said: Iterable[KeptItem], mine: Mine, mint: Mint) -> Self:
        """All of these; calls of functions that are `mine` are no items, they are told as calls alone."""
        for item in said:
            if isinstance(item, FunctionCall) and mine(item.name):
                self.calls.append(item)
            else:
                self.add(item, mint(PREFIXES[type(item)]))
        return self


class _Arguments(Struct):
    input: str


_arguments = Decoder(_Arguments).decode


def custom_names(create: Create) -> frozenset[str]:
    """Names of the functions that stand for custom tools."""
    return frozenset(tool.name for tool in create.tools if isinstance(tool, CustomTool))


def custom_input(arguments: str) -> str:
    """The text in the arguments of a function that stands for a custom tool."""
    try:
        return _arguments(arguments).input
    except UNREADABLE:
        return arguments  # the model has not kept to the form; the client may still make sense of it


def text_part(text: str, logprobs: list[Logprob]) -> OutputText:
    """A text of the model's."""
    return OutputText(text, logprobs=logprobs)


def thought(text: str, status: Status) -> Reasoning:
    """A thought of the model's."""
    return Reasoning(content=[ReasoningText(text)], status=status)


def called(call: ChatCall, call_id: str, custom: frozenset[str], status: Status) -> FunctionCall | CustomCall:
    """A call of the model's."""
    function = call.function or ChatFunction()
    name, arguments = function.name or "", function.arguments or ""
    if name in custom:
        return CustomCall(call_id=call_id, name=name, input=custom_input(arguments), status=status)
    return FunctionCall(call_id=call_id, name=name, arguments=arguments, status=status)


def read(body: bytes, create: Create, mint: Mint, mine: Mine = nobodys) -> Answer:
    """Read a whole answer; of calls that are `mine` see `Result.take`."""
    try:
        whole = chat(body)
    except UNREADABLE:
        return Answer([], error=BROKEN)
    usage = whole.usage.usage() if whole.usage is not None else None
    choice = whole.choices[0] if whole.choices else None
    if choice is None or choice.message is None:
        return Answer([], usage=usage, error=BROKEN)
    early, wrong = incomplete(choice.finish_reason), failure(choice.finish_reason)
    logprobs = choice.logprobs.content if choice.logprobs is not None else None
    said = _said(choice.message, logprobs or [], custom_names(create), mint)
    if (early or wrong) and said:
        said[-1] = msgspec.structs.replace(said[-1], status="incomplete")
    result = Result().take(said, mine, mint)
    return Answer(result.items, result.calls, usage, early, wrong)


def _said(message: Delta, logprobs: list[Logprob], custom: frozenset[str], mint: Mint) -> list[Any]:
    """The items of a message, in the order in which models say them."""
    said: list[Any] = []
    if thinking := message.reasoning or message.reasoning_content:
        said.append(thought(thinking, "completed"))
    parts: list[Part] = []
    if message.content:
        parts.append(text_part(message.content, logprobs))
    if message.refusal:
        parts.append(RefusalPart(message.refusal))
    calls = message.tool_calls or ()
    if not parts and not calls and not said:
        parts.append(text_part("", []))
    if parts:
        said.append(Message(role="assistant", content=parts))
    said.extend(called(call, call.id or mint("call"), custom, "completed") for call in calls)
    return said
