"""Undoing edits in answers: the usage event goes, the name comes back, every other byte stays."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maitred.wire import sse as sse_module
from maitred.wire.openai import GRAMMAR, is_usage_only
from maitred.wire.sse import EVENT_BYTES_MAX
from maitred.wire.undo import USAGE, Undo
from tests.wire.streams import CUTS, Searches, captured, cut, reference, sse

USAGE_EVENT = re.compile(rb'data: \{[^\n]*"choices":\[\],[^\n]*\n\n')
COUNTS = b'{"id":"c","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4}}'
ALIAS, SERVED = "default", "smollm2"


def undoing(
    served_as: str | None = None, *, hides_usage: bool = True, streamed: bool = True, strict: bool = False
) -> Undo:
    return Undo(streamed=streamed, strict=strict, hides_usage=hides_usage, served_as=served_as, name=ALIAS)


def passes(undo: Undo, piece: bytes) -> bool:
    return undo.calm and USAGE not in piece and GRAMMAR.plain.fullmatch(piece) is not None


def fed(undo: Undo, piece: bytes) -> bytes:
    """What leaves of one read, asked for as the relay asks: it passes unread where it may."""
    return piece if passes(undo, piece) else undo.feed(piece)


def undone(pieces: list[bytes], served_as: str | None = None, *, hides_usage: bool = True) -> bytes:
    """What leaves of a whole stream."""
    undo = undoing(served_as, hides_usage=hides_usage)
    return b"".join([fed(undo, piece) for piece in pieces]) + undo.flush()


@pytest.mark.parametrize(
    ("name", "events"),
    [
        ("vllm_chat_stream", 1),
        ("vllm_chat_stream_continuous_usage", 1),
        ("vllm_completions_stream", 1),
        ("llamacpp_chat_stream", 1),
        ("llamacpp_completions_stream", 0),  # usage comes with the finish reason, and that must stay
    ],
)
@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_the_usage_event_goes_wherever_a_real_stream_is_cut(name: str, events: int, newline: bytes) -> None:
    body = captured(name)
    expected, count = USAGE_EVENT.subn(b"", body)
    assert count == events
    body, expected = body.replace(b"\n", newline), expected.replace(b"\n", newline)
    for at in range(len(body)):
        assert undone(cut(body, [at])) == expected
    assert undone([body[at : at + 1] for at in range(len(body))]) == expected


PAYLOADS = st.sampled_from(
    [
        COUNTS,
        COUNTS.replace(b":", b": "),
        b'{"usage":{"prompt_tokens":1}}',
        b'{"choices":[{"delta":{"content":"x"}}],"usage":{"prompt_tokens":1}}',
        b'{"choices":[],"usage":null}',
        b'{"choices":[{"delta":{"content":"\\"usage\\": none"}}]}',
        b'"usage"',
        b'{"usage"',
        b"[DONE]",
    ]
)
BLOCKS = st.one_of(
    PAYLOADS.map(b"data: %b".__mod__),
    PAYLOADS.map(b"event: x\ndata:%b".__mod__),
    st.sampled_from([b': "usage"', b": ping", b"id: 7\nretry: 1"]),
)


@st.composite
def hideable(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A stream, and the same without its usage events; both may end unfinished."""
    newlines = st.sampled_from(draw(st.sampled_from([[b"\n"], [b"\r\n"], [b"\n", b"\r\n"], [b"\r"]])))
    stream = shown = b""
    for block in draw(st.lists(BLOCKS, max_size=8)):
        whole = (block + b"\n\n").replace(b"\n", draw(newlines))
        stream += whole
        if not any(is_usage_only(event.data) for event in reference(whole)):
            shown += whole
    ending = b":" + draw(st.sampled_from([b"", b"\ndata: " + COUNTS, b'"usage"']))
    return stream + ending, shown + ending


@given(hideable(), CUTS)
def test_usage_events_go_and_nothing_else_wherever_a_stream_is_cut(
    streams: tuple[bytes, bytes], places: list[int]
) -> None:
    stream, shown = streams
    assert undone(cut(stream, places)) == shown


def test_every_usage_event_goes() -> None:
    token = sse(b'{"choices":[{"index":1,"delta":{"content":"x"}}]}')
    stream = token + sse(COUNTS) + token + sse(COUNTS, b"[DONE]")
    assert undone([stream]) == token + token + sse(b"[DONE]")


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_whole_events_are_never_held_back(newline: bytes) -> None:
    undo = undoing()
    for payload in (b'{"choices":[{"delta":{"content":"x"}}]}', b'{"choices":[],"usage":null}', b"[DONE]"):
        whole = sse(payload, newline=newline)
        assert undo.feed(whole) == whole
    assert undo.feed(sse(COUNTS, newline=newline)) == b""
    assert undo.flush() == b""


def test_reads_of_whole_events_pass_as_they_are() -> None:
    undo = undoing()
    assert passes(undo, sse(b'{"x":1}', b'{"y":2}'))
    assert not passes(undo, sse(b'{"x":1}') + b"id: 7\n\n")
    assert not passes(undo, sse(COUNTS))
    assert not passes(undo, b"data: x")
    assert undo.feed(b'data: {"choices":[],"us') == b""
    assert not passes(undo, b'age":{}}\n\n')  # it may be the rest of one


def test_what_was_held_back_leaves_at_the_end() -> None:
    undo = undoing()
    assert undo.feed(sse(b"x") + b"data: unfini") == sse(b"x")
    assert undo.flush() == b"data: unfini"
    assert undo.flush() == b""


@pytest.mark.parametrize("end", [b"", b"\n", b"\r"])
def test_what_is_held_is_not_searched_again(end: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    searches = [Searches(sse_module.BOUNDARY), Searches(sse_module._BOUNDARY_WITHOUT_CR)]
    monkeypatch.setattr(sse_module, "BOUNDARY", searches[0])
    monkeypatch.setattr(sse_module, "_BOUNDARY_WITHOUT_CR", searches[1])
    undo, piece = undoing(), b"data: " + b"x" * 1400 + end
    for _ in range(300):
        assert undo.feed(piece) == b""
    assert 0 < sum(search.searched_bytes for search in searches) <= 300 * (len(piece) + 3)
    assert undo.flush() == piece * 300


def test_an_event_too_large_is_no_usage_event_and_not_kept() -> None:
    undo = undoing()
    piece = b"data: " + b"x" * 1_000_000
    passed = b""
    for count in range(1, 9):
        passed += undo.feed(piece)
        assert len(piece) * count - len(passed) <= EVENT_BYTES_MAX
    assert passed + undo.feed(b"\n\n" + sse(COUNTS)) + undo.flush() == piece * 8 + b"\n\n"


# -- the name ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("hides_usage", [False, True])
@pytest.mark.parametrize("name", ["vllm_chat_stream", "vllm_completions_stream"])
def test_the_name_comes_back_and_the_usage_event_goes(name: str, hides_usage: bool) -> None:
    body = captured(name)
    expected = body.replace(b'"model":"smollm2"', b'"model":"default"')
    if hides_usage:
        expected = USAGE_EVENT.sub(b"", expected)
    assert expected.count(b'"default"') == body.count(b'"smollm2"') - hides_usage
    for at in range(len(body)):
        assert undone(cut(body, [at]), SERVED, hides_usage=hides_usage) == expected


@pytest.mark.parametrize("streamed", [True, False])
def test_the_name_comes_back_in_what_was_held_to_the_end(streamed: bool) -> None:
    body = b'data: {"model":"smollm2","choices":[]}'
    for at in range(len(body) + 1):
        undo = undoing(SERVED, streamed=streamed)
        assert fed(undo, body[:at]) + undo.flush() == body[:at].replace(b'"smollm2"', b'"default"')


@pytest.mark.parametrize("served_as", [None, SERVED])
@given(places=CUTS)
def test_usage_asked_for_stays(served_as: str | None, places: list[int]) -> None:
    body = captured("vllm_chat_stream")
    expected = body if served_as is None else body.replace(b'"smollm2"', b'"default"')
    assert undone(cut(body, places), served_as, hides_usage=False) == expected


@pytest.mark.parametrize("served_as", [None, SERVED])
@pytest.mark.parametrize("hides_usage", [False, True])
def test_a_stream_leaves_in_whole_events(served_as: str | None, hides_usage: bool) -> None:
    """Wherever it breaks off, an error event can follow."""
    body = captured("vllm_chat_stream")
    for at in range(len(body)):
        out = fed(undoing(served_as, hides_usage=hides_usage), body[:at])
        whole = b"".join(body[:at].rpartition(b"\n\n")[:2])
        assert out == undone([whole], served_as, hides_usage=hides_usage)


def test_a_plain_answer_leaves_as_it_comes() -> None:
    undo = undoing(streamed=False)
    for piece in (b'{"choices":[],"usage":{"prompt_tokens":1}}\n\n', b'{"id":', b""):
        assert fed(undo, piece) == piece
    assert undo.flush() == b""


def test_the_name_comes_back_in_a_plain_answer() -> None:
    body = captured("vllm_chat_n2")
    for at in range(len(body)):
        undo = undoing(SERVED, streamed=False)
        out = b"".join([fed(undo, piece) for piece in cut(body, [at])]) + undo.flush()
        assert out == body.replace(b'"smollm2"', b'"default"')


def test_with_a_name_to_put_back_nothing_passes_unread() -> None:
    assert not passes(undoing(SERVED, hides_usage=False), sse(b'{"model":"smollm2"}'))


@pytest.mark.parametrize(
    ("block", "left"),
    [
        (b"data: {}\n\n", b"data: {}\n\n"),
        (b'data:{"a":1}\n\n', b'data:{"a":1}\n\n'),
        (b"data: [DONE]\n\n", b"data: [DONE]\n\n"),
        (b"event: error\ndata: {}\n\n", b"event: error\ndata: {}\n\n"),
        (b"id: 7\ndata: {}\n\n", b"data: {}\n\n"),
        (b"data: {}\r\nid: 7\r\n\r\n", b"data: {}\r\n\r\n"),
        (b"retry: 3000\ndata: {\ndata: }\n\n", b"data: {\ndata: }\n\n"),
        (b": ping\n\n", b": ping\n\n"),
        (b": ping\nid: 7\n\n", b": ping\n\n"),
        (b": ping\r\n\r\n", b": ping\r\n\r\n"),
        (b": ping\ndata: {}\n\n", b": ping\ndata: {}\n\n"),
        (b"retry: 3000\n\n", b""),
        (b"id: 7\n\n", b""),
        (b"id\n\n", b""),
        (b"data:\n\n", b""),
        (b"data: \n\n", b""),
        (b"data\n\n", b""),
        (b"event: ping\ndata:\n\n", b""),
    ],
)
def test_what_the_official_client_falls_over_is_left_out(block: bytes, left: bytes) -> None:
    event = b'data: {"choices":[]}\n\n'
    for at in range(len(block)):
        undo = undoing(strict=True)
        pieces = [piece for piece in (event, block[:at], block[at:], event) if piece]
        assert b"".join([fed(undo, piece) for piece in pieces]) + undo.flush() == event + left + event


def test_other_apis_keep_what_their_events_carry() -> None:
    undo = undoing(hides_usage=False)
    body = b"id: 7\nevent: ping\ndata: {}\n\n: hello\n\n"
    assert undo.feed(body) + undo.flush() == body
