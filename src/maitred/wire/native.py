"""What an engine's answer says where it is asked by its own Responses API; see `answers.py`.

The last event tells the whole response again, so it may be of any size: it is known by its name, and its
usage is found near its end.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Struct

from maitred.core.words import Usage
from maitred.wire.answers import UNREADABLE, End, Grammar, Says
from maitred.wire.sse import Event

_TELLS = {
    b"response.output_text.delta": Says.CONTENT,
    b"response.refusal.delta": Says.CONTENT,
    b"response.function_call_arguments.delta": Says.CONTENT,
    b"response.custom_tool_call_input.delta": Says.CONTENT,
    b"response.output_item.done": Says.CONTENT,
    b"response.reasoning_text.delta": Says.REASONING,
    b"response.reasoning_summary_text.delta": Says.REASONING,
    b"response.completed": Says.DONE,
    b"response.incomplete": Says.DONE,
    b"response.failed": Says.ERROR,
    b"error": Says.ERROR,
}

ANSWER_BEGINS = re.compile(
    rb"event: response\.(?:output_text|refusal|function_call_arguments|custom_tool_call_input)\.delta"
)
CLOSING = re.compile(rb"(?:^|\n)event: (response\.(?:completed|incomplete|failed)|error)\r?\n")


class _Cached(Struct):
    cached_tokens: int | None = None


class _Usage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _Cached | None = None


class _Whole(Struct):
    usage: _Usage | None = None
    error: Any = None


_whole = msgspec.json.Decoder(_Whole).decode
_usage = msgspec.json.Decoder(_Usage).decode


def says(event: Event) -> Says:
    """Judge one event: its name tells enough."""
    return _TELLS.get(event.name, Says.NOTHING)


def judge_end(last: list[Event], _sequences: int) -> End:
    """Judge the last events."""
    ends = [said for event in last if (said := says(event)) in (Says.DONE, Says.ERROR)]
    error = Says.ERROR in ends
    return End(whole=bool(ends) and not error, error=error, usage=None)


def read_whole(body: bytes) -> tuple[bool, Usage | None]:
    """Of a whole response: whether it is an error or has failed, and its usage."""
    try:
        whole = _whole(body)
    except UNREADABLE:
        return False, None
    return whole.error is not None, None if whole.usage is None else _as_usage(whole.usage)


def read_usage(usage: bytes) -> Usage | None:
    """Read a usage object."""
    return _as_usage(_usage(usage))


def _as_usage(usage: _Usage) -> Usage | None:
    if usage.input_tokens is None and usage.output_tokens is None:
        return None
    details = usage.input_tokens_details
    cached = details.cached_tokens if details is not None else None
    return Usage(usage.input_tokens or 0, cached or 0, usage.output_tokens or 0)


GRAMMAR = Grammar(
    token=b"event: response.",
    opening=None,
    answer_begins=ANSWER_BEGINS,
    plain=re.compile(rb"(?:event: [\w.]++\ndata: \{.++\n\n)++"),
    strict_clients=False,
    says=says,
    judge_end=judge_end,
    read_whole=read_whole,
    read_usage=read_usage,
    closing=CLOSING,
)
