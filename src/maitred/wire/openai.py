"""What an engine's answer says where the client speaks OpenAI's API; see `answers.py`.

Streams of chat and completions, and the whole answers of every path but Anthropic's.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Raw, Struct

from maitred.core.words import Usage
from maitred.wire.answers import (
    CONTENT,
    ERROR,
    NOTHING,
    REASONING,
    SAID_DONE,
    UNREADABLE,
    End,
    Grammar,
    Says,
)
from maitred.wire.sse import DONE, Event

# An answer token in a stream that began with reasoning. Inside a JSON string the quotes would be escaped,
# so only real members match.
ANSWER_BEGINS = re.compile(rb'"(?:content|text|refusal)" ?: ?"[^"]|"tool_calls" ?: ?\[ ?[^\] ]')


class _CachedTokens(Struct, gc=False):
    cached_tokens: int | None = None


class _Usage(Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _CachedTokens | None = None


class _Delta(Struct, gc=False):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_calls: list[Raw] | None = None
    function_call: Any = None


class _Choice(Struct, gc=False):
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None


class _Chunk(Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


class _Whole(Struct, gc=False):
    usage: _Usage | None = None
    error: Any = None


_chunk = msgspec.json.Decoder(_Chunk).decode
_whole = msgspec.json.Decoder(_Whole).decode
_usage = msgspec.json.Decoder(_Usage).decode


def says(event: Event) -> Says:
    """Judge one event of a chat or completions stream."""
    if event.data == DONE:
        return SAID_DONE
    if event.name == b"error":
        return ERROR
    try:
        chunk = _chunk(event.data)
    except UNREADABLE:
        return CONTENT
    if chunk.error is not None:
        return ERROR
    reasoning = False
    for choice in chunk.choices or ():
        delta = choice.delta
        if choice.text or choice.finish_reason:
            return CONTENT
        if delta is None:
            continue
        if delta.content or delta.tool_calls or delta.refusal or delta.function_call:
            return CONTENT
        reasoning = reasoning or bool(delta.reasoning or delta.reasoning_content)
    return REASONING if reasoning else NOTHING


def judge_end(last: list[Event], sequences: int) -> End:
    """Judge the last events. [DONE] ends a stream; so does the only choice's finish reason."""
    whole = error = False
    usage: Usage | None = None
    for event in reversed(last):
        if event.data == DONE:
            whole = True
            continue
        if event.name == b"error":
            error = True
        try:
            chunk = _chunk(event.data)
        except UNREADABLE:
            continue
        if chunk.error is not None:
            error = True
        if usage is None:
            usage = _as_usage(chunk.usage)
        if not whole and sequences == 1 and any(choice.finish_reason for choice in chunk.choices or ()):
            whole = True
    return End(whole and not error, error, usage)


def is_usage_only(payload: bytes) -> bool:
    """Whether an event is the one that `include_usage` adds: usage and no choices."""
    try:
        chunk = _chunk(payload)
    except UNREADABLE:
        return False
    return chunk.usage is not None and not chunk.choices and chunk.error is None


def read_whole(body: bytes) -> tuple[bool, Usage | None]:
    """Of a whole JSON answer: whether it is an error object, and its usage."""
    try:
        whole = _whole(body)
    except UNREADABLE:
        return False, None
    return whole.error is not None, _as_usage(whole.usage)


def read_usage(usage: bytes) -> Usage | None:
    """Read a usage object."""
    return _as_usage(_usage(usage))


def _as_usage(usage: _Usage | None) -> Usage | None:
    if usage is None or (usage.prompt_tokens is None and usage.completion_tokens is None):
        return None
    details = usage.prompt_tokens_details
    cached = details.cached_tokens if details is not None else None
    return Usage(usage.prompt_tokens or 0, cached or 0, usage.completion_tokens or 0)


GRAMMAR = Grammar(
    token=b"data",
    opening=None,
    answer_begins=ANSWER_BEGINS,
    plain=re.compile(rb"(?:data: [{\[].++\n\n)++"),
    strict_clients=True,
    says=says,
    judge_end=judge_end,
    read_whole=read_whole,
    read_usage=read_usage,
)
