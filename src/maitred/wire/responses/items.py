"""Items: what a conversation is made of, as they are kept and told.

An item is kept as the JSON that lists give back. `input.py` brings what comes in into that one form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType, field, structs
from msgspec.json import Decoder, encode

from maitred.wire.responses.reading import Closed

Mint: TypeAlias = Callable[[str], str]
"""Makes a new id with this prefix."""

Unseal: TypeAlias = Callable[[str], str]
"""Reads the summary in a compaction; ValueError where it was not made here for this tenant."""

Status = Literal["in_progress", "completed", "incomplete"]
Nothing: TypeAlias = UnsetType | None


def unsealed(_sealed: str) -> str:
    """Nothing was made here."""
    raise ValueError("nothing is sealed here")


class Item(Struct, frozen=True, gc=False):
    """One item as it is kept: its id, and its JSON with that id in it."""

    id: str
    data: bytes


class InputText(Closed, frozen=True, tag="input_text"):
    """Text that a client says."""

    text: str
    prompt_cache_breakpoint: Nothing = UNSET


class InputImage(Closed, frozen=True, tag="input_image"):
    """An image, by URL or as data."""

    image_url: str
    detail: Literal["auto", "low", "high", "original"] = "auto"
    file_id: Nothing = UNSET
    prompt_cache_breakpoint: Nothing = UNSET


class TopLogprob(Struct, kw_only=True):
    """How probable a token was; `bytes` are those of its text."""

    token: str
    logprob: float
    bytes: list[int] | None = None

    def __post_init__(self) -> None:
        if self.bytes is None:
            self.bytes = list(self.token.encode())


class Logprob(TopLogprob, kw_only=True):
    """The same of the token that was taken, and of the likeliest."""

    top_logprobs: list[TopLogprob] = field(default_factory=list)


class OutputText(Closed, frozen=True, tag="output_text"):
    """Text that a model said."""

    text: str
    annotations: list[Raw] = field(default_factory=list)
    logprobs: list[Logprob] | None = field(default_factory=list)


class RefusalPart(Closed, frozen=True, tag="refusal"):
    """What a model says who declines."""

    refusal: str


class ReasoningText(Closed, frozen=True, tag="reasoning_text"):
    """What a model thinks."""

    text: str


class SummaryText(Closed, frozen=True, tag="summary_text"):
    """A summary of what it thinks."""

    text: str


Part = InputText | InputImage | OutputText | RefusalPart
Output = str | list[InputText | InputImage]


class Kept(Closed, frozen=True, tag_field="type"):
    """What all items have; `id` is ours once it is settled."""

    id: str | None = None


class Message(Kept, frozen=True, tag="message", kw_only=True):
    """What somebody says. `phase` is kept for the client; chat has no word for it."""

    role: Literal["user", "assistant", "system", "developer"]
    status: Status | None = "completed"
    content: str | list[Part]
    phase: Literal["commentary", "final_answer"] | Nothing = UNSET


class Reasoning(Kept, frozen=True, tag="reasoning", kw_only=True):
    """What the model thought. Its text is in clear, so `encrypted_content` of other houses means nothing."""

    summary: list[SummaryText] = field(default_factory=list)
    content: list[ReasoningText] | None = None
    encrypted_content: Nothing = UNSET
    status: Status | Nothing = UNSET


class FunctionCall(Kept, frozen=True, tag="function_call", kw_only=True):
    """The model calls a function of the client's."""

    call_id: str
    name: str
    arguments: str
    status: Status | None = "completed"
    caller: Nothing = UNSET
    namespace: Nothing = UNSET
    asynchronous: Literal[False] | Nothing = field(default=UNSET, name="async")


class FunctionOutput(Kept, frozen=True, tag="function_call_output", kw_only=True):
    """What came of it."""

    call_id: str
    output: Output
    status: Status | None = "completed"
    name: str | Nothing = UNSET
    caller: Nothing = UNSET
    namespace: Nothing = UNSET


class CustomCall(Kept, frozen=True, tag="custom_tool_call", kw_only=True):
    """The model calls a tool that takes any text."""

    call_id: str
    name: str
    input: str
    status: Status | None = "completed"
    caller: Nothing = UNSET
    namespace: Nothing = UNSET
    asynchronous: Literal[False] | Nothing = field(default=UNSET, name="async")


class CustomOutput(Kept, frozen=True, tag="custom_tool_call_output", kw_only=True):
    """What came of it."""

    call_id: str
    output: Output
    status: Status | None = "completed"
    caller: Nothing = UNSET


class McpListTools(Kept, frozen=True, tag="mcp_list_tools", kw_only=True):
    """The tools that a server told."""

    server_label: str
    tools: list[Raw]
    error: str | None = None


class McpCall(Kept, frozen=True, tag="mcp_call", kw_only=True):
    """A tool of a server was called by the gateway, and what came of it."""

    server_label: str
    name: str
    arguments: str
    output: str | None = None
    error: Any = None
    approval_request_id: str | None = None
    status: Literal["in_progress", "completed", "incomplete", "calling", "failed"] = "completed"


class McpApprovalRequest(Kept, frozen=True, tag="mcp_approval_request", kw_only=True):
    """The model wants to call a tool that needs the client's word."""

    server_label: str
    name: str
    arguments: str


class McpApprovalResponse(Kept, frozen=True, tag="mcp_approval_response", kw_only=True):
    """The client's word."""

    approval_request_id: str
    approve: bool
    reason: str | None = None


class Compaction(Kept, frozen=True, tag="compaction", kw_only=True):
    """Stands for all before it. `encrypted_content` is a sealed summary."""

    encrypted_content: str
    created_by: Nothing = UNSET


class ItemReference(Closed, frozen=True, tag="item_reference", tag_field="type"):
    """Stands for an item that is kept already."""

    id: str


KeptItem: TypeAlias = (
    Message
    | Reasoning
    | FunctionCall
    | FunctionOutput
    | CustomCall
    | CustomOutput
    | McpListTools
    | McpCall
    | McpApprovalRequest
    | McpApprovalResponse
    | Compaction
)
SaidItem: TypeAlias = KeptItem | ItemReference

PREFIXES: dict[type[Kept], str] = {
    Message: "msg",
    Reasoning: "rs",
    FunctionCall: "fc",
    FunctionOutput: "fco",
    CustomCall: "ctc",
    CustomOutput: "ctco",
    McpListTools: "mcpl",
    McpCall: "mcp",
    McpApprovalRequest: "mcpr",
    McpApprovalResponse: "mcpa",
    Compaction: "cmp",
}


def keep(item: KeptItem, item_id: str) -> Item:
    """Return the item as it is kept under this id."""
    return Item(item_id, encode(structs.replace(item, id=item_id)))


def all_kept(items: Iterable[bytes]) -> list[KeptItem]:
    """Read many items: one by one, for where it is done in a thread others go on between them."""
    return [_kept(item) for item in items]


_kept = Decoder(KeptItem).decode
