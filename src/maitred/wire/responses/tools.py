"""Tools a client brings, and how it wants the model to choose among them.

`function` and `custom` tools are the client's to run, `mcp` ones the gateway's. All others are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Raw, UnsetType, field
from msgspec.json import Decoder
from xxhash import xxh3_64_hexdigest

from maitred.wire.responses.items import Nothing
from maitred.wire.responses.reading import Closed, read, refuse

NAME_CHARS = 55
_function_name = re.compile("[A-Za-z0-9_-]{1,64}").fullmatch
_unusual = re.compile("[^A-Za-z0-9_-]")
TOOLS_MAX = 512
"""Tools of one request."""

Name = Annotated[str, Meta(min_length=1, max_length=128)]


class TextFormat(Closed, frozen=True, tag="text"):
    """Any text."""


class _Tool(Closed, frozen=True, tag_field="type", kw_only=True):
    """What no tool of ours can be: called by programs, found later, run beside the model."""

    allowed_callers: Nothing = UNSET
    defer_loading: Literal[False] | Nothing = UNSET
    asynchronous: Literal[False] | Nothing = field(default=UNSET, name="async")


class FunctionTool(_Tool, frozen=True, tag="function", kw_only=True):
    """A function of the client's; `parameters` is a JSON schema."""

    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    output_schema: Nothing = UNSET


class CustomTool(_Tool, frozen=True, tag="custom", kw_only=True):
    """A tool of the client's that takes any text. Grammars cannot be enforced through chat."""

    name: Name
    description: str | None = None
    format: TextFormat | UnsetType = UNSET


class ToolNames(Closed, frozen=True):
    """Some tools of a server."""

    tool_names: list[str] = field(default_factory=list)
    read_only: bool | None = None


class ApprovalRules(Closed, frozen=True):
    """Which tools of a server need the client's word."""

    always: ToolNames | UnsetType = UNSET
    never: ToolNames | UnsetType = UNSET


class McpTool(Closed, frozen=True, tag="mcp", tag_field="type", kw_only=True):
    """The tools of a server that the gateway calls. `authorization` and `headers` are secrets: never told."""

    server_label: Name
    server_url: str | UnsetType = UNSET
    server_description: str | UnsetType = UNSET
    authorization: str | Nothing = UNSET
    headers: dict[str, str] | Nothing = UNSET
    allowed_tools: list[str] | ToolNames | Nothing = UNSET
    require_approval: Literal["always", "never"] | ApprovalRules | Nothing = UNSET
    allowed_callers: Nothing = UNSET
    connector_id: Nothing = UNSET
    defer_loading: Literal[False] | Nothing = UNSET
    tunnel_id: Nothing = UNSET


def function_name(server_label: str, tool: str) -> str:
    """What a tool of a server is called in chat, in offers and in histories alike.

    Of letters and a length that every engine takes; what had to be changed is told apart by a digest.
    """
    whole = f"{server_label}__{tool}"
    if _function_name(whole):
        return whole
    return f"{_unusual.sub('_', whole)[:NAME_CHARS]}_{xxh3_64_hexdigest(whole.encode())[:8]}"


Tool: TypeAlias = FunctionTool | CustomTool | McpTool


class ChosenFunction(Closed, frozen=True, tag="function", tag_field="type"):
    """The model must call this function."""

    name: Name


class ChosenCustom(Closed, frozen=True, tag="custom", tag_field="type"):
    """The model must call this custom tool."""

    name: Name


class ChosenMcp(Closed, frozen=True, tag="mcp", tag_field="type"):
    """The model must call a tool of this server."""

    server_label: Name
    name: str | None = None


class AllowedTools(Closed, frozen=True, tag="allowed_tools", tag_field="type"):
    """The model may (or must) call one of these, of all that there are."""

    mode: Literal["auto", "required"]
    tools: Annotated[
        list[ChosenFunction | ChosenCustom | ChosenMcp], Meta(min_length=1, max_length=TOOLS_MAX)
    ]


ToolChoice: TypeAlias = (
    Literal["none", "auto", "required"] | ChosenFunction | ChosenCustom | ChosenMcp | AllowedTools
)

_tool = Decoder(Tool)


def read_tools(said: Iterable[Raw]) -> list[Tool]:
    """Read the tools of a request. Raises Refusal."""
    tools = [read(_tool, bytes(raw), f"tools[{at}]") for at, raw in enumerate(said)]
    names: set[tuple[bool, str]] = set()  # labels of servers are names of another kind
    for at, tool in enumerate(tools):
        name = (True, tool.server_label) if isinstance(tool, McpTool) else (False, tool.name)
        if name in names:
            refuse("there is another tool of this name", f"tools[{at}]")
        names.add(name)
    return tools


def check_choice(choice: ToolChoice | None, tools: list[Tool]) -> None:
    """Raise Refusal when a tool is chosen that is not there."""
    if choice in (None, "none", "auto"):
        return
    if not tools:
        refuse("there are no tools to choose from", "tool_choice")
    if isinstance(choice, str):
        return
    chosen = choice.tools if isinstance(choice, AllowedTools) else [choice]
    if not all(any(is_chosen(one, tool) for tool in tools) for one in chosen):
        refuse("there is no such tool among the tools", "tool_choice")


def is_chosen(one: ChosenFunction | ChosenCustom | ChosenMcp, tool: Tool) -> bool:
    """Whether this tool is meant."""
    if isinstance(one, ChosenMcp):
        return isinstance(tool, McpTool) and tool.server_label == one.server_label
    kind = FunctionTool if isinstance(one, ChosenFunction) else CustomTool
    return isinstance(tool, kind) and tool.name == one.name


def offered(tools: list[Tool], choice: ToolChoice | None) -> list[Tool]:
    """The tools that the model may call."""
    if not isinstance(choice, AllowedTools):
        return tools
    return [tool for tool in tools if any(is_chosen(one, tool) for one in choice.tools)]
