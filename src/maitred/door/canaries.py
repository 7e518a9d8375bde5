"""Canaries: five requests by which it shows whether an engine reads prompts as we do.

Between them they have what models' templates and engines treat differently: a plain text, several turns,
no system message, parts, tools with and without a description and in another order, calls of tools and
their results.
"""

from __future__ import annotations

from typing import Any

from msgspec.json import encode

from maitred.core.words import Api

_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather at a place, in °C",
            "parameters": {
                "type": "object",
                "properties": {"place": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["place"],
            },
        },
    },
    {"function": {"parameters": {"type": "object", "properties": {}}, "name": "time"}, "type": "function"},
]
_CALL = {
    "id": "call_0000",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"place": "Zürich", "days": 2}'},
}
_HELLO = {"role": "user", "content": "Hello!  Is 1234 + 5 = 1239? <b>&amp; 'why'</b>\n\n\tNaïve 日本語 🙂"}

_SAID: tuple[tuple[str, Api, dict[str, Any]], ...] = (
    ("text", Api.COMPLETIONS, {"prompt": "Once upon a time,  there were 12 cafés.\n"}),
    ("chat", Api.CHAT, {"messages": [_HELLO]}),
    (
        "turns",
        Api.CHAT,
        {
            "messages": [
                {"role": "system", "content": " Be brief.\n"},
                _HELLO,
                {"role": "assistant", "content": "It is."},
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "So"}, {"type": "text", "text": "be it"}],
                },
            ]
        },
    ),
    ("tools", Api.CHAT, {"messages": [_HELLO], "tools": _TOOLS}),
    (
        "calls",
        Api.CHAT,
        {
            "messages": [
                _HELLO,
                {"role": "assistant", "content": None, "tool_calls": [_CALL]},
                {"role": "tool", "tool_call_id": "call_0000", "content": '{"celsius": 21.5}'},
            ],
            "tools": _TOOLS,
        },
    ),
)


def canaries(model: str) -> list[tuple[str, Api, bytes]]:
    """Each by its name, API and body; `model` is the name the engine knows."""
    return [(name, api, encode({"model": model, **said})) for name, api, said in _SAID]
