"""Lines on their way out: whole and in order for who reads, and no waiting for who does not."""

from __future__ import annotations

import gc
import os
import select
import tty
from collections.abc import Callable, Iterator
from pathlib import Path
from select import PIPE_BUF
from threading import Thread

import pytest

from maitred.observe.sink import LINES_MAX, Sink

MANY = [f"line {number} {'x' * 90}\n".encode() for number in range(3000)]
"""More than any pipe or terminal holds for a reader who stands still."""

Ends = tuple[int, int]


@pytest.fixture(params=[os.pipe, os.openpty], ids=["pipe", "terminal"])
def ends(request: pytest.FixtureRequest) -> Iterator[Ends]:
    """Where to read and where to write."""
    make: Callable[[], Ends] = request.param
    reader, writer = make()
    if os.isatty(writer):
        tty.setraw(writer)
    yield reader, writer
    os.close(reader)
    os.close(writer)


def returns(work: Callable[[], object]) -> bool:
    """Whether this comes to an end, though nobody reads."""
    thread = Thread(target=work, daemon=True)
    thread.start()
    thread.join(60)
    return not thread.is_alive()


def read_on(reader: int, go_on: Callable[[], object], size: int) -> bytes:
    """Take so many bytes, never all there are, as long as more come by what `go_on` does."""
    taken = b""
    while len(taken) < size:
        assert returns(go_on)
        assert select.select([reader], [], [], 60)[0], f"{len(taken)} bytes and no more"
        taken += os.read(reader, 10_000)
    return taken


def test_who_stands_still_is_not_waited_for_and_loses_nothing(ends: Ends) -> None:
    reader, writer = ends
    sink = Sink(writer)
    for line in MANY:
        sink.put(line)
    assert returns(sink.flush)
    assert returns(lambda: sink.finish(0.01))
    assert read_on(reader, sink.flush, len(b"".join(MANY))) == b"".join(MANY)
    assert sink.dropped == 0
    assert os.get_blocking(writer)  # whoever shares it notices nothing


def test_a_line_longer_than_a_pipe_takes_at_once(ends: Ends) -> None:
    reader, writer = ends
    sink, traceback = Sink(writer), "".join(f"  line {number} of it\n" for number in range(20_000))
    sink.write(traceback)
    sink.write("after it\n")
    assert returns(sink.flush)
    expected = (traceback + "after it\n").encode()
    assert read_on(reader, sink.flush, len(expected)) == expected


def test_the_end_waits_for_a_reader_that_is_slow(ends: Ends) -> None:
    reader, writer = ends
    sink, size, taken = Sink(writer), len(b"".join(MANY)), []
    for line in MANY:
        sink.put(line)
    slow = Thread(target=lambda: taken.append(read_on(reader, lambda: None, size)))
    slow.start()
    sink.finish(60)
    slow.join()
    assert taken == [b"".join(MANY)]


def test_past_its_bound_lines_are_lost_and_counted(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        sink = Sink(file.fileno())
        for _ in range(LINES_MAX + 3):
            sink.put(b"kept\n")
        assert sink.dropped == 3
        sink.flush()
        sink.put(b"room again\n")
        sink.flush()
    assert (tmp_path / "log").read_bytes() == b"kept\n" * LINES_MAX + b"room again\n"


def test_past_its_bound_the_last_of_many_lines_are_lost(tmp_path: Path) -> None:
    lines = [b"line %d\n" % number for number in range(LINES_MAX + 300)]
    with (tmp_path / "log").open("wb") as file:
        sink = Sink(file.fileno())
        for start in range(0, len(lines), 1000):
            many = lines[start : start + 1000]
            sink.put_all(b"".join(many), len(many))
        assert sink.dropped == 300
        sink.flush()
        sink.put_all(b"room\nagain\n", 2)
        sink.flush()
    assert (tmp_path / "log").read_bytes() == b"".join(lines[:LINES_MAX]) + b"room\nagain\n"
    assert sink.dropped == 300


def test_what_is_lost_takes_no_place(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        sink = Sink(file.fileno())
        sink.put_all(b"kept\n" * LINES_MAX, LINES_MAX)
        pieces = len(sink._pieces)
        for _ in range(100):
            sink.put_all(b"lost\n" * 3, 3)
        assert len(sink._pieces) == pieces
        assert sink.dropped == 300


class Loud:
    """A cycle whose end is told, as asyncio tells of a task that nobody waited for."""

    def __init__(self, sink: Sink) -> None:
        self._me, self._sink = self, sink

    def __del__(self) -> None:
        self._sink.put(b"gone\n")
        self._sink.flush()


def test_what_the_collector_has_to_say_is_kept_while_a_line_is(tmp_path: Path) -> None:
    """It may run at any allocation, so at all of them in turn."""

    def put_and_collect() -> None:
        thresholds = gc.get_threshold()
        try:
            for threshold in range(1, 40):
                gc.collect()
                gc.set_threshold(threshold)
                for _ in range(50):
                    Loud(sink)
                    sink.put(b"line\n")
                    sink.put_all(b"line\n" * 2, 2)
                    sink.flush()
        finally:
            gc.set_threshold(*thresholds)

    with (tmp_path / "log").open("wb") as file:
        sink = Sink(file.fileno())
        assert returns(put_and_collect)
        gc.collect()
        sink.finish(60)
    lines = (tmp_path / "log").read_bytes().splitlines()
    assert (lines.count(b"line"), lines.count(b"gone")) == (39 * 50 * 3, 39 * 50)
    assert sink.dropped == 0


def test_a_pipe_is_given_whole_lines_however_they_came(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    written, write = list[bytes](), os.write

    def heard(fd: int, data: bytes) -> int:
        written.append(data)
        return write(fd, data)

    monkeypatch.setattr(os, "write", heard)
    sink, longer = Sink(writer), b"y" * (PIPE_BUF + 100) + b"\n"
    sink.put(b"alone\n")
    sink.put_all(b"".join(MANY[:100]) + longer + MANY[100], 102)
    sink.put(b"after\n")
    sink.flush()
    assert b"".join(written) == b"alone\n" + b"".join(MANY[:100]) + longer + MANY[100] + b"after\n"
    assert max(map(len, written)) <= PIPE_BUF
    assert [data[-1:] for data in written].count(
        b"y"
    ) == 1  # within the line that is longer, and nowhere else
    assert len(written) < 6
    sink.put_all(b"room\n" * LINES_MAX, LINES_MAX)
    assert sink.dropped == 0  # all that left is forgotten
    os.close(reader)
    os.close(writer)


def test_lines_written_in_part_are_no_more_and_no_fewer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[: max(1, len(data) // 2)]))
    with (tmp_path / "log").open("wb") as file:
        sink = Sink(file.fileno())
        for _ in range(3):
            sink.put_all(b"".join(MANY), len(MANY))
            sink.finish(60)
        sink.put_all(b"room\n" * LINES_MAX, LINES_MAX)
        assert sink.dropped == 0
    assert (tmp_path / "log").read_bytes() == b"".join(MANY) * 3


@pytest.mark.parametrize("end", [Sink.flush, lambda sink: sink.finish(60)], ids=["flush", "finish"])
def test_what_nobody_can_read_any_more_is_lost_and_counted(end: Callable[[Sink], None]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    sink = Sink(writer)
    sink.put(b"lost\n")
    sink.put(b"as well\n")
    end(sink)
    assert sink.dropped == 2
    os.close(writer)


def test_text_that_is_no_unicode_is_written_all_the_same(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        sink = Sink(file.fileno())
        sink.write("half \ud800 a pair\n")
        sink.flush()
    assert (tmp_path / "log").read_bytes() == rb"half \ud800 a pair" + b"\n"
