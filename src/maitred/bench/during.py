"""A command in the middle of a run (a rollout, a reload), and which conversations it broke.

A conversation is broken when one of its turns was refused, failed or left; it is counted where that turn was
under way. What a command breaks may show only after it: so the same counts stand for before and after.
"""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL
from collections.abc import Callable, Sequence
from contextlib import suppress
from statistics import median
from tempfile import TemporaryFile
from typing import IO

from msgspec import Struct

from maitred.bench.shot import Ending, Run, Shot

OUTPUT_BYTES_MAX = 4096
LINES_SHOWN = 5


class Happening(Struct, frozen=True):
    """A command that was run: from when to when (instants of the run), its exit code, its last lines."""

    command: str
    began_at: float
    ended_at: float
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
    """The run before, during and after the command; `broken` conversations in all."""

    command: str
    code: int
    lines: list[str]
    windows: dict[str, Window]
    broken: int


async def happen(command: str, wait_s: float, clock: Callable[[], float]) -> Happening:
    """Run a shell command after so many seconds, to its end; cancelling this ends it and what it started.

    What it leaves running when it ends (a server started anew) stays. Its output goes to a file, for a pipe
    would stay open as long as that.
    """
    await asyncio.sleep(wait_s)
    with TemporaryFile() as output:
        began_at = clock()
        process = await asyncio.create_subprocess_shell(
            command, stdin=DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            await process.wait()
            raise
        return Happening(command, began_at, clock(), code, _last_lines(output))


def _last_lines(output: IO[bytes]) -> list[str]:
    output.seek(max(0, output.seek(0, os.SEEK_END) - OUTPUT_BYTES_MAX))
    return output.read().decode(errors="replace").splitlines()[-LINES_SHOWN:]


def course(run: Run, happening: Happening) -> Course:
    """What the command did to this run."""
    begin, end = happening.began_at, happening.ended_at
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
    )


def _window(shots: Sequence[Shot]) -> Window:
    ttfts_s = [ttft_s for shot in shots if (ttft_s := shot.ttft_s) is not None]
    return Window(
        requests=len(shots),
        refused=sum(shot.ending is Ending.REFUSED for shot in shots),
        failed=sum(shot.ending is Ending.FAILED for shot in shots),
        ttft_p50_s=median(ttfts_s) if ttfts_s else None,
        conversations=len({_conversation(shot) for shot in shots}),
        broken=len(_broken(shots)),
    )


def _broken(shots: Sequence[Shot]) -> set[tuple[str, int]]:
    return {_conversation(shot) for shot in shots if shot.ending is not Ending.COMPLETED}


def _conversation(shot: Shot) -> tuple[str, int]:
    """Which conversation it belongs to; a request that belongs to none is one by itself."""
    return shot.kind, shot.conversation or shot.number
