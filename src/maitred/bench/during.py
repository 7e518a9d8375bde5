"""A command in the middle of a run (a rollout, a reload), and which conversations it broke.

A conversation is broken when one of its turns was refused, failed or left; it is counted where that turn was
under way. Requests outside of any conversation count apart. What a command breaks may show only after it: so
the same counts stand for before and after.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from statistics import median
from tempfile import TemporaryFile
from typing import IO

from msgspec import Struct

from maitred.bench.shot import Ending, Run, Shot

OUTPUT_BYTES_MAX = 4096
LINES_SHOWN = 5
LOOK_S = 0.05
GRACE_S = 5.0
"""For a command, and all it started, to end after SIGTERM; SIGKILL follows."""


class Happening(Struct, frozen=True):
    """A command that was run: from when to when (wall time, seconds), its exit code, its last lines."""

    command: str
    began_unix: float
    ended_unix: float
    code: int
    lines: list[str]


class Window(Struct, frozen=True):
    """What became of the requests that were under way in a part of the run, and of their conversations."""

    requests: int
    refused: int
    failed: int
    ttft_p50_s: float | None
    conversations: int
    broken: int


class Course(Struct, frozen=True):
    """The run before, during and after the command.

    `broken` conversations in all; `lost`: requests outside of any that were refused, failed or left.
    """

    command: str
    code: int
    lines: list[str]
    windows: dict[str, Window]
    broken: int
    lost: int = 0

    @property
    def line(self) -> str:
        """What came of it, in a sentence."""
        ended = f"ended with {self.code}" if self.code >= 0 else f"was ended by signal {-self.code}"
        said = f": {self.lines[-1]}" if self.code and self.lines else ""
        lost = f"; {self.lost:,} requests outside of any were lost" if self.lost else ""
        return f"{self.broken:,} conversations were broken in all{lost}; the command {ended}{said}"


class Command:
    """A shell command that is started after so many seconds; call `tick` often. "" is none.

    Leaving the context ends it. What it leaves running itself (a server started anew) stays; its output goes
    to a file, for a pipe would stay open as long as that.
    """

    def __init__(self, command: str, wait_s: float, clock: Callable[[], float] = time.time) -> None:
        self._command = command
        self._clock = clock
        self._due_at = clock() + wait_s
        self._began_at = self._ended_at = 0.0
        self._output: IO[bytes] = TemporaryFile()  # noqa: SIM115 - closed by `__exit__`
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Command:
        """Begin to wait for its time."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End it where it still runs; at once where the whole program is to end at once."""
        if self._process is not None:
            _end(self._process, 0.0 if kind is SystemExit else GRACE_S)
        self._output.close()

    @property
    def runs(self) -> bool:
        """Whether it was started, and has not ended."""
        return self._process is not None and self._process.poll() is None

    def tick(self) -> None:
        """Start it when it is time, and see when it ends."""
        now = self._clock()
        if self._process is None:
            if self._command and now >= self._due_at:
                self._began_at = now
                self._process = subprocess.Popen(  # noqa: S603 - it is the user's own
                    ["/bin/sh", "-c", self._command],
                    stdin=subprocess.DEVNULL,
                    stdout=self._output,
                    stderr=self._output,
                    start_new_session=True,
                )
        elif not self._ended_at and self._process.poll() is not None:
            self._ended_at = now

    def end(self, given_up: Callable[[], bool]) -> Happening | None:
        """What came of it; None where it was never started. Waits for its end, or ends it when `given_up`."""
        process = self._process
        if process is None:
            return None
        while process.poll() is None and not given_up():
            with suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_S)
        _end(process, GRACE_S)
        self.tick()
        code = -signal.SIGKILL if process.returncode is None else process.returncode
        return Happening(
            self._command, self._began_at, self._ended_at or self._clock(), code, _last_lines(self._output)
        )


def _end(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """End it and what it started, if it still runs; what has not ended after so many seconds is killed."""
    if process.poll() is not None:
        return
    kill_at = time.monotonic() + grace_s
    with suppress(OSError):  # they are gone; or another user's (sudo), and not ours to end
        os.killpg(process.pid, signal.SIGTERM)
        while time.monotonic() < kill_at:
            process.poll()
            os.killpg(process.pid, 0)  # fails when nobody is left
            time.sleep(LOOK_S)
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(LOOK_S)


def _last_lines(output: IO[bytes]) -> list[str]:
    output.seek(max(0, output.seek(0, os.SEEK_END) - OUTPUT_BYTES_MAX))
    return output.read().decode(errors="replace").splitlines()[-LINES_SHOWN:]


def course(run: Run, happening: Happening) -> Course:
    """What the command did to this run."""
    begin, end = happening.began_unix - run.began_unix, happening.ended_unix - run.began_unix
    shots = run.measured()
    windows = {
        "before": [shot for shot in shots if shot.over_at < begin],
        "during": [shot for shot in shots if shot.over_at >= begin and shot.due_at <= end],
        "after": [shot for shot in shots if shot.due_at > end],
    }
    return Course(
        command=happening.command,
        code=happening.code,
        lines=happening.lines,
        windows={name: _window(found) for name, found in windows.items()},
        broken=len(_broken(shots)),
        lost=sum(_is_lost(shot) and not shot.conversation for shot in shots),
    )


def _window(shots: Sequence[Shot]) -> Window:
    ttfts_s = [ttft_s for shot in shots if (ttft_s := shot.ttft_s) is not None]
    return Window(
        requests=len(shots),
        refused=sum(shot.ending is Ending.REFUSED for shot in shots),
        failed=sum(shot.ending is Ending.FAILED for shot in shots),
        ttft_p50_s=median(ttfts_s) if ttfts_s else None,
        conversations=len(_conversations(shots)),
        broken=len(_broken(shots)),
    )


def _broken(shots: Sequence[Shot]) -> set[tuple[str, int]]:
    return _conversations(filter(_is_lost, shots))


def _conversations(shots: Iterable[Shot]) -> set[tuple[str, int]]:
    """Those that these requests belong to; each class numbers its own."""
    return {(shot.kind, shot.conversation) for shot in shots if shot.conversation}


def _is_lost(shot: Shot) -> bool:
    return shot.ending is not Ending.COMPLETED
