"""The journal on disk: buffered lines, written each beat, up to a size."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

log = logging.getLogger("maitred.journal")


class JournalFile:
    """A file of journal lines. A journal with a gap would not replay, so past its size it just ends.

    What an earlier run recorded there is kept as `FILE.1`: a restart must not destroy what led to it.
    """

    def __init__(self, path: Path, bytes_max: int) -> None:
        """Raises OSError when the file cannot be written."""
        try:
            if path.is_file() and path.stat().st_size:
                path.replace(f"{path}.1")
            self._file = path.open("wb", buffering=0)
        except OSError as error:
            raise OSError(
                f"journal.file: {path} cannot be written: {error.strerror}; see --journal"
            ) from error
        self._lines: list[bytes] = []
        self._left = bytes_max

    def write(self, line: bytes) -> None:
        """Keep one line for the next flush."""
        if self._left < 0:
            return
        self._left -= len(line)
        if self._left >= 0:
            self._lines.append(line)
        else:
            log.warning("the journal has reached its size and ends here; journal.bytes_max allows more")

    def flush(self) -> None:
        """Write what was kept. A full disk ends the journal, not the gateway."""
        rest = b"".join(self._lines)
        self._lines.clear()
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            self._left = -1
            log.warning("the journal ends here: %s", error)

    def close(self) -> None:
        """Write the rest and close, as far as that can be done."""
        self.flush()
        with suppress(OSError):  # a full disk may show only now
            self._file.close()
