"""What of a body becomes the prompt, in the form in which engines hand it to a chat template.

Engines do not give the template what the client sent: contents become texts or lists of parts, arguments
of tool calls become objects, tools are filled up with what their schema knows. Token ids are equal only if
all of that is done alike, so this follows vLLM, which SGLang follows too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import DecodeError, Struct
from msgspec.json import decode, encode

from maitred.core.words import Api

TEXTS = {
    "text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal", "thinking": "thinking"
}  # fmt: skip
"""Parts of a content that are text, and the member it is in."""

ABSENT = object()

ToolForm = Mapping[str, Any]
"""Members of a function in their order, and what stands for one that is not said."""

SENT: ToolForm = {}
TOOL_FORMS: tuple[ToolForm, ...] = (
    {"name": ABSENT, "description": None, "parameters": None},
    {"name": ABSENT, "description": ABSENT, "parameters": ABSENT, "strict": ABSENT},
    {"name": ABSENT, "description": None, "parameters": None, "strict": None, "defer_loading": None},
    {"description": None, "name": ABSENT, "parameters": None, "strict": False},
    SENT,
)
"""How versions of engines hand tools on; which one an engine does is seen by its token ids."""


class Unsupported(ValueError):  # noqa: N818 - says what is asked for
    """What cannot be rendered as the engine would."""


class Conversation(Struct, frozen=True):
    """The arguments of a chat template."""

    messages: list[dict[str, Any]]
    tools: list[Any] | None
    extras: dict[str, Any]


Prompt = Conversation | str | list[int]
"""A conversation, a text that special tokens are added to, or token ids."""


def prompt(api: Api, body: bytes, *, parts: bool, form: ToolForm) -> Prompt:
    """What the model is to read. `parts`: the template takes contents as lists of parts.

    Raises Unsupported, and KeyError, TypeError or the like where the body is not as its API has it.
    """
    said = decode(body)
    if api is Api.COMPLETIONS:
        return _text(said)
    return _conversation(_from_anthropic(said) if api is Api.MESSAGES else said, parts=parts, form=form)


def _text(said: dict[str, Any]) -> Prompt:
    asked = said["prompt"]
    if isinstance(asked, list) and len(asked) == 1 and not isinstance(asked[0], int):
        asked = asked[0]
    if said.get("add_special_tokens") is False or said.get("suffix"):
        raise Unsupported
    if isinstance(asked, str) or (isinstance(asked, list) and all(type(it) is int for it in asked)):
        return asked
    raise Unsupported


def _conversation(said: dict[str, Any], *, parts: bool, form: ToolForm) -> Conversation:
    if said.get("chat_template") or said.get("continue_final_message") or said.get("add_special_tokens"):
        raise Unsupported
    extras = dict(said.get("chat_template_kwargs") or {})
    if extras.keys() & {"chat_template", "tokenize"}:
        raise Unsupported
    extras.setdefault("add_generation_prompt", said.get("add_generation_prompt", True))
    for name in ("documents", "reasoning_effort"):
        if (value := said.get(name)) is not None:
            extras.setdefault(name, value)
    tools = said.get("tools")
    return Conversation(
        [_message(it, parts=parts) for it in said["messages"]],
        None if tools is None else [_tool(tool, form) for tool in tools],
        extras,
    )


def _message(said: dict[str, Any], *, parts: bool) -> dict[str, Any]:
    role = said["role"]
    texts = _texts(said.get("content"))
    as_parts = parts and role != "tool"
    message: dict[str, Any] = {
        "role": role,
        "content": [{"type": "text", "text": text} for text in texts] if as_parts else "\n".join(texts),
    }
    if role == "assistant":
        if calls := said.get("tool_calls"):
            message["tool_calls"] = [_call(call) for call in calls]
        if (reasoning := said.get("reasoning", said.get("reasoning_content"))) is not None:
            message["reasoning"] = message["reasoning_content"] = reasoning
    elif role == "tool" and "tool_call_id" in said:
        message["tool_call_id"] = said["tool_call_id"]
    elif role == "developer":
        message["tools"] = said.get("tools")
    if isinstance(name := said.get("name"), str):
        message["name"] = name
    return message


def _texts(content: str | list[Any] | None) -> list[str]:
    if content is None:
        return []
    parts = [content] if isinstance(content, str) else content
    texts = []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
            continue
        member = TEXTS.get(part.get("type"))
        if member is None:
            raise Unsupported
        if (text := part.get(member)) is not None:
            texts.append(text)
    return texts


def _call(said: dict[str, Any]) -> dict[str, Any]:
    """A tool call, with its arguments as an object: {} where they are none."""
    function = dict(said["function"])
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = decode(arguments)
        except DecodeError:
            arguments = {}
    elif not isinstance(arguments, dict | list):
        arguments = {}
    return {**said, "function": {**function, "arguments": arguments}}


def _tool(said: dict[str, Any], form: ToolForm) -> dict[str, Any]:
    if not form:
        return said
    function = said["function"]
    known = {name: function.get(name, default) for name, default in form.items()}
    known = {name: value for name, value in known.items() if value is not ABSENT}
    if None not in form.values():
        known = {name: value for name, value in known.items() if value is not None}
    rest = {name: value for name, value in function.items() if name not in form}
    return {"type": said.get("type", "function"), "function": {**known, **rest}}


# -- Anthropic's messages, as vLLM turns them into a chat -----------------------------------------


def _from_anthropic(said: dict[str, Any]) -> dict[str, Any]:
    messages = []
    system = [text for text in _system(said) if not text.startswith("x-anthropic-billing-header")]
    if system:
        messages.append({"role": "system", "content": "".join(system)})
    for message in said["messages"]:
        if message["role"] != "system":
            messages += _turn(message["role"], message["content"])
    chat: dict[str, Any] = {"messages": messages, "chat_template_kwargs": said.get("chat_template_kwargs")}
    if effort := (said.get("output_config") or {}).get("effort"):
        chat["reasoning_effort"] = effort
    if tools := said.get("tools"):
        chat["tools"] = [
            {
                "function": {
                    "name": tool["name"],
                    "description": tool.get("description"),
                    "parameters": tool["input_schema"],
                }
            }
            for tool in tools
        ]
    return chat


def _system(said: dict[str, Any]) -> Iterable[str]:
    inline = (it["content"] for it in said["messages"] if it["role"] == "system")
    for content in (said.get("system"), *inline):
        if isinstance(content, str):
            yield content
        else:
            yield from (block["text"] for block in content or () if block["type"] == "text")


def _turn(role: str, content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One message; before it, one for each result of a tool in it."""
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    turn: dict[str, Any] = {"role": role}
    results, texts, calls, thoughts = [], list[str](), list[dict[str, Any]](), list[str]()
    for block in content:
        match block["type"]:
            case "text":
                texts.append(block["text"])
            case "thinking":
                thoughts.append(block["thinking"])
            case "redacted_thinking":
                pass
            case "tool_use":
                function = {"name": block["name"], "arguments": encode(block.get("input") or {}).decode()}
                calls.append({"id": block["id"], "type": "function", "function": function})
            case "tool_result" if role == "user":
                text = "\n".join(_texts(block.get("content")))
                results.append({"role": "tool", "tool_call_id": block["tool_use_id"], "content": text})
            case _:
                raise Unsupported
    if texts := [text for text in texts if text]:
        turn["content"] = texts[0] if len(texts) == 1 else [{"type": "text", "text": it} for it in texts]
    if calls:
        turn["tool_calls"] = calls
    if thoughts:
        turn["reasoning"] = "".join(thoughts)
    return results if role == "user" and not texts else [*results, turn]
