"""Heads of answers that come again are understood exactly as the parser understands them, and as strictly."""

from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import patch

import httptools
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maitred.core.outcome import FailureKind
from maitred.net.client import ClientConnection
from maitred.net.repeats import HEAD_BYTES_MAX as KNOWN_BYTES_MAX
from maitred.net.repeats import KNOWN_MAX, NEVER_AGAIN, Repeats
from maitred.net.virtual import run
from tests.net.engine import line
from tests.net.http import turns

Told = tuple[int, list[tuple[bytes, bytes]], int | None, bytes, bool, FailureKind | None]
HEAD = b"HTTP/1.1 %d X\r\ndate: %b\r\ncontent-type: application/json\r\nContent-Length: %d\r\n\r\n"


STREAM = b"HTTP/1.1 200 X\r\ndate: %b\r\nTransfer-Encoding: %b\r\n\r\n"
LAST = b"0\r\n\r\n"


def answer(body: bytes, status: int = 200, date: bytes = b"now") -> bytes:
    return HEAD % (status, date, len(body)) + body


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)


def stream(body: bytes, date: bytes = b"now", coding: bytes = b"chunked") -> bytes:
    return STREAM % (date, coding) + (chunk(body) if body else b"") + LAST


def told(answers: Sequence[Sequence[bytes]], *, apart: bool = False) -> list[Told]:
    """What a reader is told of these answers, each in its reads.

    By one connection as long as it lasts; `apart`: by one each.
    """

    async def main() -> list[Told]:
        said: list[Told] = []
        async with line() as at:
            for reads in answers:
                connection = None if apart else at.pool.take(at.url)
                if connection is None:
                    connection, _engine = await at.connect()
                reading, engine = await at.ask(connection)
                for read in reads:
                    engine.send(read)
                    await turns()
                head = reading.heads[0] if reading.heads else None
                failed = reading.failure[0] if reading.failure else None
                lines = [line for line in head.headers if line[0] != b"content-length"] if head else []
                facts = (head.status, lines, head.length) if head else (0, lines, None)
                said.append((*facts, reading.body, reading.complete, failed))
                if not reading.over.is_set():
                    connection.abort()
                    await turns()
        return said

    return run(main())


def parsed(answers: Sequence[Sequence[bytes]], *, apart: bool = False) -> list[Told]:
    """The same where everything is parsed."""
    with (
        patch.object(Repeats, "body", lambda _self, _data: None),
        patch.object(ClientConnection, "_learn_stream", lambda _self, _raw: None),
    ):
        return told(answers, apart=apart)


def heads_parsed(answers: Sequence[Sequence[bytes]]) -> int:
    """How many of these heads the parser saw."""
    count = 0
    on_head = ClientConnection.on_headers_complete

    def counted(connection: ClientConnection) -> None:
        nonlocal count
        count += 1
        on_head(connection)

    with patch.object(ClientConnection, "on_headers_complete", counted):
        assert len(told(answers)) == len(answers)
    return count


def test_a_head_that_comes_again_is_not_parsed_again() -> None:
    answers = [[answer(b"x" * size)] for size in (10, 10, 7, 1000, 99_999, 3)]
    assert [(length, len(body)) for _, _, length, body, _, _ in told(answers)] == [
        (size, size) for size in (10, 10, 7, 1000, 99_999, 3)
    ]
    assert heads_parsed(answers) == 1


def test_another_head_is_parsed_and_both_are_known_from_then_on() -> None:
    one, other = [answer(b"one")], [answer(b"other", date=b"a second later")]
    assert heads_parsed([one, one, other, other, other, one]) == 2


def test_what_one_connection_learned_is_known_to_all_of_its_pool() -> None:
    async def main() -> None:
        async with line() as at:
            with patch.object(
                httptools, "HttpResponseParser", side_effect=httptools.HttpResponseParser
            ) as made:
                for body in (b"one", b"another"):
                    reading, engine = await at.ask()
                    engine.send(answer(body))
                    await turns()
                    assert (reading.heads[0].length, reading.body) == (len(body), body)
            assert made.call_count == 1

    run(main())


def test_answers_that_come_at_once_have_each_its_own_length() -> None:
    async def main() -> None:
        async with line() as at:
            readings = []
            for body in (b"learned", b"one", b"another"):
                reading, engine = await at.ask()
                engine.send(answer(body))
                await turns()
                readings.append(reading)
            assert [reading.heads[0].length for reading in readings] == [7, 3, 7]
            assert readings[1].heads[0].headers is readings[2].heads[0].headers

    run(main())


def test_a_connection_that_its_answer_ends_carries_no_other_whatever_is_known() -> None:
    last = answer(b"last").replace(b"date: now", b"connection: close")

    async def main() -> None:
        async with line() as at:
            for _ in range(3):
                reading, engine = await at.ask()
                engine.send(last)
                await turns()
                assert (reading.body, at.pool.idle) == (b"last", 0)

    run(main())


@pytest.mark.parametrize(
    "one",
    [
        [b"HTTP/1.1 503 X\r\nx-said: ", answer(b"sorry")],
        [b"HTTP/1.1 103 X\r\n\r\n", answer(b"sorry")],
        [b"HTTP/1.1 204 X\r\ncontent-length: 3\r\n\r\n\r\n\r"],
    ],
)
@pytest.mark.parametrize("other", [answer(b"served"), b"HTTP/1.1 204 X\r\ncontent-length: 3\r\n\r\nabc"])
def test_no_answer_makes_another_be_taken_for_what_it_is_not(one: list[bytes], other: bytes) -> None:
    assert told([one, [other]], apart=True) == parsed([one, [other]], apart=True)


KNOWN = answer(b"known")


@pytest.mark.parametrize(
    "then",
    [
        [KNOWN[:-1], KNOWN[-1:]],
        [KNOWN[:30], KNOWN[30:]],
        [KNOWN[:-1]],
        [KNOWN + b"x"],
        [KNOWN + KNOWN],
        [b"HTTP/1.1 100 Continue\r\n\r\n" + KNOWN],
        [answer(b"broken", status=500)],
        [answer(b"")],
        [KNOWN.replace(b": 5\r\n", b": 05\r\n")],
        [KNOWN.replace(b": 5\r\n", b": +5\r\n")],
        [KNOWN.replace(b": 5\r\n", b": 4\r\n")],
        [KNOWN.replace(b": 5\r\n", b": 6\r\n")],
        [KNOWN.replace(b": 5\r\n", b": \r\n")],
        [KNOWN.replace(b"Content-Length: 5", b"transfer-encoding: chunked")],
        [KNOWN.replace(b"date: now", b"connection: close")],
    ],
)  # fmt: skip
def test_after_a_known_head_everything_is_as_if_it_were_not_known(then: list[bytes]) -> None:
    answers = [[KNOWN], [KNOWN], then, [KNOWN], [KNOWN]]
    assert told(answers) == parsed(answers)


KNOWN_STREAM = stream(b"known")
HEAD_OF_STREAM = KNOWN_STREAM[: KNOWN_STREAM.index(b"\r\n\r\n") + 4]


def headers_parsed(answers: Sequence[Sequence[bytes]]) -> int:
    """How many lines of heads the parser told."""
    count = 0
    on_header = ClientConnection.on_header

    def counted(connection: ClientConnection, name: bytes, value: bytes) -> None:
        nonlocal count
        count += not connection._head_over
        on_header(connection, name, value)

    with patch.object(ClientConnection, "on_header", counted):
        assert len(told(answers)) == len(answers)
    return count


def test_the_head_of_a_stream_that_comes_again_is_not_parsed_again() -> None:
    pieces = [HEAD_OF_STREAM, chunk(b"a"), chunk(b"b") + chunk(b"c"), LAST]
    answers = [[KNOWN_STREAM], pieces, [KNOWN_STREAM], [HEAD_OF_STREAM, LAST]]
    assert [body for _, _, _, body, _, _ in told(answers)] == [b"known", b"abc", b"known", b""]
    assert headers_parsed(answers) == 2


def test_who_brings_streams_and_whole_answers_in_turn_is_known_for_both() -> None:
    answers = [[KNOWN], [KNOWN_STREAM]] * (NEVER_AGAIN + 2) + [[KNOWN], [KNOWN]]
    assert told(answers) == parsed(answers)
    assert headers_parsed(answers) == HEAD.count(b":") + STREAM.count(b":")


def test_the_head_of_a_stream_is_known_to_all_of_a_pool_and_as_one() -> None:
    async def main() -> None:
        async with line() as at:
            heads = []
            for body in (b"one", b"another"):
                reading, engine = await at.ask()
                engine.send(stream(body))
                await turns()
                assert reading.body == body
                heads += reading.heads
            assert heads[0].headers is heads[1].headers
            assert list(at.pool.streams) == [HEAD_OF_STREAM]

    run(main())


def test_only_so_many_heads_of_streams_are_known() -> None:
    async def main() -> None:
        async with line() as at:
            connection, _ = await at.connect()
            for number in range(KNOWN_MAX + 10):
                reading, engine = await at.ask(connection)
                engine.send(stream(b"x", date=b"%d" % number))
                await turns()
                assert reading.complete
            assert len(at.pool.streams) == 10

    run(main())


@pytest.mark.parametrize(
    "head",
    [
        HEAD_OF_STREAM.replace(b" 200 ", b" 404 "),
        HEAD_OF_STREAM.replace(b"date: now", b"connection: close"),
        HEAD_OF_STREAM.replace(b"chunked", b"gzip, chunked"),
        HEAD_OF_STREAM.replace(b"date: now", b"transfer-encoding: gzip"),
        HEAD_OF_STREAM.replace(b"1.1", b"1.0"),
        b"\r\n\r\n" + HEAD_OF_STREAM,
        b"HTTP/1.1 103 X\r\n\r\n" + HEAD_OF_STREAM,
        HEAD_OF_STREAM.replace(b"now", b"n" * KNOWN_BYTES_MAX),
    ],
)
def test_what_is_not_simply_in_chunks_is_parsed_each_time(head: bytes) -> None:
    answers = [[head + chunk(b"a") + LAST]] * 3
    assert told(answers, apart=True) == parsed(answers, apart=True)
    assert headers_parsed(answers) == len(answers) * (head.count(b":"))


@pytest.mark.parametrize(
    "then",
    [
        [HEAD_OF_STREAM],
        [HEAD_OF_STREAM[:-1], HEAD_OF_STREAM[-1:] + LAST],
        [HEAD_OF_STREAM + b"5\r\nkno", b"wn\r\n0\r\n", b"\r\n"],
        [HEAD_OF_STREAM + b"1;a=b\r\nx\r\n0\r\nx-trailer: y\r\nconnection: close\r\n\r\n"],
        [HEAD_OF_STREAM + b"1\r\nxy\r\n"],
        [HEAD_OF_STREAM + b"1\nx\n"],
        [HEAD_OF_STREAM + b"-1\r\nx\r\n"],
        [KNOWN_STREAM + b"x"],
        [KNOWN_STREAM + KNOWN_STREAM],
        [HEAD_OF_STREAM + chunk(b"a"), b"no chunk"],
        [b"HTTP/1.1 100 Continue\r\n\r\n" + KNOWN_STREAM],
        [b"HTTP/1.1 503 X\r\nx-said: " + KNOWN_STREAM],
        [b"HTTP/1.1 503 X\r\nx-said: ", KNOWN_STREAM],
        [answer(b"plain")],
        [answer(b"broken", status=500)],
        [HEAD_OF_STREAM.replace(b"Transfer-Encoding: chunked", b"content-length: 5") + b"plain"],
    ],
)
def test_after_a_known_head_of_a_stream_everything_is_as_if_it_were_not_known(then: list[bytes]) -> None:
    answers = [[KNOWN_STREAM], [KNOWN_STREAM], then, [KNOWN_STREAM], [answer(b"plain")], [KNOWN_STREAM]]
    assert told(answers) == parsed(answers)
    assert told(answers, apart=True) == parsed(answers, apart=True)


@st.composite
def some_answers(draw: st.DrawFn) -> list[list[bytes]]:
    """Answers alike and unlike, whole, cut and damaged."""
    answers = []
    for _ in range(draw(st.integers(2, 6))):
        body = draw(st.sampled_from([b"", b"a", b"abc", b"{}" * 40, b"\r\ncontent-length: 1\r\n\r\n."]))
        date = draw(st.sampled_from([b"now", b"then"]))
        if draw(st.booleans()):
            raw = stream(body, date, draw(st.sampled_from([b"chunked", b"chunked", b"identity"])))
        else:
            raw = answer(body, draw(st.sampled_from([200, 200, 200, 404])), date)
        match draw(st.integers(0, 7)):
            case 7:
                answers.append([b"HTTP/1.1 503 X\r\nx-said: ", raw])
                continue
            case 0:
                at = draw(st.integers(1, len(raw) - 1))
                answers.append([raw[:at], raw[at:]])
                continue
            case 1:
                at = draw(st.integers(0, len(raw) - 1))
                raw = raw[:at] + draw(st.binary(max_size=2)) + raw[at + 1 :]
            case _:
                pass
        answers.append([raw])
    return answers


@given(answers=some_answers(), apart=st.booleans())
@settings(max_examples=300)
def test_whatever_comes_is_understood_as_the_parser_does(answers: list[list[bytes]], apart: bool) -> None:
    assert told(answers, apart=apart) == parsed(answers, apart=apart)
