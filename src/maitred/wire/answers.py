"""What can be known of an engine's answer, whatever API it speaks, and what a grammar must tell of it.

Reading never changes a byte, and what cannot be read counts as content: an answer is passed on rather than
judged by a parser. `openai.py` and `anthropic.py` are the two grammars.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import IntEnum

import msgspec
from msgspec import Raw, Struct

from maitred.core.words import Usage
from maitred.wire.sse import Event

UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
"""What decoding may raise on bytes that are not what they should be."""
USAGE_OBJECT = re.compile(rb'"usage" ?: ?\{')

_raw = msgspec.json.Decoder(Raw).decode


class Says(IntEnum):
    """What one event of a stream says."""

    NOTHING = 0
    REASONING = 1
    CONTENT = 2
    ERROR = 3
    DONE = 4


NOTHING, REASONING, CONTENT, ERROR, SAID_DONE = Says  # looked up once, for it is dear


class End(Struct, frozen=True):
    """How a stream ended: whole (its terminal condition was there), in an error event, and its usage.

    A usage that is not exact tells nothing of the output.
    """

    whole: bool
    error: bool
    usage: Usage | None


class Grammar(Struct, frozen=True):
    """How the answers of one API are read; chosen once an answer.

    `token`: how the first line of an event begins that brings output, as engines write it. `opening`: name of
    the event that tells of the prompt at the start of a stream. `answer_begins`: an answer token in a stream
    that began with the model's thinking. `plain`: events as engines write them and nothing else, which pass
    unread; `strict_clients`: the API's own library falls over anything but events with data. `closing`: how
    the last event begins, of which the first group is the name, where that may be of any size.

    `says` judges one event, `judge_end` the opening and the last events of a stream of so many sequences.
    `read_whole` tells of a whole answer whether it is an error, and its usage; `read_usage` reads a usage
    object alone, and raises what is UNREADABLE.
    """

    token: bytes
    opening: bytes | None
    answer_begins: re.Pattern[bytes]
    plain: re.Pattern[bytes]
    strict_clients: bool
    says: Callable[[Event], Says]
    judge_end: Callable[[list[Event], int], End]
    read_whole: Callable[[bytes], tuple[bool, Usage | None]]
    read_usage: Callable[[bytes], Usage | None]
    closing: re.Pattern[bytes] | None = None


def is_json(body: bytes) -> bool:
    """Whether this is one JSON value and nothing else."""
    try:
        _raw(body)
    except UNREADABLE:
        return False
    return True


def usage_near_end(tail: bytes, read_usage: Callable[[bytes], Usage | None]) -> Usage | None:
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
                return read_usage(tail[start : at + 1])
            except UNREADABLE:
                return None
    return None
