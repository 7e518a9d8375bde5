"""The journal on disk: whole lines up to its size, and never the gateway's trouble."""

from __future__ import annotations

import logging
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


def test_a_full_disk_ends_the_journal_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    journal = JournalFile(Path("/dev/full"), 1000)
    journal.write(b"a\n")
    with caplog.at_level(logging.WARNING):
        journal.flush()
        journal.write(b"b\n")
        journal.close()
    assert len(caplog.messages) == 1


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"journal\.file: .*missing/j cannot be written"):
        JournalFile(tmp_path / "missing" / "j", 1000)
