"""Items -> a chat request: the same bytes for the same items, however they came to be known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from msgspec.json import encode

from maitred.wire.responses.create import Create, JsonObject, JsonSchema, Said
from maitred.wire.responses.items import (
    Unseal,
    all_kept,
    unsealed,
)
from maitred.wire.responses.messages import CUSTOM_INPUT, messages, since_compaction
from maitred.wire.responses.tools import (
    AllowedTools,
    ChosenMcp,
    CustomTool,
    FunctionTool,
    McpTool,
    ToolChoice,
    function_name,
    offered,
)

_Json: TypeAlias = dict[str, Any]

_CUSTOM_SCHEMA = {
    "type": "object",
    "properties": {CUSTOM_INPUT: {"type": "string"}},
    "required": [CUSTOM_INPUT],
    "additionalProperties": False,
}
_PARAMS = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
    "logprobs": "include",
}
_SAME = (
    "temperature", "top_p", "frequency_penalty", "presence_penalty", "prompt_cache_key", "user"
)  # fmt: skip


def request(
    create: Create,
    items: Iterable[bytes],
    *,
    stream: bool,
    tools: Sequence[FunctionTool] = (),
    unseal: Unseal = unsealed,
) -> bytes:
    """Return the body of a chat request for what `items` say. Raises Refusal: an output without its call.

    `tools` are those of servers, as functions. `unseal` reads compactions.
    """
    said = create.said
    told = since_compaction(all_kept(items), unseal)
    body: _Json = {"model": said.model, "messages": messages(said.instructions, told)}
    if stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    if said.max_output_tokens is not None:
        body["max_tokens"] = said.max_output_tokens
    for name in _SAME:
        if (value := getattr(said, name)) is not None:
            body[name] = value
    if said.reasoning is not None and said.reasoning.effort is not None:
        body["reasoning_effort"] = said.reasoning.effort
    if create.logprobs:
        body["logprobs"] = True
        body["top_logprobs"] = said.top_logprobs or 0
    _add_format(body, said)
    _add_tools(body, create, tools)
    return encode(body)


def param(of_chat: str | None) -> str | None:
    """What a refusal of a chat request names, in the words of Responses."""
    if of_chat is None:
        return None
    name = of_chat.partition(".")[0].partition("[")[0]
    return _PARAMS.get(name, of_chat)


def _add_format(body: _Json, said: Said) -> None:
    asked = said.text.format if said.text is not None else None
    if isinstance(asked, JsonObject):
        body["response_format"] = {"type": "json_object"}
    elif isinstance(asked, JsonSchema):
        schema: _Json = {"name": asked.name, "schema": asked.schema}
        if asked.description is not None:
            schema["description"] = asked.description
        if asked.strict is not None:
            schema["strict"] = asked.strict
        body["response_format"] = {"type": "json_schema", "json_schema": schema}


def _add_tools(body: _Json, create: Create, served: Sequence[FunctionTool]) -> None:
    choice = create.said.tool_choice
    own = [tool for tool in offered(create.tools, choice) if not isinstance(tool, McpTool)]
    functions = [_function(tool) for tool in (*own, *served)]
    if not functions:
        return
    body["tools"] = functions
    if (chosen := _choice(choice)) is not None:
        body["tool_choice"] = chosen
    # Said in any case: engines do not agree on what holds where it is not.
    body["parallel_tool_calls"] = create.said.parallel_tool_calls is not False


def _function(tool: FunctionTool | CustomTool) -> _Json:
    function: _Json = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    if isinstance(tool, CustomTool):
        function["parameters"] = _CUSTOM_SCHEMA
        return {"type": "function", "function": function}
    if tool.parameters is not None:
        function["parameters"] = tool.parameters
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _choice(choice: ToolChoice | None) -> str | _Json | None:
    if choice is None or isinstance(choice, str):
        return choice
    if isinstance(choice, AllowedTools):
        return choice.mode  # of the tools that are offered, which are only these
    if not isinstance(choice, ChosenMcp):
        return {"type": "function", "function": {"name": choice.name}}
    if choice.name is None:
        return "required"
    return {"type": "function", "function": {"name": function_name(choice.server_label, choice.name)}}
