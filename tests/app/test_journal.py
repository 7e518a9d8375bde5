"""The journal on disk: whole lines up to its size, and never the gateway's trouble."""

from __future__ import annotations

import logging
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from maitred.app.journal import JournalFile


def test_lines_are_written_by_flush_and_close(tmp_path: Path) -> None:
    path = tmp_path / "j"
    journal = JournalFile(path, 1000)
    journal.write(b"a\n")
    journal.write(b"b\n")
    assert path.read_bytes() == b""
    journal.flush()
    assert path.read_bytes() == b"a\nb\n"
    journal.write(b"c\n")
    journal.close()
    assert path.read_bytes() == b"a\nb\nc\n"


def test_it_ends_with_a_whole_line_at_its_size_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "j"
    journal = JournalFile(path, 7)
    with caplog.at_level(logging.WARNING):
        for line in (b"abc\n", b"de\n", b"f\n", b"\n"):
            journal.write(line)
    journal.close()
    assert path.read_bytes() == b"abc\nde\n"
    assert len(caplog.messages) == 1


def test_what_an_earlier_run_recorded_is_kept(tmp_path: Path) -> None:
    path, older = tmp_path / "j", tmp_path / "j.1"
    for number in range(3):
        journal = JournalFile(path, 1000)
        assert path.read_bytes() == b""
        journal.write(b"%d\n" % number)
        journal.close()
    assert (older.read_bytes(), path.read_bytes()) == (b"1\n", b"2\n")
    for _ in range(2):  # starts that came to nothing
        JournalFile(path, 1000).close()
    assert older.read_bytes() == b"2\n"
    assert sorted(tmp_path.iterdir()) == [path, older]


def test_a_full_disk_ends_the_journal_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    journal = JournalFile(Path("/dev/full"), 1000)
    journal.write(b"a\n")
    with caplog.at_level(logging.WARNING):
        journal.flush()
        journal.write(b"b\n")
        journal.close()
    assert len(caplog.messages) == 1


@contextmanager
def almost_full(room_bytes: int) -> Iterator[None]:
    """Room for so many bytes in any file, and no more; for a moment, since it holds for the whole process."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


def test_a_disk_with_room_for_half_a_line_ends_it_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "j"
    journal = JournalFile(path, 1000)
    journal.write(b"a line too long\n")
    with caplog.at_level(logging.WARNING), almost_full(10):
        journal.flush()
    assert path.stat().st_size == 10
    assert len(caplog.messages) == 1
    journal.close()


def test_closing_never_fails(tmp_path: Path) -> None:
    path = tmp_path / "j"
    journal = JournalFile(path, 1000)
    [fd] = [int(link.name) for link in Path("/proc/self/fd").iterdir() if link.resolve() == path]
    os.close(fd)
    journal.write(b"a\n")
    journal.close()


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"journal\.file: .*missing/j cannot be written"):
        JournalFile(tmp_path / "missing" / "j", 1000)
