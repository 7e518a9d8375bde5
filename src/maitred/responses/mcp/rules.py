"""Which tools of a server may be called, and for which calls the client must give its word."""

from __future__ import annotations

from msgspec import Struct

from maitred.config.mcp import Approval, ToolList
from maitred.responses.mcp.server import Server
from maitred.wire.responses.mcp import Listed
from maitred.wire.responses.tools import (
    AllowedTools,
    ApprovalRules,
    ChosenMcp,
    McpTool,
    ToolChoice,
    ToolNames,
)


class Wanted(Struct, frozen=True, eq=False):
    """A server that a request wants, and what the operator says of it: `tools` () are all."""

    asked: McpTool
    server: Server
    tools: tuple[str, ...] = ()
    approval: Approval | None = None

    def may(self, tool: Listed) -> bool:
        """Whether both the operator and the request let it be called."""
        if self.tools and tool.name not in self.tools:
            return False
        allowed = self.asked.allowed_tools
        if isinstance(allowed, ToolNames):
            return _matches(allowed, tool)
        return tool.name in allowed if isinstance(allowed, list) else True

    def misses(self, tools: list[Listed]) -> bool:
        """Whether the request names tools that this list, of another one, lacks."""
        allowed = self.asked.allowed_tools
        names = allowed.tool_names if isinstance(allowed, ToolNames) else allowed
        return isinstance(names, list) and not {tool.name for tool in tools}.issuperset(names)

    def asks(self, tool: Listed) -> bool:
        """Whether a call needs the client's word; what neither says otherwise does."""
        operator, said = self.approval, self.asked.require_approval
        if operator == "always" or (isinstance(operator, ToolList) and tool.name in operator.tools):
            return True
        if isinstance(said, str):
            return said == "always"
        if isinstance(said, ApprovalRules):
            if isinstance(said.never, ToolNames) and _matches(said.never, tool):
                return False
            return operator is None or (isinstance(said.always, ToolNames) and _matches(said.always, tool))
        return operator is None


def _matches(names: ToolNames, tool: Listed) -> bool:
    """Whether a filter means this tool: by its name, by whether it only reads, by both."""
    if names.tool_names and tool.name not in names.tool_names:
        return False
    return names.read_only is None or names.read_only == tool.read_only


def chosen(choice: ToolChoice | None, label: str, tool: str) -> bool:
    """Whether the request lets the model choose this tool."""
    if not isinstance(choice, AllowedTools):
        return True
    ours = (one for one in choice.tools if isinstance(one, ChosenMcp) and one.server_label == label)
    return any(one.name in (None, tool) for one in ours)
