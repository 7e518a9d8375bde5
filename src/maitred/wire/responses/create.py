"""The body of POST /v1/responses: every member that is supported, and by `None` those that are refused.

`docs/responses.md` says of each what becomes of it; a test holds the two together.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Raw, Struct, structs
from msgspec.json import Decoder

from maitred.wire.requests import OUTPUT_TOKENS_MAX
from maitred.wire.responses.input import Input, SaidInput, read_input
from maitred.wire.responses.items import Nothing
from maitred.wire.responses.reading import Closed, read_body, refuse
from maitred.wire.responses.tools import TOOLS_MAX, TextFormat, Tool, ToolChoice, check_choice, read_tools

METADATA_MAX = 16

Key = Annotated[str, Meta(max_length=512)]
Id = Annotated[str, Meta(min_length=1, max_length=128)]
Metadata: TypeAlias = dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]]
Tokens = Annotated[int, Meta(ge=1, le=OUTPUT_TOKENS_MAX)]
Include: TypeAlias = Literal[
    "message.output_text.logprobs", "reasoning.encrypted_content", "message.input_image.image_url"
]
LOGPROBS: Include = "message.output_text.logprobs"


class ConversationRef(Closed, frozen=True):
    """A conversation by its id."""

    id: Id


class ReasoningConfig(Closed, frozen=True):
    """How much the model is to think. Its thoughts are told in clear; nobody makes summaries of them."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Literal["auto"] | None = None
    generate_summary: Nothing = UNSET
    context: Nothing = UNSET
    mode: Literal["standard"] | Nothing = UNSET


class JsonObject(Closed, frozen=True, tag="json_object"):
    """Any JSON object."""


class JsonSchema(Closed, frozen=True, tag="json_schema", kw_only=True):
    """JSON of this schema."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None


class TextConfig(Closed, frozen=True):
    """The form of the answer."""

    format: TextFormat | JsonObject | JsonSchema | None = TextFormat()
    verbosity: Literal["medium"] | None = "medium"


class StreamOptions(Closed, frozen=True):
    """Padding of streams against who listens is not made here."""

    include_obfuscation: Literal[False] | None = None


class Context(Closed, frozen=True, kw_only=True):
    """What a model reads: the members that requests for answers, counts and compaction share."""

    model: str = ""
    input: SaidInput = None
    instructions: str | None = None
    previous_response_id: Id | None = None
    prompt_cache_key: Key | None = None
    prompt_cache_options: Nothing = UNSET
    prompt_cache_retention: Nothing = UNSET
    service_tier: Literal["auto", "default", "flex", "priority", "fast", "scale"] | None = None
    image: Nothing = UNSET


class Said(Context, frozen=True, kw_only=True):
    """The members of the body, as the client said them."""

    background: bool | None = None
    conversation: Id | ConversationRef | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    include: Annotated[list[Include], Meta(max_length=16)] | None = None
    max_output_tokens: Tokens | None = None
    max_tool_calls: Annotated[int, Meta(ge=1)] | None = None
    metadata: Metadata | None = None
    parallel_tool_calls: bool | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    reasoning: ReasoningConfig | None = None
    safety_identifier: Key | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    text: TextConfig | None = None
    tool_choice: ToolChoice | None = None
    tools: Annotated[list[Raw], Meta(max_length=TOOLS_MAX)] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    user: Key | None = None
    access_programs: Nothing = UNSET
    background_options: Nothing = UNSET
    context_management: Nothing = UNSET
    moderation: Nothing = UNSET
    prompt: Nothing = UNSET


class Create(Struct, frozen=True):
    """A request for an answer, read: what was `said`, its items and its tools."""

    said: Said
    input: Input
    tools: list[Tool]

    @property
    def stored(self) -> bool:
        """Whether it is to be kept, as it is unless the client says no."""
        return self.said.store is not False

    @property
    def conversation_id(self) -> str | None:
        """The conversation it belongs to."""
        named = self.said.conversation
        return named.id if isinstance(named, ConversationRef) else named

    @property
    def logprobs(self) -> bool:
        """Whether the answer is to tell how probable its tokens were."""
        return bool(self.said.top_logprobs) or LOGPROBS in (self.said.include or ())

    def within(self, tokens: int) -> Create:
        """The same, for an answer of so many tokens at most."""
        return structs.replace(self, said=structs.replace(self.said, max_output_tokens=tokens))


class Compact(Context, frozen=True, kw_only=True):
    """The members of a request for a compaction."""


class Count(Context, frozen=True, kw_only=True):
    """The members of a request for a count of tokens."""

    conversation: Id | ConversationRef | None = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningConfig | None = None
    text: TextConfig | None = None
    tool_choice: ToolChoice | None = None
    tools: Annotated[list[Raw], Meta(max_length=TOOLS_MAX)] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    personality: Nothing = UNSET


_said, _compact, _count = Decoder(Said), Decoder(Compact), Decoder(Count)


def decode(body: bytes) -> Create:
    """Read the body of a request for an answer. Raises Refusal, naming what is wrong or not supported."""
    return _read(read_body(_said, body))


def decode_compact(body: bytes) -> Create:
    """Read a request for a compaction: nothing that it says or brings about is kept. Raises Refusal."""
    asked = read_body(_compact, body)
    members = {name: getattr(asked, name) for name in Context.__struct_fields__}
    return _read(Said(**members, store=False))


def decode_count(body: bytes) -> Create:
    """Read a request for a count of tokens: the same request, for one token. Raises Refusal."""
    asked = read_body(_count, body)
    members = {name: getattr(asked, name) for name in Said.__struct_fields__ if hasattr(asked, name)}
    create = _read(Said(**members))
    asked_once = structs.replace(create.said, tool_choice=None, text=None, store=False)
    return structs.replace(create, said=asked_once).within(1)


def _read(said: Said) -> Create:
    create = Create(said, read_input(said.input), read_tools(said.tools or ()))
    if said.previous_response_id is not None and said.conversation is not None:
        refuse("say either this or previous_response_id, not both", "conversation")
    if not create.input.items and said.previous_response_id is None and said.conversation is None:
        refuse("there must be one", "input")
    check_metadata(said.metadata)
    check_choice(said.tool_choice, create.tools)
    if said.background and not create.stored:
        refuse("what runs in the background has to be stored", "background")
    return create


def check_metadata(metadata: dict[str, str] | None) -> None:
    """Raise Refusal when there is too much of it."""
    if metadata is not None and len(metadata) > METADATA_MAX:
        refuse(f"at most {METADATA_MAX} pairs", "metadata")
