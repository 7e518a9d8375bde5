"""The fault suite: what an engine can do wrong, and what its client must see of it.

The same tables are served on the network in memory and, in part, on real sockets.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from maitred.wire.sse import Scanner
from tests.net.http import Answer, Broken
from tests.proxy.place import STREAM, WHOLE, Place
from tests.proxy.upstream import (
    ERROR,
    EVENTS,
    GOOD,
    GOOD_STREAM,
    JSON,
    LAST,
    ROLE,
    SEEN,
    End,
    Plan,
    chunk,
    head,
    stream,
    whole,
    word,
)
from tests.proxy.upstream import STREAM as STREAM_HEAD

ATTEMPT = "x-envoy-attempt-count"
ERROR_BODY = b'{"error":{"message":"the engine is on fire","type":"InternalServerError","code":500}}'
NAMED_ERROR = b"event: error\n" + ERROR

BEFORE_ANY_ANSWER: dict[str, Plan] = {
    "reset": [End.RESET],
    "closed": [End.CLOSE],
    "500": [whole(ERROR_BODY, "x-leak: 1", status=500)],
    "500 without a body": [head(500, "x-leak: 1", "content-length: 0")],
    "503 until close": [head(503, "x-leak: 1"), ERROR_BODY, End.CLOSE],
    "429": [whole(ERROR_BODY, "retry-after: 7", "x-leak: 1", status=429)],
    "redirect": [head(302, "location: http://elsewhere/", "content-length: 0")],
    "garbage": [b"\x16\x03\x01\x02\x00\x01\x00garbage\r\n\r\n"],
    "an old protocol": [b"ICY 200 OK\r\n\r\n"],
    "two lengths": [head(200, "content-length: 1", "content-length: 2"), b"{}"],
    "a length that is none": [head(200, "content-length: -5"), b"{}"],
    "half a head": [b"HTTP/1.1 200 OK\r\nx-leak: 1\r\ncontent-", End.RESET],
    "only an interim head": [head(100), End.CLOSE],
    "switching protocols": [head(101, "upgrade: h2c", "connection: upgrade")],
    "head only": [head(200, "x-leak: 1", "content-length: 100"), End.CLOSE],
}
"""Plans that fail a whole answer as well as a stream, before any of either has come."""

BEFORE_CONTENT: dict[str, Plan] = {
    "head of a stream only": [STREAM_HEAD, End.CLOSE],
    "an empty stream": [STREAM_HEAD, LAST],
    "role only, then close": [STREAM_HEAD, chunk(ROLE), End.CLOSE],
    "role only, then reset": [STREAM_HEAD, chunk(ROLE), End.RESET],
    "role only, then the end": [STREAM_HEAD, chunk(ROLE), LAST],
    "half an event": [STREAM_HEAD, chunk(ROLE + word("Hello")[:30]), LAST],
    "error first": [STREAM_HEAD, chunk(ERROR), LAST],
    "error event by name": [STREAM_HEAD, chunk(NAMED_ERROR), LAST],
    "error after the role": [STREAM_HEAD, chunk(ROLE), 0.5, chunk(ERROR), chunk(EVENTS[-1]), LAST],
    "error after the role, cut": [STREAM_HEAD, chunk(ROLE + ERROR[:20]), chunk(ERROR[20:]), LAST],
    "broken chunks": [STREAM_HEAD, chunk(ROLE), b"xyz\r\n"],
    "200 and an error object": [whole(ERROR_BODY)],
    "until close, cut": [head(200, "content-type: text/event-stream"), ROLE, End.CLOSE],
}
"""Plans that fail a stream before its first content."""

CUT_WHOLE: dict[str, Plan] = {
    "cut by length": [whole(JSON)[:-10], End.CLOSE],
    "reset within": [whole(JSON)[:-10], 1.0, End.RESET],
    "cut chunks": [head(200, "transfer-encoding: chunked"), chunk(JSON[:20]), End.CLOSE],
    "200 and an error object": [whole(ERROR_BODY)],
}
"""Plans that fail a whole answer in its middle."""

SPOKEN = (ROLE, word("Hello"))
AFTER_CONTENT: dict[str, tuple[Plan, str]] = {
    "close": ([*stream(*SPOKEN, end=()), 0.5, End.CLOSE], "failed_truncated"),
    "reset": ([*stream(*SPOKEN, end=()), 0.5, End.RESET], "failed_truncated"),
    "an end without [DONE]": (stream(*SPOKEN), "failed_truncated"),
    "broken chunks": ([*stream(*SPOKEN, end=()), 0.5, b"xyz\r\n"], "failed_upstream"),
    "until close, cut": (
        [head(200, "content-type: text/event-stream"), *SPOKEN, 0.5, End.CLOSE],
        "failed_truncated",
    ),
    "half an event, then the end": (
        [*stream(*SPOKEN, end=()), 0.5, chunk(word("world")[:40]), LAST],
        "failed_truncated",
    ),
    "half an event, then close": (
        [*stream(*SPOKEN, end=()), 0.5, chunk(word("world")[:40]), End.CLOSE],
        "failed_truncated",
    ),
    "half a chunk, then close": (
        [*stream(*SPOKEN, end=()), 0.5, chunk(word("world"))[:60], End.CLOSE],
        "failed_truncated",
    ),
}
"""Plans that fail a stream after its first content, and the outcome."""


def spoken(answer: Answer) -> list[Any]:
    """The payloads of a stream's events, "[DONE]" as it is; all must be whole and readable."""
    scanner = Scanner()
    events = scanner.feed(answer.body)
    assert scanner.rest == b"", f"an unfinished event was left: {scanner.rest!r}"
    return [event.data.decode() if event.data == b"[DONE]" else json.loads(event.data) for event in events]


async def mended(place: Place, request: bytes) -> None:
    """The first seat failed: the client sees nothing of it, and the next request is well."""
    good = SEEN if request == STREAM else JSON
    answer = await place.ask(request)
    assert (answer.status, answer.body) == (200, good)
    assert answer.values(b"x-leak") == answer.values(b"retry-after") == []
    first, second = place.menu.asked[:2]
    assert first.kitchen != second.kitchen
    assert first.body == second.body
    assert first.values("x-request-id") == second.values("x-request-id")
    assert (first.values(ATTEMPT), second.values(ATTEMPT)) == (
        [],
        ["2"],
    )  # what lies behind is not to repeat it
    assert len(place.menu.asked) == 2
    (line,) = place.lines
    assert (line["outcome"], line["status"], line["attempts"]) == ("completed", 200, 2)
    assert line["endpoint"].endswith(place.kitchens[second.kitchen].url.removeprefix("http://"))


async def broken_off(place: Place, outcome: str, request: bytes = STREAM) -> None:
    """A stream failed after its first content: what came is there, then one error event, then the end."""
    client = await place.client()
    client.send(request)
    answer = await client.answer()
    assert answer.status == 200
    assert answer.framing == "chunked"
    assert answer.body.startswith(b"".join(SPOKEN))
    events = spoken(answer)
    assert "[DONE]" not in events
    error = events[-1]["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["param"]) == ("server_error", None)
    assert isinstance(error["code"], str)
    assert all("error" not in event for event in events[:-1])
    assert len(place.menu.asked) == 1
    assert place.outcomes == [outcome]
    client.send(WHOLE)  # the framing was kept, so the connection is still of use
    assert (await client.answer()).status == 200


def last_resort(request: bytes) -> Plan:
    """What serves a request well."""
    return GOOD_STREAM if request == STREAM else GOOD


async def cut(place: Place, request: bytes) -> Answer:
    """Ask, and return what came of an answer that was broken off."""
    client = await place.client()
    client.send(request)
    with pytest.raises(Broken) as broken:
        await client.answer()
    assert broken.value.answer is not None
    return broken.value.answer
