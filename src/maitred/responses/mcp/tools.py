"""The tools that the gateway runs in one turn: offered to the model, called for it, answered to it.

A tool that fails is an item that says so, never a response that fails: the model reads it and goes on. When
rounds, calls or time are used up nothing more is offered, so that the model must answer in words.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import DecodeError, Raw, Struct, structs
from msgspec.json import Decoder

from maitred.responses.mcp.rules import Wanted, chosen
from maitred.responses.mcp.server import Failed, http_failed, protocol_failed
from maitred.responses.mcp.session import Session
from maitred.wire.mcp import INVALID_PARAMS, Result
from maitred.wire.responses.create import Create
from maitred.wire.responses.events import Events
from maitred.wire.responses.items import (
    Item,
    KeptItem,
    McpApprovalRequest,
    McpApprovalResponse,
    McpCall,
    McpListTools,
    Mint,
    all_kept,
    keep,
)
from maitred.wire.responses.mcp import CALLING, LISTING, Listed, Told, listed, listed_before, raw
from maitred.wire.responses.reading import refuse
from maitred.wire.responses.tools import AllowedTools, ChosenMcp, FunctionTool, McpTool, function_name

if TYPE_CHECKING:
    from maitred.responses.mcp.servers import Servers

Say = Callable[[bytes], object]
"""Takes the events of a stream."""
DECLINED = "The user did not approve this call."
USED_UP = "No more calls may be made in this turn."
TOOL_FAILED = "mcp_tool_execution_error"

_arguments = Decoder(dict[str, Raw]).decode


class Offer(Struct, frozen=True, eq=False):
    """One tool as the model may call it."""

    wanted: Wanted
    tool: Listed


class Called(Struct, frozen=True):
    """A call that is to be made, under the id of its item; `approval`: the request it was approved by."""

    item_id: str
    label: str
    name: str
    arguments: str
    approval: str | None = None

    def item(self, **came: Any) -> McpCall:
        """The item, with what came of it."""
        return McpCall(
            id=self.item_id,
            server_label=self.label,
            name=self.name,
            arguments=self.arguments,
            approval_request_id=self.approval,
            **came,
        )


class Ran(Struct, frozen=True):
    """What came of the model's calls; `again`: it is to be asked once more."""

    items: list[Item]
    again: bool


class Tools:
    """Those of one turn. `begin`, then `functions` and `run` as often as the model calls, then `close`.

    `called`: a call was made, and may have done something.
    """

    def __init__(self, servers: Servers, wanted: Sequence[Wanted], create: Create, mint: Mint) -> None:
        limits = servers.settings
        self._servers = servers
        self._wanted = {one.server.label: one for one in wanted}
        self._sessions = {
            label: Session(servers.pool(one.server), one.server) for label, one in self._wanted.items()
        }
        self._create = create
        self._mint = mint
        self._offers: dict[str, Offer] = {}
        self._rounds_left = limits.rounds_max
        self._calls_left = min(limits.calls_max, create.said.max_tool_calls or limits.calls_max)
        self._left_s = limits.limit_s
        self._parallel = asyncio.Semaphore(limits.parallel_max)
        self._events = Events()
        self._say: Say = _nobody
        self.called = False
        self._clashes = False
        self._approved: list[tuple[McpApprovalRequest, McpApprovalResponse]] = []

    # -- what a turn calls ------------------------------------------------------------------------

    async def begin(self, items: Iterable[bytes], events: Events | None, say: Say) -> list[Item]:
        """List the tools; `items` are all that was said so far.

        `events` and `say`: of the stream, None where there is none. Raises Refusal.
        """
        self._events, self._say = events or Events(), say if events is not None else _nobody
        said = all_kept(items)
        self._approved = self._answered(said)
        before = {
            item.server_label: tools
            for item in said
            if isinstance(item, McpListTools) and (tools := listed_before(item)) is not None
        }
        listing = [self._list(one, before.get(label)) for label, one in self._wanted.items()]
        new = [item for item in await self._all(listing) if item is not None]
        if self._clashes:
            refuse("two tools would have the same name for the model; leave one out (allowed_tools)", "tools")
        return new

    @property
    def approved(self) -> bool:
        """Whether the client has given its word on something."""
        return bool(self._approved)

    async def go_on(self) -> list[Item]:
        """Make the calls that the client has approved, and tell of those that it has not."""
        approved, self._approved = self._approved, []
        return await self._all([self._approve(*one) for one in approved])

    async def wait(self, wait_s: float) -> bool:
        """Wait for an engine to have room, if there is time for it."""
        if wait_s >= self._left_s:
            return False
        await asyncio.sleep(wait_s)
        self._left_s -= wait_s
        return True

    @property
    def functions(self) -> list[FunctionTool]:
        """What the model may call now."""
        if self._rounds_left <= 0 or self._calls_left <= 0 or self._left_s <= 0:
            return []
        return [_function(name, offer) for name, offer in self._offers.items()]

    def mine(self, name: str) -> bool:
        """Whether a function of this name is one of these."""
        return name in self._offers

    async def run(self, calls: Iterable[Any]) -> Ran:
        """Make these calls of the model's, all `mine`. Those beyond the bound are passed over."""
        self._rounds_left -= 1
        running, again = [], True
        for call in calls:
            offer = self._offers[call.name]
            if offer.wanted.asks(offer.tool):
                again = False
                running.append(self._request(offer, call.arguments))
            elif self._calls_left > 0:
                self._calls_left -= 1
                label, name = offer.wanted.server.label, offer.tool.name
                running.append(self._call(Called(self._mint("mcp"), label, name, call.arguments)))
        return Ran(await self._all(running), again)

    def possible(self, create: Create) -> Create:
        """The request as it can be asked: what must be called has to be there."""
        choice = create.said.tool_choice
        if not isinstance(choice, ChosenMcp) or any(
            offer.wanted.server.label == choice.server_label and choice.name in (None, offer.tool.name)
            for offer in self._offers.values()
        ):
            return create
        return self.later(create)

    def later(self, create: Create) -> Create:
        """The request as it is asked again: what had to be called has been."""
        choice = create.said.tool_choice
        if choice is None or choice in ("auto", "none"):
            return create
        free: Any = structs.replace(choice, mode="auto") if isinstance(choice, AllowedTools) else "auto"
        return structs.replace(create, said=structs.replace(create.said, tool_choice=free))

    def close(self) -> None:
        """The turn is over."""
        self._servers.end(self._sessions.values())

    # -- listing ----------------------------------------------------------------------------------

    async def _list(self, wanted: Wanted, before: list[Listed] | None) -> Item | None:
        """Offer the tools of a server; the item that lists them, unless the conversation has one."""
        server = wanted.server
        if before is not None and not wanted.misses(before):
            self._offer(wanted, before)
            return None
        item_id = self._mint("mcpl")
        told = Told(self._events, LISTING, item_id)
        item = McpListTools(id=item_id, server_label=server.label, tools=[])
        self._say(told.begin(item))
        try:
            tools = [listed(tool) for tool in await self._servers.tools_of(self._sessions[server.label])]
            tools = [tool for tool in tools if wanted.may(tool)]
            self._offer(wanted, tools)
            item = structs.replace(item, tools=raw(tools))
        except Failed as failed:
            item = structs.replace(item, error=failed.message)
        kept = keep(item, item_id)
        self._say(told.end(kept, failed=item.error is not None))
        return kept

    def _offer(self, wanted: Wanted, tools: list[Listed]) -> None:
        label, choice = wanted.server.label, self._create.said.tool_choice
        taken = {tool.name for tool in self._create.tools if not isinstance(tool, McpTool)}
        for tool in tools:
            if wanted.may(tool) and chosen(choice, label, tool.name):
                name = function_name(label, tool.name)
                self._clashes = self._clashes or name in taken or name in self._offers
                self._offers[name] = Offer(wanted, tool)

    # -- approval ---------------------------------------------------------------------------------

    async def _request(self, offer: Offer, arguments: str) -> Item:
        """Ask the client for its word."""
        label, name = offer.wanted.server.label, offer.tool.name
        request = McpApprovalRequest(server_label=label, name=name, arguments=arguments)
        kept = keep(request, self._mint("mcpr"))
        self._say(self._events.item(kept))
        return kept

    def _answered(self, said: list[KeptItem]) -> list[tuple[McpApprovalRequest, McpApprovalResponse]]:
        """What the client has given its word on, and has not been done yet. Raises Refusal."""
        requests = {item.id: item for item in said if isinstance(item, McpApprovalRequest)}
        done = {item.approval_request_id for item in said if isinstance(item, McpCall)}
        found: dict[str, tuple[McpApprovalRequest, McpApprovalResponse]] = {}
        for response in said:
            if isinstance(response, McpApprovalResponse) and response.approval_request_id not in done:
                request = requests.get(response.approval_request_id)
                if request is None or request.server_label not in self._wanted:
                    refuse("an approval here is of no request of a server that is among the tools", "input")
                found.setdefault(response.approval_request_id, (request, response))
        return list(found.values())

    async def _approve(self, request: McpApprovalRequest, response: McpApprovalResponse) -> Item:
        label, name = request.server_label, request.name
        call = Called(self._mint("mcp"), label, name, request.arguments, request.id)
        if not response.approve:
            why = f"{DECLINED} {response.reason or ''}".rstrip()
        elif self._calls_left <= 0:
            why = USED_UP
        else:
            self._calls_left -= 1
            return await self._call(call)
        return self._tell(call, self._begin(call), error=_tool_failed(why))

    # -- calling ----------------------------------------------------------------------------------

    async def _call(self, call: Called) -> Item:
        """Make one call; whatever goes wrong is in its item."""
        self.called = True
        told, servers = self._begin(call), self._servers
        server, began = self._wanted[call.label].server, servers.clock()
        outcome = "completed"
        try:
            result = await self._answer(call)
            outcome = "tool_error" if result.failed else outcome
            came = {"error": _tool_failed(result.text)} if result.failed else {"output": result.text}
        except Failed as failed:
            outcome, came = failed.outcome, {"error": failed.error}
        servers.observed(server.series, outcome, servers.clock() - began)
        return self._tell(call, told, **came)

    async def _answer(self, call: Called) -> Result:
        """What the server says. Raises Failed."""
        offer = self._offers.get(function_name(call.label, call.name))
        if offer is None:
            raise protocol_failed("invalid", INVALID_PARAMS, "there is no such tool, or it may not be called")
        try:
            arguments = _arguments(call.arguments or "{}")
        except (DecodeError, RecursionError):
            raise protocol_failed("invalid", INVALID_PARAMS, "the arguments are no JSON object") from None
        patience_s = min(offer.wanted.server.timeout_s, self._left_s)
        try:
            async with asyncio.timeout(patience_s), self._parallel, self._servers.running:
                return await self._sessions[call.label].call(call.name, arguments)
        except TimeoutError:
            raise http_failed("timeout", 504, f"no answer in {patience_s:g} s") from None

    def _begin(self, call: Called) -> Told:
        told = Told(self._events, CALLING, call.item_id)
        self._say(told.begin(structs.replace(call, arguments="").item(status="in_progress")))
        self._say(told.arguments(call.arguments))
        return told

    def _tell(self, call: Called, told: Told, **came: Any) -> Item:
        failed = "error" in came
        kept = keep(call.item(status="failed" if failed else "completed", **came), call.item_id)
        self._say(told.end(kept, failed=failed))
        return kept

    async def _all(self, running: Sequence[Any]) -> list[Any]:
        """What comes of these, in their order; the time that it takes is the turn's."""
        began = self._servers.clock()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in running]
        self._left_s -= self._servers.clock() - began
        return [task.result() for task in tasks]


def _nobody(_events: bytes) -> None:
    """Nobody listens."""


def _tool_failed(text: str) -> dict[str, Any]:
    return {"type": TOOL_FAILED, "content": [{"type": "text", "text": text}]}


def _function(name: str, offer: Offer) -> FunctionTool:
    about = offer.wanted.asked.server_description
    words = "\n\n".join(word for word in (about, offer.tool.description) if isinstance(word, str) and word)
    return FunctionTool(name=name, description=words or None, parameters=offer.tool.parameters)
