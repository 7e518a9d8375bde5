"""The view while a load runs: what it says, and that it says nothing where nobody looks."""

from __future__ import annotations

from collections import deque
from io import StringIO

from maitred.bench.live import EVERY_S, View, lines
from maitred.bench.load import Progress


class Terminal(StringIO):
    """Somebody looks."""

    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def progress(completed: int = 90) -> Progress:
    recent = deque([(5.0, 9.0), *((30.0 + n / 10, 0.1 + n / 1000) for n in range(100))])
    return Progress(at=40.0, sent=120, in_flight=20, endings=[completed, 4, 3, 2], recent=recent)


def drawn(out: StringIO, *, quiet: bool = False) -> str:
    clock = Clock()
    with View(out, "chat at http://a", 60.0, quiet=quiet, clock=clock) as view:
        clock.now += EVERY_S / 2
        view.draw(progress(50))  # too soon
        clock.now += EVERY_S
        view.draw(progress(90))
    return out.getvalue()


def test_it_says_how_the_load_stands() -> None:
    assert lines(progress(), 40.0, 60.0, 12.34) == (
        "  40 s, sends for about 60 s: 20 under way, 90 completed, 4 refused, 3 failed, 2 left\n"
        "  12.3 completed per s, TTFT p50 149 ms, p90 189 ms of late"
    )
    assert "no first token of late" in lines(Progress(at=1.0), 1.0, 60.0, 0.0)


def test_it_draws_in_a_terminal() -> None:
    text = drawn(Terminal())
    assert "chat at http://a" in text
    assert "90 completed" in text
    assert "120.0 completed per s" in text
    assert "50 completed" not in text


def test_it_is_silent_where_nobody_looks_or_nobody_wants_it() -> None:
    assert drawn(StringIO()) == ""
    assert drawn(Terminal(), quiet=True) == ""
