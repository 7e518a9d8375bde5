"""POST /v1/responses: what is wrong with it is said before anything is done; then it is a turn."""

from __future__ import annotations

from maitred.core.outcome import Outcome, Refusal
from maitred.responses.asked import Asked
from maitred.responses.background import submit
from maitred.responses.turn import turn
from maitred.wire.responses.create import decode
from maitred.wire.responses.tools import McpTool


async def create(asked: Asked) -> Outcome:
    """Answer it."""
    said = decode(asked.exchange.body)
    if any(isinstance(tool, McpTool) for tool in said.tools):
        raise Refusal(Outcome.BAD_REQUEST, "no MCP server is configured here", param="tools")
    return await (submit if said.said.background else turn)(asked, said)
