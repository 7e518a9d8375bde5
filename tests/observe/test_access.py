"""One line a request, harmless and bounded, for every way in which a request can be over."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from maitred.core.events import Answered, AtDoor, Ended
from maitred.core.outcome import Outcome
from maitred.core.words import Api, Usage
from maitred.observe.access import NOTES_MAX, AccessLog, NoFacts, NoHead, Style
from maitred.observe.sink import LINES_MAX, Sink
from tests.observe.events import over, queued, seat, tell

WALL_S, NOW = 1_800_000_000.25, 101.5


class LogFile:
    """A file that a log writes to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT)

    def log(self, style: Style = "json") -> AccessLog:
        return AccessLog(Sink(self.fd), style, wall=lambda: WALL_S, clock=lambda: NOW)

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines()

    def rows(self) -> list[dict[str, Any]]:
        return [msgspec.json.decode(line) for line in self.lines()]


@pytest.fixture
def file(tmp_path: Path) -> Iterator[LogFile]:
    file = LogFile(tmp_path / "access.log")
    yield file
    os.close(file.fd)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def ended() -> Ended:
    """A stream seated after 0.1 s, answered after 0.35 s, over after 1.5 s."""
    ticket = queued()
    leg = seat(ticket, 100.1)
    leg.answered_at = 100.35
    return over(101.5, ticket, Outcome.COMPLETED, Usage(100, 60, 40))


def head(path: str, own_id: str) -> NoHead:
    return NoHead("POST", path, {b"x-request-id": own_id.encode("latin-1")})


def facts(status: int = 0) -> NoFacts:
    made = NoFacts("10.0.0.7", head("/v1/chat/completions", "client-1"))
    made.status = status
    return made


def test_a_completed_request(file: LogFile) -> None:
    log = file.log()
    log.note("r1", facts(200))
    tell(log, ended())
    log.flush()
    assert file.rows() == [
        {
            "ts": 1_800_000_000_250,
            "id": "r1",
            "outcome": "completed",
            "status": 200,
            "client": "10.0.0.7",
            "method": "POST",
            "path": "/v1/chat/completions",
            "client_request_id": "client-1",
            "tenant": "support",
            "key": "k1",
            "band": "default",
            "model": "qwen",
            "api": "chat",
            "stream": True,
            "body_bytes": 2048,
            "endpoint": "qwen/127.0.0.1:8001",
            "attempts": 1,
            "queue_s": 0.1,
            "ttft_s": 0.35,
            "duration_s": 1.5,
            "prompt_tokens": 100,
            "cached_tokens": 60,
            "output_tokens": 40,
        }
    ]


@pytest.mark.parametrize(("api", "status"), [(Api.CHAT, 429), (Api.MESSAGES, 529)])
def test_a_request_that_left_the_queue_unseated(file: LogFile, api: Api, status: int) -> None:
    log = file.log()
    tell(log, over(130.0, queued(api=api), Outcome.QUEUE_DEADLINE, None))
    log.flush()
    [row] = file.rows()
    assert (row["outcome"], row["status"], row["queue_s"], row["duration_s"]) == (
        "queue_deadline",
        status,
        30.0,
        30.0,
    )
    assert row.keys().isdisjoint({"endpoint", "attempts", "ttft_s", "output_tokens", "client"})


def test_a_refused_request(file: LogFile) -> None:
    log = file.log()
    log.note("r2", facts())
    tell(log, AtDoor(NOW, "r2", Outcome.QUEUE_FULL, Api.CHAT, "qwen", "support", "k1", "batch"))
    tell(log, AtDoor(NOW, "r3", Outcome.PATH_NOT_FOUND))
    log.flush()
    assert file.rows() == [
        {
            "ts": 1_800_000_000_250,
            "id": "r2",
            "outcome": "queue_full",
            "status": 429,
            "client": "10.0.0.7",
            "method": "POST",
            "path": "/v1/chat/completions",
            "client_request_id": "client-1",
            "tenant": "support",
            "key": "k1",
            "band": "batch",
            "model": "qwen",
            "api": "chat",
        },
        {"ts": 1_800_000_000_250, "id": "r3", "outcome": "path_not_found", "status": 404},
    ]


def test_a_line_tells_when_its_request_was_over_not_when_it_is_made(file: LogFile) -> None:
    log, ticket = file.log(), queued()
    tell(
        log,
        over(NOW - 0.0625, ticket, Outcome.CLIENT_GONE, None),
        AtDoor(NOW - 0.03125, "r2", Outcome.DRAINING),
    )
    log.flush()
    assert [row["ts"] for row in file.rows()] == [1_800_000_000_187, 1_800_000_000_218]


def test_the_status_sent_is_logged_where_it_differs_from_the_outcomes(file: LogFile) -> None:
    log, event = file.log(), ended()
    log.note("r1", facts(200))
    tell(log, over(101.5, event.ticket, Outcome.FAILED_TRUNCATED, None))
    log.flush()
    [row] = file.rows()
    assert (row["outcome"], row["status"]) == ("failed_truncated", 200)


def test_other_events_have_no_line(file: LogFile) -> None:
    log, ticket = file.log(), queued()
    tell(log, Answered(100.1, seat(ticket, 100.0)))
    log.flush()
    assert file.lines() == []


def test_lines_for_people(file: LogFile) -> None:
    log = file.log("human")
    log.note("r1", facts(200))
    tell(log, ended(), AtDoor(NOW, "r3", Outcome.PATH_NOT_FOUND))
    log.flush()
    ended_line, refused_line = file.lines()
    assert ended_line == (
        "2027-01-15T08:00:00.250Z 10.0.0.7 POST /v1/chat/completions 200 completed qwen"
        " at qwen/127.0.0.1:8001 queue=0.100s ttft=0.350s total=1.500s tokens=100(60 cached)+40 id=r1"
    )
    assert refused_line == "2027-01-15T08:00:00.250Z - - - 404 path_not_found - id=r3"


@pytest.mark.parametrize(
    ("model", "shown"),
    [
        ("a\nb", r"a\nb"),
        ("a\u2028b", r"a\u2028b"),
        ("\x1b[2J", r"\x1b[2J"),
        ("\udc80", r"\udc80"),
        ("café", "café"),
    ],
    ids=ascii,
)
def test_an_engines_name_for_a_model_stays_in_its_line(file: LogFile, model: str, shown: str) -> None:
    log, ticket = file.log("human"), queued(model)
    tell(log, over(NOW, ticket, Outcome.EVICTED, None))
    log.flush()
    [line] = file.lines()
    assert f" evicted {shown} queue=" in line


@pytest.mark.parametrize(
    "text", ["/a\nb", "/a b", '/a"b', "/a\\b", "/é", "/" + "a" * 128, "/a\x1b[31m"], ids=ascii
)
def test_harmful_text_of_a_client_is_left_out(file: LogFile, text: str) -> None:
    log = file.log()
    for event in (ended(), AtDoor(1.0, "r1", Outcome.BAD_REQUEST)):
        log.note("r1", NoFacts("10.0.0.7", head(text, text)))
        tell(log, event)
    log.flush()
    for row in file.rows():
        assert "path" not in row
        assert "client_request_id" not in row


def test_facts_are_used_once_and_bounded(file: LogFile) -> None:
    log = file.log()
    for number in range(NOTES_MAX + 1):
        log.note(f"n{number}", facts())
    log.flush()
    for name in ("n0", "n1", "n1"):  # the oldest is forgotten, the next is used up by its first line
        tell(log, AtDoor(1.0, name, Outcome.BAD_REQUEST))
    log.flush()
    assert [row.get("client") for row in file.rows()] == [None, "10.0.0.7", None]


def test_who_is_over_has_his_facts_still_though_as_many_run_as_may(file: LogFile) -> None:
    log = file.log()
    for number in range(NOTES_MAX + 2):
        log.note(f"n{number}", facts())
    log.over([AtDoor(1.0, name, Outcome.BAD_REQUEST) for name in ("n0", "n1")])
    log.flush()
    assert [row.get("client") for row in file.rows()] == ["10.0.0.7"] * 2


def test_facts_are_bounded_though_nothing_ends(file: LogFile) -> None:
    log = file.log()
    for number in range(NOTES_MAX + 10):
        log.note(f"n{number}", facts())
    log.flush()
    for number in range(12):
        tell(log, AtDoor(1.0, f"n{number}", Outcome.BAD_REQUEST))
    log.flush()
    assert [row.get("client") for row in file.rows()] == [None] * 10 + ["10.0.0.7"] * 2


def test_facts_end_with_the_line_of_an_ended_request(file: LogFile) -> None:
    log = file.log()
    log.note("r1", facts())
    tell(log, ended())
    tell(log, ended())
    log.flush()
    assert [row.get("client") for row in file.rows()] == ["10.0.0.7", None]


def test_a_full_buffer_drops_and_counts(file: LogFile) -> None:
    log = file.log()
    for number in range(LINES_MAX + 250):
        tell(log, AtDoor(1.0, f"r{number}", Outcome.BAD_REQUEST))
    assert log.dropped == 250
    log.flush()
    rows = file.rows()
    assert [row["id"] for row in rows] == [f"r{number}" for number in range(LINES_MAX)]
    tell(log, AtDoor(1.0, "again", Outcome.BAD_REQUEST))
    log.flush()
    assert file.rows()[-1]["id"] == "again"


def test_a_reader_that_stands_still_never_blocks_and_loses_nothing(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    log, written = AccessLog(Sink(writer), "json", wall=lambda: WALL_S), b""
    for number in range(3000):
        tell(log, AtDoor(1.0, f"r{number}", Outcome.BAD_REQUEST))
    log.flush()  # more than a pipe holds: returns though nobody reads
    os.set_blocking(reader, False)
    while chunk := _available(reader):
        written += chunk
        log.flush()
    ids = [msgspec.json.decode(line)["id"] for line in written.splitlines()]
    assert ids == [f"r{number}" for number in range(3000)]
    assert log.dropped == 0


def _available(reader: int) -> bytes:
    try:
        return os.read(reader, 65536)
    except BlockingIOError:
        return b""


def test_a_lost_reader_costs_lines_and_nothing_else() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    log = AccessLog(Sink(writer), "json")
    tell(log, AtDoor(1.0, "r", Outcome.BAD_REQUEST))
    log.flush()
    os.close(writer)
    assert log.dropped == 1
