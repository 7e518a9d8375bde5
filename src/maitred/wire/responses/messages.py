"""Items as the messages of a chat.

What a model said in one go (thoughts, words, calls) is one message again, so that the template writes what
the model wrote and the engine finds it in its cache. Instructions, and what the system or the developer says
before anybody else, are one system message, because many templates know only one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from msgspec.json import encode

from maitred.wire.responses.items import (
    Compaction,
    CustomCall,
    CustomOutput,
    FunctionCall,
    FunctionOutput,
    InputImage,
    InputText,
    KeptItem,
    McpCall,
    Message,
    OutputText,
    Part,
    Reasoning,
    RefusalPart,
    Unseal,
)
from maitred.wire.responses.reading import refuse
from maitred.wire.responses.tools import function_name

CUSTOM_INPUT = "input"
"""A custom tool is a function with this one text."""

NO_CALL = "there is an output here whose call_id belongs to no call before it"
SO_FAR = "What was said so far, in short:\n\n"

_Json: TypeAlias = dict[str, Any]


def served_output(call: McpCall) -> str:
    """What the model is told of a call that the gateway had answered."""
    if call.output is not None:
        return call.output
    return encode({"error": call.error}).decode() if call.error is not None else ""


def messages(instructions: str | None, items: Iterable[KeptItem]) -> list[_Json]:
    """Return the messages that say what items say."""
    writer = _Writer(instructions)
    for item in items:
        if (add := _ADD.get(type(item))) is not None:
            add(writer, item)
    return writer.written()


def since_compaction(items: Iterable[KeptItem], unseal: Unseal) -> list[KeptItem]:
    """The items that count: a compaction stands for all before it, and is what the system says of them."""
    counted: list[KeptItem] = []
    for item in items:
        if isinstance(item, Compaction):
            counted = [Message(role="system", content=[InputText(SO_FAR + _opened(item, unseal))])]
        else:
            counted.append(item)
    return counted


def _opened(item: Compaction, unseal: Unseal) -> str:
    try:
        return unseal(item.encrypted_content)
    except ValueError:
        refuse("a compaction among what was said can no longer be opened", "input")


class _Writer:
    """Writes messages, one item after the other. `_turn` is the message of the model that may still grow."""

    __slots__ = ("_calls", "_messages", "_turn")

    def __init__(self, instructions: str | None) -> None:
        self._messages: list[_Json] = []
        self._turn: _Json | None = None
        self._calls: set[str] = set()
        if instructions:
            self._messages.append({"role": "system", "content": instructions})

    def written(self) -> list[_Json]:
        """All of them."""
        for message in self._messages:
            if "content" not in message:  # null goes with calls alone
                message["content"] = None if "tool_calls" in message else ""
        return self._messages

    def say(self, message: Message) -> None:
        """Somebody says something."""
        if message.role == "assistant":
            self._growing("content", "tool_calls")["content"] = _text_of(message.content)
            return
        self._turn = None
        role = "user" if message.role == "user" else "system"
        content = _content(message.content)
        first = self._messages[0] if len(self._messages) == 1 else None
        if role == "system" and first is not None and first["role"] == "system":
            first["content"] = f"{_text(first['content'])}\n\n{_text(content)}"
        else:
            self._messages.append({"role": role, "content": content})

    def think(self, thought: Reasoning) -> None:
        """The model thinks. Engines do not agree on the name: vLLM's first, then that of all others."""
        parts = thought.content if thought.content is not None else thought.summary
        text = "\n".join(part.text for part in parts)
        if text:
            turn = self._growing("reasoning", "content", "tool_calls")
            turn["reasoning"] = turn["reasoning_content"] = text

    def call(self, call: FunctionCall | CustomCall) -> None:
        """The model calls."""
        if isinstance(call, CustomCall):
            arguments = encode({CUSTOM_INPUT: call.input}).decode()
        else:
            arguments = call.arguments
        self._call(call.call_id, call.name, arguments)

    def hear(self, output: FunctionOutput | CustomOutput) -> None:
        """A tool answers."""
        if output.call_id not in self._calls:
            refuse(NO_CALL, "input")
        self._tool(output.call_id, _content(output.output))

    def served(self, call: McpCall) -> None:
        """The model called, and the gateway had it answered."""
        call_id = call.id or ""
        self._call(call_id, function_name(call.server_label, call.name), call.arguments)
        self._tool(call_id, served_output(call))

    def _call(self, call_id: str, name: str, arguments: str) -> None:
        self._calls.add(call_id)
        calls = self._growing().setdefault("tool_calls", [])
        calls.append({"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}})

    def _tool(self, call_id: str, content: str | list[_Json]) -> None:
        self._turn = None
        self._messages.append({"role": "tool", "tool_call_id": call_id, "content": content})

    def _growing(self, *closed_by: str) -> _Json:
        """The model's message to go on with; another one when it has said one of these."""
        turn = self._turn
        if turn is None or any(name in turn for name in closed_by):
            turn = self._turn = {"role": "assistant"}
            self._messages.append(turn)
        return turn


_ADD: dict[type, Callable[[_Writer, Any], None]] = {
    Message: _Writer.say,
    Reasoning: _Writer.think,
    FunctionCall: _Writer.call,
    CustomCall: _Writer.call,
    FunctionOutput: _Writer.hear,
    CustomOutput: _Writer.hear,
    McpCall: _Writer.served,
}
"""What the model is told. Lists of tools are tools of the request, an approval is answered by its call."""


def _content(said: str | Sequence[Part]) -> str | list[_Json]:
    """Return content as chat has it: a single text as such, which all templates know, else parts."""
    if isinstance(said, str):
        return said
    if len(said) == 1 and isinstance(said[0], InputText):
        return said[0].text
    return [_part(part) for part in said]


def _part(part: Part) -> _Json:
    if isinstance(part, InputImage):
        return {"type": "image_url", "image_url": {"url": part.image_url, "detail": part.detail}}
    return {"type": "text", "text": _words(part)}


def _words(part: Part) -> str:
    if isinstance(part, OutputText | InputText):
        return part.text
    return part.refusal if isinstance(part, RefusalPart) else ""


def _text_of(said: str | Sequence[Part]) -> str:
    return said if isinstance(said, str) else "".join(_words(part) for part in said)


def _text(content: str | list[_Json]) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)
