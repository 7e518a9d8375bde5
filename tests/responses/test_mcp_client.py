"""What users of the official client see of tools that the gateway runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses.response_output_item import McpApprovalRequest, McpCall, McpListTools

from maitred.config.mcp import Mcp, McpServer
from maitred.net.seams import Sockets
from tests.proxy.upstream import MODEL, Plan
from tests.responses.mcp_server import Real, asks_for, real, streams_for
from tests.responses.place import in_real_time, remembering, says, streams

ADD = ("s__add", {"a": 1, "b": 2})
TOOLS: Any = [{"type": "mcp", "server_label": "s", "require_approval": "never"}]


@pytest.fixture(scope="module")
def there() -> Iterator[Real]:
    with real() as running:
        yield running


@asynccontextmanager
async def client(file: str, there: Real, *plans: Plan, **said: Any) -> AsyncIterator[AsyncOpenAI]:
    """The client, of a gateway with this server."""
    mcp = Mcp(servers={"s": McpServer(there.url, **said)})
    async with remembering(file, *plans, mcp=mcp, network=Sockets()) as it:
        host, port = it.place.address
        async with AsyncOpenAI(base_url=f"http://{host}:{port}/v1", api_key="x", max_retries=0) as made:
            yield made


@in_real_time
async def test_a_turn_with_tools(there: Real, file: str) -> None:
    async with client(file, there, asks_for(ADD), says("3!")) as ours:
        response = await ours.responses.create(model=MODEL, input="1+2?", tools=TOOLS)
        listed, called, _ = response.output
        assert isinstance(listed, McpListTools)
        assert isinstance(called, McpCall)
        assert (called.name, called.output, called.status, called.error) == ("add", "3", "completed", None)
        assert response.output_text == "3!"
        assert await ours.responses.retrieve(response.id) == response


@in_real_time
async def test_a_stream_with_tools(there: Real, file: str) -> None:
    async with client(file, there, streams_for(ADD), streams("3", "!")) as ours:
        async with ours.responses.stream(model=MODEL, input="1+2?", tools=TOOLS) as stream:
            events: list[Any] = [event async for event in stream]
        kinds = [event.type.removeprefix("response.") for event in events]
        wanted = [
            "mcp_list_tools.completed",
            "mcp_call.in_progress",
            "mcp_call_arguments.done",
            "mcp_call.completed",
        ]
        assert [kind for kind in kinds if kind in wanted] == wanted
        last = events[-1].response
        assert [item.type for item in last.output] == ["mcp_list_tools", "mcp_call", "message"]
        assert last.output_text == "3!"


@in_real_time
async def test_a_word_that_is_waited_for(there: Real, file: str) -> None:
    async with client(file, there, asks_for(ADD), says("3!"), approval="always") as ours:
        first = await ours.responses.create(model=MODEL, input="1+2?", tools=TOOLS)
        request = first.output[-1]
        assert isinstance(request, McpApprovalRequest)
        word: Any = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}
        second = await ours.responses.create(
            model=MODEL, input=[word], tools=TOOLS, previous_response_id=first.id
        )
        called = second.output[0]
        assert isinstance(called, McpCall)
        assert (called.output, called.approval_request_id) == ("3", request.id)


@in_real_time
async def test_a_tool_that_fails(there: Real, file: str) -> None:
    async with client(file, there, asks_for(("s__boom", {})), says("oh")) as ours:
        response = await ours.responses.create(model=MODEL, input="go", tools=TOOLS)
        called = response.output[1]
        assert isinstance(called, McpCall)
        assert called.status == "failed"
        assert called.error is not None
        assert called.error.type == "mcp_tool_execution_error"


@in_real_time
async def test_a_server_of_the_clients_own_is_refused(there: Real, file: str) -> None:
    async with client(file, there, says("x")) as ours:
        tool: Any = {"type": "mcp", "server_label": "mine", "server_url": "https://mcp.example.com/"}
        with pytest.raises(openai.BadRequestError) as refused:
            await ours.responses.create(model=MODEL, input="go", tools=[tool])
        assert refused.value.param == "tools[0].server_url"
