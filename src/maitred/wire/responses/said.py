"""What engines answer in chat, whole and in pieces: the members that items are made of."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.json import Decoder

from maitred.wire.responses.items import Logprob
from maitred.wire.responses.mending import mending
from maitred.wire.responses.response import Incomplete, InputDetails, OutputDetails, Usage


class PromptDetails(Struct):
    """`created_cache_tokens` is vLLM's."""

    cached_tokens: int | None = None
    created_cache_tokens: int | None = None


class CompletionDetails(Struct):
    """Of the tokens written."""

    reasoning_tokens: int | None = None


class ChatUsage(Struct):
    """The usage of a chat answer."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: CompletionDetails | None = None

    def usage(self) -> Usage:
        """The same in the words of Responses."""
        read, wrote = self.prompt_tokens or 0, self.completion_tokens or 0
        prompt = self.prompt_tokens_details or PromptDetails()
        output = self.completion_tokens_details or CompletionDetails()
        return Usage(
            read,
            InputDetails(prompt.cached_tokens or 0, prompt.created_cache_tokens or 0),
            wrote,
            OutputDetails(output.reasoning_tokens or 0),
            read + wrote,
        )


class ChatFunction(Struct):
    """A function called; in a stream the arguments come in pieces."""

    name: str | None = None
    arguments: str | None = None


class ChatCall(Struct):
    """A call. `index` tells calls of a stream apart."""

    index: int = 0
    id: str | None = None
    function: ChatFunction | None = None


class Delta(Struct):
    """What a model says, all of it or a piece. Engines do not agree on the name of its thoughts."""

    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_calls: list[ChatCall] | None = None


class Logprobs(Struct):
    """How probable the tokens were."""

    content: list[Logprob] | None = None


class Choice(Struct):
    """One answer; there is only one. `delta` in a stream, `message` else."""

    delta: Delta | None = None
    message: Delta | None = None
    logprobs: Logprobs | None = None
    finish_reason: str | None = None


class Chat(Struct):
    """An answer, or a piece of it."""

    choices: list[Choice] | None = None
    usage: ChatUsage | None = None
    error: Any = None


chat = mending(Decoder(Chat).decode)

_ENDS: dict[str | None, Incomplete] = {"length": "max_output_tokens", "content_filter": "content_filter"}
_FAILS = ("abort", "error")


def incomplete(finish_reason: str | None) -> Incomplete:
    """Why an answer ended early, "" where it did not."""
    return _ENDS.get(finish_reason, "")


def failure(finish_reason: str | None) -> str:
    """What is wrong with an answer that ended so, "" for nothing."""
    return "the engine gave the answer up" if finish_reason in _FAILS else ""
