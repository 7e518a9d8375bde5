"""Event streams, cut anywhere: the scanner against a plain reader, the tail against the whole."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from maitred.wire import sse as module
from maitred.wire.sse import (
    BOM,
    BOUNDARY,
    EVENT_BYTES_MAX,
    LAST_EVENTS,
    TAIL_BYTES,
    Blocks,
    Event,
    Scanner,
    Tail,
    parse,
)
from tests.wire.streams import CUTS, STREAMS, Searches, any_stream, captured, cut, reference, sse

NEWLINES = [b"\n", b"\r\n", b"\r"]


def scan(pieces: list[bytes]) -> list[Event]:
    scanner = Scanner()
    return [event for piece in pieces for event in scanner.feed(piece)]


# -- Scanner ----------------------------------------------------------------------------------------


@given(any_stream(), CUTS)
@example(b"data: a\r\n\r\ndata: b\n\ndata: c\r\r", [8, 9, 10, 11])
@example(BOM + b"data: a\n\n", [1, 2, 3, 4])
def test_every_event_comes_as_soon_as_it_is_whole(stream: bytes, places: list[int]) -> None:
    scanner, seen, events = Scanner(), b"", list[Event]()
    for piece in [*cut(stream, places), b":\n"]:
        seen += piece
        events += scanner.feed(piece)
        if not seen.endswith(b"\r"):  # a LF that belongs to it may follow
            assert events == reference(seen)


def test_a_byte_order_mark_is_none_after_the_start() -> None:
    assert scan([BOM + sse(b"a") + BOM + sse(b"b") + sse(b"c")]) == [Event(b"", b"a"), Event(b"", b"c")]


@pytest.mark.parametrize("name", STREAMS)
def test_real_streams(name: str) -> None:
    stream = captured(name)
    events = reference(stream)
    assert events[-1] == Event(b"", b"[DONE]")
    assert scan([stream]) == events
    assert scan([stream[at : at + 1] for at in range(len(stream))]) == events


@pytest.mark.parametrize(
    ("block", "event"),
    [
        (b"data: x", Event(b"", b"x")),
        (b"data:x\ndata:  y\ndata", Event(b"", b"x\n y\n")),
        (b"data:", Event(b"", b"")),
        (b"event: error\ndata: x", Event(b"error", b"x")),
        (b"data: x\nevent: a\nevent: b", Event(b"b", b"x")),
        (b"data: a: b", Event(b"", b"a: b")),
        (b": data: x", None),
        (b"id: 1\nretry: 2\nevent: x", None),
        (b"", None),
    ],
)
def test_one_event(block: bytes, event: Event | None) -> None:
    for newline in NEWLINES:
        assert parse(block.replace(b"\n", newline)) == event


@pytest.mark.parametrize(
    ("data", "start", "found"),
    [
        (b"a\n\nb", 0, (1, 3)),
        (b"a\r\n\r\nb", 0, (1, 5)),
        (b"a\r\rb", 0, (1, 3)),
        (b"a\n\r\nb", 0, (1, 4)),
        (b"a\r\n\nb", 0, (1, 4)),
        (b"a\r\n\r", 0, None),
        (b"a\nb\r\nc\r", 0, None),
        (b"a\n\nb\n\n", 3, (4, 6)),
        (b"", 0, None),
    ],
)
def test_boundaries(data: bytes, start: int, found: tuple[int, int] | None) -> None:
    match = BOUNDARY.search(data, start)
    assert (match.span() if match else None) == found


# -- Blocks -----------------------------------------------------------------------------------------


@given(any_stream(), CUTS)
def test_blocks_and_the_rest_are_the_stream(stream: bytes, places: list[int]) -> None:
    blocks = Blocks()
    told = [block for piece in cut(stream, places) for block in blocks.feed(piece)]
    assert b"".join(told) + blocks.rest == stream
    assert [event for block in told if (event := parse(block.removeprefix(BOM)))] == scan([stream])


LARGE = {
    "one line": b"data: " + b"x" * 300_000,
    "many lines": b"data: x\n" * 40_000,
    "many lines with CRLF": b"data: x\r\n" * 40_000,
    "many lines and one CR": b"data: x\n" * 40_000 + b"\r",
    "many lines after one CR": b"data: x\r" + b"data: x\n" * 40_000,
}


@pytest.mark.parametrize("reader", [Blocks, Scanner, lambda: Tail(b"")])
@pytest.mark.parametrize("piece_bytes", [1, 7, 1400, 1_000_000])
@pytest.mark.parametrize("stream", LARGE.values(), ids=LARGE.keys())
def test_every_byte_is_searched_once(
    stream: bytes,
    piece_bytes: int,
    reader: Callable[[], Blocks | Scanner | Tail],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searches = []
    for name in ("BOUNDARY", "FIRST_LINE_END", "_BOUNDARY_WITHOUT_CR"):
        searches.append(Searches(getattr(module, name)))
        monkeypatch.setattr(module, name, searches[-1])
    reads = reader()
    stream = stream if piece_bytes > 1 else stream[-20_000:]
    pieces = [stream[at : at + piece_bytes] for at in range(0, len(stream), piece_bytes)]
    for piece in pieces:
        reads.feed(piece)
    searched_bytes = sum(search.searched_bytes for search in searches)
    assert searched_bytes <= len(stream) + 3 * len(pieces)
    assert searched_bytes > 0 or len(pieces) == 1 or isinstance(reads, Tail)  # who need no search without CR


def test_a_large_event_in_small_pieces() -> None:
    payload = b"x" * 1024 * 1024
    stream = sse(b"before", payload, b"after")
    assert scan([stream[at : at + 8192] for at in range(0, len(stream), 8192)]) == reference(stream)


def test_an_event_without_end_is_given_up_on() -> None:
    scanner = Scanner()
    for _ in range(EVENT_BYTES_MAX // 65536 * 2):
        assert scanner.feed(b"data: " + b"x" * 65530) == []
        assert len(scanner.rest) <= EVENT_BYTES_MAX
    assert scanner.feed(b"\n\n" + sse(b"next"))[-1] == Event(b"", b"next")


def test_an_event_over_the_limit_is_left_out_even_when_it_comes_at_once() -> None:
    at_limit = b"x" * (EVENT_BYTES_MAX - len(sse(b"")))
    assert scan([sse(b"before", at_limit, b"after")]) == [
        Event(b"", b) for b in (b"before", at_limit, b"after")
    ]
    assert scan([sse(b"before", at_limit + b"x", b"after")]) == [Event(b"", b"before"), Event(b"", b"after")]


def test_a_part_of_a_first_event_over_the_limit_is_no_event_whatever_stands_before_it() -> None:
    start = BOM + b"data: "
    assert scan([start + b"x" * (EVENT_BYTES_MAX + 1 - len(start)), b"y\n\n" + sse(b"next")]) == [
        Event(b"", b"next")
    ]


# -- Tail -------------------------------------------------------------------------------------------

PAYLOADS = st.lists(
    st.sampled_from([b"[DONE]", b'{"choices":[]}', b"x", b"data", b"", b"data: data", b"y" * 200]),
    max_size=12,
)
ENDINGS = st.sampled_from([b"", b"data: unfini", b"data: unfinished\n", b": ping\n"])


def tail(pieces: list[bytes]) -> Tail:
    first, *others = pieces or [b""]
    told = Tail(first)
    for piece in others:
        told.feed(piece)
    return told


@given(PAYLOADS, CUTS, st.sampled_from(NEWLINES))
def test_events_are_counted_alike_however_the_stream_is_cut(
    payloads: list[bytes], places: list[int], newline: bytes
) -> None:
    start = sse(b"the held start", newline=newline)
    told = tail([start, *cut(sse(*payloads, newline=newline), places)])
    assert told.events == len(payloads)


@pytest.mark.parametrize("newline", NEWLINES)
def test_events_are_counted_alike_wherever_the_start_ended(newline: bytes) -> None:
    """The hold may run out of time within the first event."""
    stream = sse(b"a", b"b", b"c", newline=newline)
    assert [tail([stream[:at], stream[at:]]).events for at in range(len(stream))] == [2] * len(stream)


@given(PAYLOADS, ENDINGS, CUTS, st.sampled_from([b"\n", b"\r\n"]))
def test_the_last_events_are_found_however_the_stream_is_cut(
    payloads: list[bytes], ending: bytes, places: list[int], newline: bytes
) -> None:
    stream = sse(*payloads, newline=newline) + ending.replace(b"\n", newline)
    assert tail(cut(stream, places)).last() == reference(stream)[-LAST_EVENTS:]


@pytest.mark.parametrize("name", STREAMS)
def test_the_end_of_real_streams_cut_anywhere(name: str) -> None:
    stream = captured(name)
    events = reference(stream)
    for at in range(len(stream)):
        told = tail(cut(stream, [at]))
        assert told.last() == events[-LAST_EVENTS:]
        assert told.events == len(events) - 1


@pytest.mark.parametrize("name", STREAMS)
def test_the_end_of_a_stream_broken_off_anywhere(name: str) -> None:
    stream = captured(name)
    for at in range(len(stream)):
        assert Tail(stream[:at]).last() == reference(stream[:at])[-LAST_EVENTS:]


@pytest.mark.parametrize("newline", NEWLINES)
def test_the_end_of_a_stream_is_final(newline: bytes) -> None:
    """Nothing can follow any more that would make a CR at the very end half a line end."""
    assert Tail(sse(b"x", b"[DONE]", newline=newline)).last() == [Event(b"", b"x"), Event(b"", b"[DONE]")]


def test_pings_at_the_end_hide_nothing() -> None:
    stream = sse(b"token", b"error", b"usage") + b": ping\n\n" * 5 + sse(b"[DONE]") + b": ping\n\n"
    assert Tail(stream).last() == [Event(b"", b"error"), Event(b"", b"usage"), Event(b"", b"[DONE]")]


def test_named_events_and_those_of_many_lines_are_whole() -> None:
    stream = sse(b"x", b"y") + b"event: error\ndata: a\ndata: b\n\n" + sse(b"[DONE]")
    assert Tail(stream).last() == [Event(b"", b"y"), Event(b"error", b"a\nb"), Event(b"", b"[DONE]")]


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
@pytest.mark.parametrize(("piece_bytes", "tails"), [(7, 6), (1400, 100), (65536, 100), (5 * TAIL_BYTES, 100)])
def test_a_long_stream_costs_no_memory(newline: bytes, piece_bytes: int, tails: int) -> None:
    token = sse(b'{"choices":[{"delta":{"content":"a token"}}]}', newline=newline)
    count = tails * TAIL_BYTES // len(token)
    stream = token * count + sse(b"usage", b"[DONE]", newline=newline)
    pieces = [stream[at : at + piece_bytes] for at in range(0, len(stream), piece_bytes)]
    told = Tail(token)
    tracemalloc.start()
    try:
        for piece in pieces:
            told.feed(bytes(bytearray(piece)))  # as bytes of its own, as they come from a socket
            kept_bytes, _ = tracemalloc.get_traced_memory()
            assert kept_bytes < 24 * TAIL_BYTES
    finally:
        tracemalloc.stop()
    assert told.events == count + 2
    assert told.last()[-2:] == [Event(b"", b"usage"), Event(b"", b"[DONE]")]
