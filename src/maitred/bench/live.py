"""The view while a load runs: two lines that are drawn again and again, only where somebody looks."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Protocol, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from maitred.sim.rows import seconds

EVERY_S = 0.5
RECENT_S = 10.0
"""What the view calls the last seconds."""


class Counters(Protocol):
    """What a load tells while it runs; `recent` holds (instant, TTFT in seconds) of late answers, in order."""

    @property
    def in_flight(self) -> int: ...
    @property
    def completed(self) -> int: ...
    @property
    def refused(self) -> int: ...
    @property
    def failed(self) -> int: ...
    @property
    def recent(self) -> Iterable[tuple[float, float]]: ...


class View:
    """Draws what a load tells; nothing where `out` is no terminal."""

    def __init__(self, out: TextIO, *, quiet: bool) -> None:
        self._console = Console(file=out, highlight=False)
        self._draws = not quiet and self._console.is_terminal

    async def watch(self, title: str, counters: Counters, clock: Callable[[], float], last_s: float) -> None:
        """Draw until cancelled; `clock` counts from the begin of a run that sends for about `last_s`."""
        live = Live(console=self._console, auto_refresh=False, transient=True)
        before_at, before = clock(), 0
        with live if self._draws else nullcontext():
            while True:
                await asyncio.sleep(EVERY_S)
                now, over = clock(), counters.completed
                if self._draws:
                    per_s = (over - before) / (now - before_at)
                    live.update(Text(lines(title, counters, now, last_s, per_s)), refresh=True)
                before_at, before = now, over


def lines(title: str, counters: Counters, now: float, last_s: float, per_s: float) -> str:
    """What is drawn; `per_s` requests were completed per second of late."""
    recent = sorted(ttft_s for at, ttft_s in counters.recent if at >= now - RECENT_S)
    ttft = "no first token yet"
    if recent:
        p50, p90 = (_text(recent[math.ceil(q * len(recent)) - 1]) for q in (0.5, 0.9))
        ttft = f"TTFT p50 {p50}, p90 {p90} in the last {RECENT_S:g} s"
    return (
        f"{title}  {now:,.0f} s of about {last_s:,.0f} s\n"
        f"  {counters.in_flight:,} under way, {counters.completed:,} completed ({per_s:,.1f}/s), "
        f"{counters.refused:,} refused, {counters.failed:,} failed; {ttft}"
    )


def _text(value_s: float) -> str:
    factor, decimals, unit = seconds(value_s)
    return f"{factor * value_s:.{decimals}f}{unit}"
