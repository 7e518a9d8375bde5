"""Event streams for tests: real ones, any ones, cut anywhere, and a reader of them too plain to be wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from hypothesis import strategies as st

from maitred.wire.sse import BOM, Event

DATA = Path(__file__).parents[1] / "data" / "engines"
STREAMS = [
    "vllm_chat_stream",
    "vllm_chat_stream_continuous_usage",
    "vllm_completions_stream",
    "llamacpp_chat_stream",
    "llamacpp_completions_stream",
]


def captured(name: str) -> bytes:
    """The body of a real engine's answer."""
    exchange = (DATA / f"{name}.txt").read_bytes()
    return exchange[exchange.index(b"\n\n", exchange.index(b"\nHTTP ")) + 2 :]


def reference(stream: bytes) -> list[Event]:
    """All events of a stream, line by line as the standard tells it; what is unfinished is no event."""
    events, name, data = [], b"", list[bytes]()
    for line in re.split(rb"\r\n|\r|\n", stream.removeprefix(BOM))[:-1]:
        if not line:
            if data:
                events.append(Event(name, b"\n".join(data)))
            name, data = b"", []
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            name = value
        elif field == b"data":
            data.append(value)
    return events


class Searches:
    """Stands in for a pattern and counts the bytes it was given to search."""

    def __init__(self, pattern: re.Pattern[bytes]) -> None:
        self.pattern = pattern
        self.searched_bytes = 0

    def search(self, data: bytes, start: int = 0) -> re.Match[bytes] | None:
        self.searched_bytes += len(data) - start
        return self.pattern.search(data, start)


def sse(*payloads: bytes, newline: bytes = b"\n") -> bytes:
    """A stream of these payloads."""
    return b"".join(b"data: " + payload + 2 * newline for payload in payloads)


def cut(stream: bytes, places: Iterable[int]) -> list[bytes]:
    """The stream in pieces; a place beyond its end counts from the beginning again."""
    at = sorted({0, len(stream), *(place % (len(stream) + 1) for place in places)})
    return [stream[start:end] for start, end in pairwise(at)]


CUTS = st.lists(st.integers(0, 5000), max_size=12)
TEXTS = st.binary(max_size=6) | st.sampled_from(
    [b'{"a": 1}', b"[DONE]", b" two blanks", b"a: b", "é漢".encode()]
)
ONE_LINE = TEXTS.map(lambda text: text.translate(None, b"\r\n"))
LINES = st.one_of(
    st.builds(b"data: %b".__mod__, ONE_LINE),
    st.builds(b"data:%b".__mod__, ONE_LINE),
    st.builds(b"event: %b".__mod__, ONE_LINE),
    st.sampled_from(
        [b"data", b"id: 7", b"retry: 3000", b": ping", b":", b"event", b"odd", b"dataa: x", b" data: x"]
    ),
)
NEWLINES = st.sampled_from([[b"\n"], [b"\r\n"], [b"\r"], [b"\n", b"\r\n", b"\r"]])


@st.composite
def any_stream(draw: st.DrawFn) -> bytes:
    """Any stream: odd fields, blank lines where they may be, one kind of line end or all three."""
    ends = st.sampled_from(draw(NEWLINES))
    lines = draw(st.lists(st.tuples(LINES | st.just(b"") | st.just(b""), ends), max_size=20))
    return draw(st.sampled_from([b"", b"", BOM])) + b"".join(line + end for line, end in lines)
