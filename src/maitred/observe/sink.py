"""Where log lines leave the process: bounded, and never a reason to wait.

Standard error is often a pipe or a terminal that somebody may stop reading. A write that blocks would stop
the loop and with it every stream, so all logs share one sink and what is not taken costs lines (counted).
"""

from __future__ import annotations

import os
import select
import stat
import time
from collections import deque
from collections.abc import Sequence
from select import PIPE_BUF
from threading import Lock

LINES_MAX = 8192
FILE_BATCH_BYTES = 256 * 1024


class Sink:
    """Lines on their way to the file descriptor `fd`; any thread may use it. `dropped` counts lost lines.

    It is what `logging.StreamHandler` calls a stream, too.
    """

    def __init__(self, fd: int) -> None:
        self.dropped = 0
        self._fd = _own_terminal(fd)
        self._lines: deque[bytes] = deque()
        self._flushing = Lock()
        is_file = stat.S_ISREG(os.fstat(fd).st_mode)
        self._batch_bytes = FILE_BATCH_BYTES if is_file else PIPE_BUF
        self._writable = select.poll()
        self._writable.register(self._fd, select.POLLOUT)

    def put(self, line: bytes) -> None:
        """Keep one line for the next flush."""
        if len(self._lines) >= LINES_MAX:
            self.dropped += 1
        elif len(line) <= PIPE_BUF:
            self._lines.append(line)
        else:  # a traceback
            starts = range(0, len(line), PIPE_BUF)
            self._lines.extend([line[start : start + PIPE_BUF] for start in starts])

    def put_all(self, lines: Sequence[bytes]) -> None:
        """Keep many."""
        if lines and len(self._lines) + len(lines) <= LINES_MAX and max(map(len, lines)) <= PIPE_BUF:
            self._lines.extend(lines)
        else:
            for line in lines:
                self.put(line)

    def write(self, text: str) -> None:
        """Keep a line of text."""
        self.put(text.encode(errors="backslashreplace"))

    def flush(self) -> None:
        """Write what can be written without waiting; the rest stays for the next time.

        To anything but a file at most PIPE_BUF bytes at once, which a pipe that polls as writable takes in
        full; whole lines, unless one is longer.
        """
        with self._flushing:
            while self._lines and self._writable.poll(0) and self._write_batch():
                pass

    def finish(self, within_s: float) -> None:
        """Write the rest, and wait for its reader at most so long."""
        deadline = time.monotonic() + within_s
        while self._lines and self._writable.poll(max(0.0, deadline - time.monotonic()) * 1000):
            self.flush()

    def _write_batch(self) -> bool:
        """Write as many lines as fit into one write; whether more may be taken."""
        lines, batch, size = self._lines, [], 0
        while lines and (size := size + len(lines[0])) <= self._batch_bytes:
            batch.append(lines.popleft())
        data = b"".join(batch)
        try:
            written = os.write(self._fd, data)
        except OSError:  # a closed pipe, a full disk: the gateway goes on without its log
            self.dropped += len(batch)
            return False
        if written < len(data):
            lines.appendleft(data[written:])
        return written == len(data)


def _own_terminal(fd: int) -> int:
    """The terminal `fd`, opened once more so as not to block; `fd` itself if it is none.

    A terminal with room for a byte polls as writable and then blocks on a line, and a flag set on `fd`
    would hold for the shell as well.
    """
    try:
        return os.open(os.ttyname(fd), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return fd
