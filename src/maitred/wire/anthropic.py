"""What an engine's answer says where the client speaks Anthropic's Messages API; see `answers.py`.

A stream opens with `message_start`, which tells the prompt's tokens; `message_delta` tells the output's, and
the prompt's again where they were not known before; `message_stop` is the end. Token counts of a prompt are
told in three parts: read from the cache, written to it, and neither.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Struct

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

# As in OpenAI's streams: inside a JSON string the quotes would be escaped.
ANSWER_BEGINS = re.compile(rb'"(?:text|partial_json)" ?: ?"[^"]|"type" ?: ?"(?:server_)?tool_use"')
_OPENS_EMPTY = ("text", "thinking")


class _Usage(Struct, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _Message(Struct, gc=False):
    usage: _Usage | None = None


class _Block(Struct, gc=False):
    type: str = ""
    text: str | None = None


class _Delta(Struct, gc=False):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _Event(Struct, gc=False):
    type: str = ""
    message: _Message | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: _Usage | None = None
    error: Any = None


_event = msgspec.json.Decoder(_Event).decode
_usage = msgspec.json.Decoder(_Usage).decode


def says(event: Event) -> Says:
    """Judge one event of a Messages stream."""
    if event.name == b"error":
        return ERROR
    if event.data == DONE:
        return SAID_DONE
    try:
        told = _event(event.data)
    except UNREADABLE:
        return CONTENT
    if told.type == "error" or told.error is not None:
        return ERROR
    if told.type == "message_stop":
        return SAID_DONE
    if (block := told.content_block) is not None:
        if block.type == "redacted_thinking":
            return REASONING
        return CONTENT if block.text or block.type not in _OPENS_EMPTY else NOTHING
    return NOTHING if told.delta is None else _of_delta(told.delta)


def _of_delta(delta: _Delta) -> Says:
    if delta.text or delta.partial_json or delta.stop_reason or delta.type == "citations_delta":
        return CONTENT
    return REASONING if delta.thinking else NOTHING


def judge_end(last: list[Event], _sequences: int) -> End:
    """Judge the opening and the last events of a stream. Of each count the last word is valid."""
    whole = error = finished = False
    counts = _Usage()
    for event in last:
        error = error or event.name == b"error"
        try:
            told = _event(event.data)
        except UNREADABLE:
            continue
        error = error or told.type == "error" or told.error is not None
        whole = whole or told.type == "message_stop"
        finished = finished or told.usage is not None
        _update(counts, told.usage if told.message is None else told.message.usage)
    return End(whole and not error, error, _as_usage(counts, exact=finished))


def read_whole(body: bytes) -> tuple[bool, Usage | None]:
    """Of a whole JSON answer: whether it is an error object, and its usage."""
    try:
        whole = _event(body)
    except UNREADABLE:
        return False, None
    error = whole.type == "error" or whole.error is not None
    return error, None if whole.usage is None else _as_usage(whole.usage)


def read_usage(usage: bytes) -> Usage | None:
    """Read a usage object."""
    return _as_usage(_usage(usage))


def _update(counts: _Usage, later: _Usage | None) -> None:
    for name in _Usage.__struct_fields__:
        if (count := getattr(later, name, None)) is not None:
            setattr(counts, name, count)


def _as_usage(counts: _Usage, *, exact: bool = True) -> Usage | None:
    if counts.input_tokens is None and counts.output_tokens is None:
        return None
    cached = counts.cache_read_input_tokens or 0
    prompt = (counts.input_tokens or 0) + cached + (counts.cache_creation_input_tokens or 0)
    return Usage(prompt, cached, counts.output_tokens or 0, exact)


GRAMMAR = Grammar(
    token=b"event: content_block_delta",
    opening=b"message_start",
    answer_begins=ANSWER_BEGINS,
    plain=re.compile(rb"(?:event: \w++\ndata: \{.++\n\n)++"),
    strict_clients=False,
    says=says,
    judge_end=judge_end,
    read_whole=read_whole,
    read_usage=read_usage,
)
