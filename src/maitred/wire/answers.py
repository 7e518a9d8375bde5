"""What an engine's answer says: is it content, an error, the end, and how many tokens it took.

Chat and completions streams, and whole answers of every API. Reading never changes a byte, and what cannot
be read counts as content: an answer is passed on rather than judged by a parser.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Any

import msgspec
from msgspec import Raw, Struct

from maitred.core.words import Usage
from maitred.wire.sse import DONE, Event


class Says(IntEnum):
    """What one event of a stream says."""

    NOTHING = 0
    REASONING = 1
    CONTENT = 2
    ERROR = 3
    DONE = 4


class _CachedTokens(Struct):
    cached_tokens: int | None = None


class _Usage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _CachedTokens | None = None


class _Delta(Struct):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_calls: list[Raw] | None = None
    function_call: Any = None


class _Choice(Struct):
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None


class _Chunk(Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


class _Whole(Struct):
    usage: _Usage | None = None
    error: Any = None


_chunk = msgspec.json.Decoder(_Chunk).decode
_whole = msgspec.json.Decoder(_Whole).decode
_usage = msgspec.json.Decoder(_Usage).decode
_raw = msgspec.json.Decoder(Raw).decode

# An answer token in a stream that began with reasoning. Inside a JSON string the quotes would be escaped,
# so only real members match.
ANSWER_BEGINS = re.compile(rb'"(?:content|text|refusal)" ?: ?"[^"]|"tool_calls" ?: ?\[ ?[^\] ]')
USAGE_OBJECT = re.compile(rb'"usage" ?: ?\{')


def says(event: Event) -> Says:
    """Judge one event of a chat or completions stream."""
    if event.data == DONE:
        return Says.DONE
    if event.name == b"error":
        return Says.ERROR
    try:
        chunk = _chunk(event.data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return Says.CONTENT
    if chunk.error is not None:
        return Says.ERROR
    reasoning = False
    for choice in chunk.choices or ():
        delta = choice.delta
        if choice.text or choice.finish_reason:
            return Says.CONTENT
        if delta is None:
            continue
        if delta.content or delta.tool_calls or delta.refusal or delta.function_call:
            return Says.CONTENT
        reasoning = reasoning or bool(delta.reasoning or delta.reasoning_content)
    return Says.REASONING if reasoning else Says.NOTHING


class End(Struct, frozen=True):
    """How a stream ended: whole (its terminal condition was there), in an error event, and its usage."""

    whole: bool
    error: bool
    usage: Usage | None


def judge_end(last: list[Event], sequences: int) -> End:
    """Judge the last events. [DONE] ends a stream; so does the only choice's finish reason."""
    whole = error = False
    usage: Usage | None = None
    for event in last:
        if event.data == DONE:
            whole = True
            continue
        error = error or event.name == b"error"
        try:
            chunk = _chunk(event.data)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            continue
        error = error or chunk.error is not None
        usage = _as_usage(chunk.usage) or usage
        if sequences == 1 and any(choice.finish_reason for choice in chunk.choices or ()):
            whole = True
    return End(whole and not error, error, usage)


def is_usage_only(payload: bytes) -> bool:
    """Whether an event is the one that `include_usage` adds: usage and no choices."""
    try:
        chunk = _chunk(payload)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return False
    return chunk.usage is not None and not chunk.choices and chunk.error is None


def read_whole(body: bytes) -> tuple[bool, Usage | None]:
    """Of a whole JSON answer: whether it is an error object, and its usage."""
    try:
        whole = _whole(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return False, None
    return whole.error is not None, _as_usage(whole.usage)


def is_json(body: bytes) -> bool:
    """Whether this is one JSON value and nothing else."""
    try:
        _raw(body)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True


def usage_near_end(tail: bytes) -> Usage | None:
    """The usage of an answer too large to be kept, found in its last bytes; None when it is not there.

    A usage object holds numbers and objects only, so counting braces finds its end.
    """
    named = [match.end() for match in USAGE_OBJECT.finditer(tail)]
    if not named:
        return None
    start, depth = named[-1] - 1, 0
    for at in range(start, len(tail)):
        depth += (tail[at] == 0x7B) - (tail[at] == 0x7D)
        if depth == 0:
            try:
                return _as_usage(_usage(tail[start : at + 1]))
            except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
                return None
    return None


def _as_usage(usage: _Usage | None) -> Usage | None:
    if usage is None or (usage.prompt_tokens is None and usage.completion_tokens is None):
        return None
    details = usage.prompt_tokens_details
    cached = details.cached_tokens if details is not None else None
    return Usage(usage.prompt_tokens or 0, cached or 0, usage.completion_tokens or 0)
