"""What engines answer by their own Responses API: the members that items are made of.

They add others of their own, and leave some out.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.json import Decoder, encode

from maitred.engines.errors import words
from maitred.wire.responses.items import Logprob
from maitred.wire.responses.mending import mending
from maitred.wire.responses.response import Incomplete, InputDetails, OutputDetails, Usage

FAILED = "the engine could not complete the response"


class NativeDetails(Struct):
    """Of the tokens."""

    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


class NativeUsage(Struct):
    """Tokens; llama.cpp leaves out what it does not know."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: NativeDetails | None = None
    output_tokens_details: NativeDetails | None = None

    def usage(self) -> Usage:
        """The same, all of it."""
        read, wrote = self.input_tokens or 0, self.output_tokens or 0
        prompt = self.input_tokens_details or NativeDetails()
        output = self.output_tokens_details or NativeDetails()
        return Usage(
            read,
            InputDetails(prompt.cached_tokens or 0, prompt.cache_write_tokens or 0),
            wrote,
            OutputDetails(output.reasoning_tokens or 0),
            read + wrote,
        )


class NativePart(Struct):
    """A part of a message or a thought."""

    type: str = ""
    text: str | None = None
    refusal: str | None = None
    logprobs: list[Logprob] | None = None


class NativeItem(Struct):
    """An item as engines tell it, who all add members of their own."""

    type: str = ""
    content: list[NativePart] | None = None
    summary: list[NativePart] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    input: str | None = None

    @property
    def thinking(self) -> str:
        """The text of a thought."""
        return "\n".join(part.text or "" for part in self.content or self.summary or ())


class NativeReason(Struct):
    """Why it ended early."""

    reason: str | None = None


class NativeResponse(Struct):
    """A response."""

    output: list[NativeItem] = []
    status: str | None = None
    incomplete_details: NativeReason | None = None
    usage: NativeUsage | None = None
    error: Any = None

    @property
    def failure(self) -> str:
        """Why it failed, "" where it did not."""
        if self.status != "failed":
            return ""
        return (words(encode(self.error)) if self.error is not None else "") or FAILED

    @property
    def early(self) -> Incomplete:
        """Why it ended early."""
        reason = self.incomplete_details.reason if self.incomplete_details is not None else None
        if reason == "content_filter":
            return "content_filter"
        return "max_output_tokens" if reason or self.status == "incomplete" else ""


class NativeEvent(Struct):
    """Any event; one that tells nothing of these tells nothing here."""

    type: str = ""
    delta: str = ""
    logprobs: list[Logprob] | None = None
    item: NativeItem | None = None
    response: NativeResponse | None = None
    error: Any = None


response, event = mending(Decoder(NativeResponse).decode), mending(Decoder(NativeEvent).decode)
