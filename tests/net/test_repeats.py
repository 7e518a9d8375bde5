"""Heads that come again are understood exactly as the parser understands them, and as strictly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import httptools
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maitred.core.outcome import Outcome
from maitred.net.exchange import RequestHead
from maitred.net.repeats import KNOWN_MAX, NEVER_AGAIN, Known, Repeats
from maitred.net.server import PIPELINED_MAX, ServerConnection
from maitred.net.virtual import run
from tests.net.http import chunked, get, post, turns
from tests.net.site import ECHO, LATER, STREAM, door

Told = tuple[list[tuple[str, str, bytes]], list[Outcome], bytes, int]


def told(reads: Sequence[bytes], *others: Sequence[bytes], **limits: Any) -> Told:
    """What a server makes of these reads of one connection, and of `others` that come after it.

    That is what it served, refused and said, and how many it closed.
    """

    async def main() -> Told:
        async with door(**limits) as at:
            site, unread = at.site, b""
            for each in (reads, *others):
                client = await at.client()
                await turns()
                for read in each:
                    if client.over:
                        break
                    client.send(read)
                    await turns()
                unread += client.unread
            return site.served, site.refused, unread, 1 + len(others) - len(site.connections)

    return run(main())


def parsed(reads: Sequence[bytes], *others: Sequence[bytes], **limits: Any) -> Told:
    """The same of a server that parses everything."""
    with patch.object(Repeats, "body", lambda _self, _data: None):
        return told(reads, *others, **limits)


def heads_parsed(reads: Sequence[bytes]) -> int:
    """How many of these requests the parser saw."""
    count = 0
    on_head = ServerConnection.on_headers_complete

    def counted(connection: ServerConnection) -> None:
        nonlocal count
        count += 1
        on_head(connection)

    with patch.object(ServerConnection, "on_headers_complete", counted):
        served, *_ = told(reads)
    assert len(served) == len(reads)
    return count


def test_a_head_that_comes_again_is_not_parsed_again() -> None:
    reads = [post(ECHO, b"x" * size, "accept: */*") for size in (10, 10, 7, 1000, 99_999, 3)]
    assert told(reads) == parsed(reads)
    assert heads_parsed(reads) == 1


def test_another_head_is_parsed_and_both_are_known_from_then_on() -> None:
    one, other = post(ECHO, b"one", "x-a: 1"), post(ECHO, b"other", "x-a: 2")
    reads = [one, one, other, other, other, one, post(ECHO, b"longer" * 9, "x-a: 2")]
    assert told(reads) == parsed(reads)
    assert heads_parsed(reads) == 2


def test_what_one_connection_learned_is_known_to_all_of_its_site() -> None:
    async def main() -> list[int]:
        async with door() as at:
            with patch.object(
                httptools, "HttpRequestParser", side_effect=httptools.HttpRequestParser
            ) as made:
                counts = []
                for read in (
                    KNOWN,
                    KNOWN,
                    post(ECHO, b"x" * 1000),
                    post("/nothing", b"x"),
                    post("/nothing", b"x"),
                ):
                    client = await at.client()
                    client.send(read)
                    assert (await client.answer()).status == (404 if b"/nothing" in read else 200)
                    counts.append(made.call_count)
            assert len(at.site.heads) == 1
            return counts

    assert run(main()) == [1, 1, 1, 2, 3]


def test_only_so_many_heads_are_known() -> None:
    known: Known[RequestHead] = {}
    for n in range(KNOWN_MAX + 1):
        head = RequestHead("POST", ECHO, {}, http11=True, length=1)
        Repeats(known).learn(post(ECHO, b"x", f"x-a: {n}"), head, 1)
        assert len(known) == n % KNOWN_MAX + 1
    assert Repeats(known).body(post(ECHO, b"xyz", f"x-a: {KNOWN_MAX}")) == b"xyz"
    assert Repeats(known).body(post(ECHO, b"xyz", "x-a: 0")) is None


def test_a_client_whose_heads_never_repeat_is_not_compared_for_ever() -> None:
    fickle = [post(ECHO, b"x", f"traceparent: {n}") for n in range(NEVER_AGAIN)]
    same = post(ECHO, b"x", "traceparent: same")
    assert heads_parsed([*fickle[1:], same, same]) == NEVER_AGAIN
    assert heads_parsed([*fickle, same, same, same]) == NEVER_AGAIN + 3


KNOWN = post(ECHO, b"known")


@pytest.mark.parametrize(
    "then",
    [
        [KNOWN[:-1]],
        [KNOWN[:-1], KNOWN[-1:]],
        [KNOWN + KNOWN],
        [KNOWN + b"\r\n"],
        [b"\r\n" + KNOWN],
        [KNOWN[:20], KNOWN[20:]],
        [KNOWN[:34], KNOWN[34:], KNOWN[34:]],
        [KNOWN.replace(b": 5\r\n", b": 05\r\n")],
        [KNOWN.replace(b": 5\r\n", b": 5 \r\n")],
        [KNOWN.replace(b": 5\r\n", b": +5\r\n")],
        [KNOWN.replace(b": 5\r\n", b": \r\n")],
        [KNOWN.replace(b": 5\r\n", b": 5, 5\r\n")],
        [KNOWN.replace(b": 5\r\n", b": 5\n")],
        [KNOWN.replace(b": 5\r\n", b": 5\r\ncontent-length: 5\r\n")],
        [KNOWN.replace(b": 5\r\n", b": 5\r\ntransfer-encoding: chunked\r\n")],
        [KNOWN.replace(b": 5\r\n", b": 4\r\n")],
        [KNOWN.replace(b": 5\r\n", b": 6\r\n")],
        [KNOWN.replace(b": 5\r\n", b": 900000005\r\n")],
        [post(ECHO, b"x" * 101)],
        [post("/nothing", b"known")],
        [get(ECHO)],
        [chunked(ECHO, b"known")],
    ],
)
def test_after_a_known_head_everything_is_as_if_it_were_not_known(then: list[bytes]) -> None:
    reads = [KNOWN, *then, KNOWN, KNOWN]
    assert told(reads, body_bytes_max=100) == parsed(reads, body_bytes_max=100)


INNER = b"\r\nContent-Length: 3\r\n\r\n"
LINES = st.lists(
    st.sampled_from(
        ["accept: */*", "x-cl: content-length: 7", "X-Empty:", "connection: keep-alive", "connection: close",
         "expect: 100-continue", "upgrade: h2c", "transfer-encoding: chunked", "content-length: 4", "host: b"]
    ),
    max_size=3,
)  # fmt: skip
BODIES = st.sampled_from([b"", b"a", b"abc", b"{}" * 40, INNER, INNER * 2, b"abc" + INNER + b"abc"])


@st.composite
def some_reads(draw: st.DrawFn) -> list[bytes]:
    """Reads of a connection: requests alike and unlike, whole, cut, joined, and damaged."""
    kinds = draw(st.lists(LINES, min_size=1, max_size=2))
    reads: list[bytes] = []
    for _ in range(draw(st.integers(2, 6))):
        raw = post(ECHO, draw(BODIES), *draw(st.sampled_from(kinds)))
        match draw(st.integers(0, 9)):
            case 0:
                at = draw(st.integers(0, len(raw)))
                reads += [raw[:at], raw[at:]]
                continue
            case 1 if reads:
                reads[-1] += raw
                continue
            case 2:
                raw = raw.replace(b"\r\n", b"\n", draw(st.integers(1, 4)))
            case 3:
                at = draw(st.integers(0, len(raw) - 1))
                raw = raw[:at] + draw(st.binary(max_size=2)) + raw[at + 1 :]
            case _:
                pass
        reads.append(raw)
    return [read for read in reads if read]


@given(reads=some_reads(), at=st.integers(0, 6))
@settings(max_examples=300)
def test_whatever_comes_is_understood_as_the_parser_does(reads: list[bytes], at: int) -> None:
    lines = reads[:at], reads[at:], reads
    assert told(*lines) == parsed(*lines)


def test_what_the_parser_saw_end_elsewhere_is_not_learned() -> None:
    known: Known[RequestHead] = {}
    repeats, inner = Repeats(known), b"\r\ncontent-length: 1\r\n\r\n"
    early = b"POST /echo HTTP/1.1\nhost: a\ncontent-length: 24\n\n" + inner + b"."
    head = RequestHead("POST", ECHO, {b"host": b"a"}, http11=True, length=len(inner) + 1, keep_alive=True)
    repeats.learn(early, head, len(inner) + 1)
    assert repeats.body(early) is None
    assert not known


def test_a_known_head_is_checked_again() -> None:
    async def main() -> None:
        async with door() as at:
            client = await at.client()
            for path in (ECHO, STREAM):
                client.send(post(ECHO, b"x"))
                await turns()
                with patch("tests.net.site.ECHO", path):  # what was allowed then is not there any more
                    client.send(post(ECHO, b"x"))
                    await turns()
            assert at.site.refused == [Outcome.PATH_NOT_FOUND]

    run(main())


def test_known_heads_wait_in_line_as_others_do() -> None:
    async def main() -> None:
        async with door() as at:
            client = await at.client()
            client.send(post(ECHO, b"x"), post(LATER, b"x"))
            for n in range(PIPELINED_MAX + 2):
                client.send(post(ECHO, b"%d" % n))
                await turns()
            at.site.held[0].respond(200, b"", b"done")
            await client.closed()
            assert [body for _, path, body in at.site.served if path == ECHO][:3] == [b"x", b"0", b"1"]
            assert at.site.refused == [Outcome.BAD_REQUEST]

    run(main())


def test_nothing_comes_after_a_known_head_that_ends_the_connection() -> None:
    last = post(LATER, b"x", "connection: close")
    assert told([last, last]) == parsed([last, last])
