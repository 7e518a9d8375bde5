"""The view while a load runs: three lines that are drawn again and again, only where somebody looks."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from maitred.bench.load import Progress
from maitred.bench.shot import Ending
from maitred.sim.rows import seconds

EVERY_S = 0.5
"""Drawing takes a few milliseconds of the process that measures: not more often than needed."""
RECENT_S = 10.0
"""What the view calls late."""


class View:
    """Draws how a load stands, from `with` to its end; nothing where `out` is no terminal, or where `quiet`.

    `last_s`: for about how long the load sends.
    """

    def __init__(
        self,
        out: TextIO,
        title: str,
        last_s: float,
        *,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        console = Console(file=out, highlight=False)
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._draws = console.is_terminal and not quiet
        self._title = title
        self._last_s = last_s
        self._clock = clock
        self._began_at = self._drawn_at = clock()
        self._completed = 0

    def __enter__(self) -> View:
        """Begin."""
        if self._draws:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Take away what was drawn."""
        self._live.stop()

    def draw(self, progress: Progress) -> None:
        """The load stands like this now."""
        now = self._clock()
        past_s = now - self._drawn_at
        if not self._draws or past_s < EVERY_S:
            return
        completed = progress.endings[Ending.COMPLETED]
        said = lines(progress, now - self._began_at, self._last_s, (completed - self._completed) / past_s)
        self._live.update(Text(f"{self._title}\n{said}"), refresh=True)
        self._drawn_at, self._completed = now, completed


def lines(progress: Progress, past_s: float, last_s: float, per_s: float) -> str:
    """What is drawn after so many seconds; of late `per_s` requests were completed per second."""
    recent = sorted(ttft_s for at, ttft_s in progress.recent if at >= progress.at - RECENT_S)
    ttft = "no first token of late"
    if recent:
        p50, p90 = (_text(recent[math.ceil(q * len(recent)) - 1]) for q in (0.5, 0.9))
        ttft = f"TTFT p50 {p50}, p90 {p90} of late"
    counts = [f"{progress.endings[ending]:,} {ending.name.lower()}" for ending in Ending]
    return (
        f"  {past_s:,.0f} s, sends for about {last_s:,.0f} s: {progress.in_flight:,} under way, "
        f"{', '.join(counts)}\n  {per_s:,.1f} completed per s, {ttft}"
    )


def _text(value_s: float) -> str:
    factor, decimals, unit = seconds(value_s)
    return f"{factor * value_s:.{decimals}f}{unit}"
