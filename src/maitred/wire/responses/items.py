"""Items: what a conversation is made of, as they come in, as they are kept, as they are told.

An item is kept as the JSON that lists give back. What comes in is brought into that one form (`settle`): text
becomes a list of parts, what was left out is said, and ids are ours, so that no id of a client or an engine
ever becomes a key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field, structs
from msgspec.json import Decoder, encode

from maitred.wire.responses.reading import Closed, read, refuse

Mint: TypeAlias = Callable[[str], str]
"""Makes a new id with this prefix."""

Unseal: TypeAlias = Callable[[str], str]
"""Reads the summary in a compaction; ValueError where it was not made here for this tenant."""

INPUT_ITEMS_MAX = 10_000

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
    status: Status = "completed"
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
    status: Status = "completed"
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
    status: Status = "completed"
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


class _Peek(Struct):
    """What tells the kind of an item whose type was left out."""

    type: str | None = None
    role: str | None = None


_peek = Decoder(_Peek)
_said: Decoder[SaidItem] = Decoder(SaidItem)
_message, _reference = Decoder(Message), Decoder(ItemReference)
_kept: Decoder[KeptItem] = Decoder(KeptItem)


class Input(Struct, frozen=True):
    """The items of one request, read and not yet settled; `name` is that of the member they came in."""

    items: list[SaidItem] = []
    name: str = "input"

    @property
    def references(self) -> tuple[str, ...]:
        """Ids of the items it only refers to."""
        return tuple(item.id for item in self.items if isinstance(item, ItemReference))


def read_input(said: str | list[Raw] | None, name: str = "input") -> Input:
    """Read what stands at `name`: a text or a list of items. Raises Refusal."""
    if said is None:
        return Input()
    if isinstance(said, str):
        return Input([Message(role="user", content=said)])
    return Input([_read_item(bytes(raw), f"{name}[{at}]") for at, raw in enumerate(said)], name)


def _read_item(raw: bytes, place: str) -> SaidItem:
    peeked = read(_peek, raw, place)
    item: SaidItem
    if peeked.type is not None:
        item = read(_said, raw, place)
    elif peeked.role is not None:
        item = read(_message, raw, place)
    else:
        item = read(_reference, raw, place)
    if isinstance(item, Message):
        _check_parts(item, place)
    return item


def _check_parts(message: Message, place: str) -> None:
    """Only models say output, and only users show images."""
    if isinstance(message.content, str):
        return
    role = message.role
    for at, part in enumerate(message.content):
        is_output = isinstance(part, OutputText | RefusalPart)
        is_image = isinstance(part, InputImage)
        if (is_output and role != "assistant") or (is_image and role != "user"):
            refuse(f"not supported in a message of this role ({role})", f"{place}.content[{at}].type")


def settle(
    said: Input, mint: Mint, referenced: Mapping[str, bytes] = {}, unseal: Unseal = unsealed
) -> list[Item]:
    """Bring items into the form in which they are kept, under ids of ours.

    What they refer to is `referenced` and must all be there; it is copied. Approvals still name what they are
    of. Raises Refusal where a compaction is not ours to `unseal`.
    """
    for at, item in enumerate(said.items):
        if isinstance(item, Compaction):
            _check_seal(item, unseal, f"{said.name}[{at}]")
    renamed: dict[str | None, str] = {}
    return [_settle(_resolve(item, referenced), mint, renamed) for item in said.items]


def _check_seal(item: Compaction, unseal: Unseal, place: str) -> None:
    try:
        unseal(item.encrypted_content)
    except ValueError:
        refuse("this was not made here", f"{place}.encrypted_content")


def _resolve(item: SaidItem, referenced: Mapping[str, bytes]) -> KeptItem:
    return _kept.decode(referenced[item.id]) if isinstance(item, ItemReference) else item


def _settle(item: KeptItem, mint: Mint, renamed: dict[str | None, str]) -> Item:
    item_id = mint(PREFIXES[type(item)])
    if isinstance(item, Message):
        item = structs.replace(item, content=_parts(item))
    elif isinstance(item, McpApprovalRequest):
        renamed[item.id] = item_id
    elif isinstance(item, McpApprovalResponse | McpCall) and item.approval_request_id in renamed:
        item = structs.replace(item, approval_request_id=renamed[item.approval_request_id])
    return keep(item, item_id)


def _parts(message: Message) -> list[Part]:
    """The content as a list; what a model said is output, however the client called it."""
    content = message.content
    if message.role != "assistant":
        return [InputText(content)] if isinstance(content, str) else content
    if isinstance(content, str):
        return [OutputText(content)]
    return [OutputText(part.text) if isinstance(part, InputText) else part for part in content]


def keep(item: KeptItem, item_id: str) -> Item:
    """Return the item as it is kept under this id."""
    return Item(item_id, encode(structs.replace(item, id=item_id)))


def all_kept(items: Iterable[bytes]) -> list[KeptItem]:
    """Read many items at once."""
    return _many.decode(b"[" + b",".join(items) + b"]")


_many = Decoder(list[KeptItem])
_Bounded = Annotated[list[Raw], Meta(max_length=INPUT_ITEMS_MAX)]
SaidInput: TypeAlias = str | _Bounded | None
"""The type of an input in a body; `read_input` reads on."""
