"""The response object: what a request became, as clients see it and as it is kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType, structs
from msgspec.json import Decoder, encode

from maitred.core.outcome import Outcome
from maitred.wire.responses.create import Create, TextConfig
from maitred.wire.responses.items import Item
from maitred.wire.responses.tools import McpTool, Tool

Incomplete: TypeAlias = Literal["", "max_output_tokens", "content_filter"]
Status: TypeAlias = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]

IN_PROGRESS: Status = "in_progress"


class InputDetails(Struct, frozen=True):
    """Of the tokens read, those that were in the cache, and those newly put there."""

    cached_tokens: int = 0
    cache_write_tokens: int = 0


class OutputDetails(Struct, frozen=True):
    """Of the tokens written, those that were thoughts."""

    reasoning_tokens: int = 0


class Usage(Struct, frozen=True):
    """Tokens of a response; several calls of the model add up."""

    input_tokens: int = 0
    input_tokens_details: InputDetails = InputDetails()
    output_tokens: int = 0
    output_tokens_details: OutputDetails = OutputDetails()
    total_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        """Both together."""
        mine, theirs = self.input_tokens_details, other.input_tokens_details
        thought = self.output_tokens_details.reasoning_tokens + other.output_tokens_details.reasoning_tokens
        return Usage(
            self.input_tokens + other.input_tokens,
            InputDetails(
                mine.cached_tokens + theirs.cached_tokens,
                mine.cache_write_tokens + theirs.cache_write_tokens,
            ),
            self.output_tokens + other.output_tokens,
            OutputDetails(thought),
            self.total_tokens + other.total_tokens,
        )


class Error(Struct, frozen=True):
    """Why a response failed, in one of the codes the official client knows."""

    code: str
    message: str


class IncompleteDetails(Struct, frozen=True):
    """Why a response ends early; None where nobody says (its client left)."""

    reason: str | None


class Ref(Struct, frozen=True):
    """Something by its id."""

    id: str


class Response(Struct):
    """A response, all members that clients may see. Times are whole seconds of the calendar.

    What the request only said, and nobody here reads again, may be anything.
    """

    id: str
    object: str = "response"
    created_at: int = 0
    status: Status = IN_PROGRESS
    completed_at: int | None = None
    background: bool = False
    conversation: Ref | UnsetType = UNSET
    error: Error | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    model: str = ""
    output: list[Raw] = []
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    prompt_cache_key: str | None = None
    reasoning: Any = None
    safety_identifier: str | None = None
    service_tier: str = "default"
    store: bool = True
    temperature: float = 1.0
    text: Any = TextConfig()
    tool_choice: Any = "auto"
    tools: list[Raw] = []
    top_logprobs: int = 0
    top_p: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    truncation: str = "disabled"
    usage: Usage | None = None
    user: str | None = None
    metadata: dict[str, str] = {}

    def encode(self) -> bytes:
        """The response as clients see it."""
        return encode(self)

    def snapshot(self) -> bytes:
        """The response as it is kept: without its output, which is kept as items."""
        return encode(structs.replace(self, output=[]))

    def conclude(
        self, items: Iterable[Item], usage: Usage | None, at_s: int, incomplete: str | None = ""
    ) -> None:
        """It ends, with these items: whole, or early for the reason `incomplete` (None: nobody says)."""
        self.output = [Raw(item.data) for item in items]
        self.usage = usage
        if incomplete == "":
            self.status, self.completed_at = "completed", at_s
        else:
            self.status, self.incomplete_details = "incomplete", IncompleteDetails(incomplete)

    def fail(self, outcome: Outcome, message: str, items: Iterable[Item] = ()) -> None:
        """It fails, after these items."""
        self.output = [Raw(item.data) for item in items]
        self.status, self.error = "failed", Error(error_code(outcome), message)


_response = Decoder(Response)


def error_code(outcome: Outcome) -> str:
    """The code of a failed response; the official client knows few."""
    if outcome.status == 429:
        return "rate_limit_exceeded"
    return "invalid_prompt" if outcome.status == 400 else "server_error"


def begin(create: Create, response_id: str, created_s: int, *, status: Status = IN_PROGRESS) -> Response:
    """Return the response to a request, at its beginning."""
    said = create.said
    response = Response(
        response_id,
        created_at=created_s,
        status=status,
        background=bool(said.background),
        instructions=said.instructions,
        max_output_tokens=said.max_output_tokens,
        max_tool_calls=said.max_tool_calls,
        model=said.model,
        parallel_tool_calls=said.parallel_tool_calls is not False,
        previous_response_id=said.previous_response_id,
        prompt_cache_key=said.prompt_cache_key,
        reasoning=said.reasoning,
        safety_identifier=said.safety_identifier,
        store=create.stored,
        top_logprobs=said.top_logprobs or 0,
        truncation=said.truncation or "disabled",
        user=said.user,
    )
    if said.metadata:
        response.metadata = said.metadata
    for name in ("temperature", "top_p", "presence_penalty", "frequency_penalty", "text"):
        if (value := getattr(said, name)) is not None:
            setattr(response, name, value)
    if said.service_tier not in (None, "auto"):
        response.service_tier = said.service_tier
    if said.tool_choice is not None:
        response.tool_choice = said.tool_choice
    if create.tools:
        response.tools = [Raw(encode(_told(tool))) for tool in create.tools]
    if (conversation := create.conversation_id) is not None:
        response.conversation = Ref(conversation)
    return response


def _told(tool: Tool) -> Tool:
    """A tool without its secrets; some write them into the query of a URL."""
    if not isinstance(tool, McpTool):
        return tool
    url = tool.server_url.partition("?")[0] if isinstance(tool.server_url, str) else UNSET
    return structs.replace(tool, authorization=UNSET, headers=UNSET, server_url=url)


def restore(snapshot: bytes, output: Iterable[bytes]) -> Response:
    """Return a response that was kept."""
    response = _response.decode(snapshot)
    response.output = [Raw(item) for item in output]
    return response


def deleted(response_id: str) -> bytes:
    """Return the answer to a deletion."""
    return encode({"id": response_id, "object": "response", "deleted": True})
