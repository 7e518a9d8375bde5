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
from collections.abc import Iterator
from select import PIPE_BUF
from threading import Lock, RLock

LINES_MAX = 8192
FILE_BATCH_BYTES = 256 * 1024


class Sink:
    """Lines on their way to the file descriptor `fd`; any thread may use it. `dropped` counts lost lines.

    It is what `logging.StreamHandler` calls a stream, too.
    """

    def __init__(self, fd: int) -> None:
        self.dropped = 0
        self._fd = _own_terminal(fd)
        self._pieces: deque[tuple[bytes, int]] = deque()  # each with its number of lines
        self._waiting = 0  # lines
        # The collector may run wherever a line is kept, and what it finds may have something to say.
        self._keeping, self._flushing = RLock(), Lock()
        is_file = stat.S_ISREG(os.fstat(fd).st_mode)
        self._batch_bytes = FILE_BATCH_BYTES if is_file else PIPE_BUF
        self._writable = select.poll()
        self._writable.register(self._fd, select.POLLOUT)

    def put(self, line: bytes) -> None:
        """Keep one line for the next flush."""
        with self._keeping:
            if self._waiting >= LINES_MAX:
                self.dropped += 1
                return
            for piece in _cut(line, PIPE_BUF):  # more than one of a traceback
                self._pieces.append((piece, 1))
                self._waiting += 1

    def put_all(self, lines: bytes, count: int) -> None:
        """Keep so many, each with its end."""
        with self._keeping:
            lost = min(count, max(0, self._waiting + count - LINES_MAX))
            if lost:
                self.dropped += lost
                lines = b"".join(lines.splitlines(keepends=True)[:-lost])
                count -= lost
            if not count:  # nothing may pile up, not even nothing
                return
            self._waiting += count
            if len(lines) <= self._batch_bytes:  # to count ends takes longer than all else
                self._pieces.append((lines, count))
            else:
                self._pieces.extend([(piece, piece.count(b"\n")) for piece in _cut(lines, self._batch_bytes)])

    def write(self, text: str) -> None:
        """Keep a line of text."""
        self.put(text.encode(errors="backslashreplace"))

    def flush(self) -> None:
        """Write what can be written without waiting; the rest stays for the next time.

        To anything but a file at most PIPE_BUF bytes at once, which a pipe that polls as writable takes in
        full; whole lines, unless one is longer. Who finds somebody writing leaves it to him.
        """
        more = True
        while more and self._pieces and self._flushing.acquire(blocking=False):
            try:
                more = bool(self._writable.poll(0)) and self._write_batch()
            finally:
                self._flushing.release()

    def finish(self, within_s: float) -> None:
        """Write the rest, and wait for its reader at most so long."""
        deadline = time.monotonic() + within_s
        while self._pieces and self._writable.poll(max(0.0, deadline - time.monotonic()) * 1000):
            self.flush()

    def _write_batch(self) -> bool:
        """Write as much as fits into one write; whether more may be taken."""
        pieces, batch, lines, size = self._pieces, list[bytes](), 0, 0
        while pieces and (size := size + len(pieces[0][0])) <= self._batch_bytes:
            piece, count = pieces.popleft()
            batch.append(piece)
            lines += count
        data = b"".join(batch)
        try:
            rest = data[os.write(self._fd, data) :]
        except OSError:  # a closed pipe, a full disk: the gateway goes on without its log
            with self._keeping:
                self.dropped += lines
            self._gone(lines)
            return False
        if rest:
            pieces.appendleft((rest, 1))
            lines -= 1
        self._gone(lines)
        return not rest

    def _gone(self, lines: int) -> None:
        with self._keeping:
            self._waiting -= lines


def _cut(text: bytes, most: int) -> Iterator[bytes]:
    """The text in pieces of at most so many bytes: whole lines, unless one is longer."""
    start = 0
    while len(text) - start > most:
        end = text.rfind(b"\n", start, start + most) + 1 or start + most
        yield text[start:end]
        start = end
    yield text[start:]


def _own_terminal(fd: int) -> int:
    """The terminal `fd`, opened once more so as not to block; `fd` itself if it is none.

    A terminal with room for a byte polls as writable and then blocks on a line, and a flag set on `fd`
    would hold for the shell as well.
    """
    try:
        return os.open(os.ttyname(fd), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return fd
