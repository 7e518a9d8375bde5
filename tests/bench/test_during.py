"""A command in the middle of a run: when it runs, what is kept of it, and whom it broke."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from maitred.bench.during import LINES_SHOWN, Command, Happening, course
from maitred.bench.shot import UNFINISHED, Ending
from tests.bench.finished import answered, lost, run


class Clock:
    """Wall time that moves when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def happened(command: Command) -> Happening:
    found = command.end(wait=True)
    assert found is not None
    return found


def until(done: Callable[[], object]) -> None:
    """Look again and again; a command takes its time."""
    end = time.monotonic() + 10
    while not done():
        assert time.monotonic() < end
        os.sched_yield()


def test_it_runs_when_it_is_time_and_not_before(clock: Clock, tmp_path: Path) -> None:
    with Command(f"touch {tmp_path}/ran", 5.0, clock) as command:
        clock.now = 104.9
        command.tick()
        assert command.end(wait=True) is None
        assert not (tmp_path / "ran").exists()
        clock.now = 105.2
        command.tick()
        assert happened(command).began_unix == 105.2
        assert (tmp_path / "ran").exists()


def test_no_command_never_runs(clock: Clock) -> None:
    with Command("", 0.0, clock) as command:
        command.tick()
        assert command.end(wait=True) is None


def test_its_end_is_when_it_was_seen(clock: Clock, tmp_path: Path) -> None:
    with Command("echo done; exit 3", 0.0, clock) as command:
        command.tick()

        def ended() -> bool:
            clock.now += 1.0
            command.tick()
            return command._ended_at > 0

        until(ended)
        ended_at = clock.now
        clock.now = 1e6
        found = happened(command)
    assert (found.code, found.lines, found.ended_unix) == (3, ["done"], ended_at)


def test_the_last_lines_are_kept(clock: Clock) -> None:
    with Command("seq 1 100000; echo wrong >&2", 0.0, clock) as command:
        command.tick()
        assert happened(command).lines == ["99997", "99998", "99999", "100000", "wrong"][-LINES_SHOWN:]


def test_what_it_leaves_running_stays_and_is_not_waited_for(clock: Clock, tmp_path: Path) -> None:
    with Command(f"sleep 60 & echo $! > {tmp_path}/pid", 0.0, clock) as command:
        command.tick()
        assert happened(command).code == 0
    child = int((tmp_path / "pid").read_text())
    os.kill(child, 0)
    os.kill(child, 9)


@pytest.mark.parametrize("asked", [True, False])
def test_it_is_ended_with_all_it_started(clock: Clock, tmp_path: Path, asked: bool) -> None:
    with Command(f"sleep 60 & echo $! > {tmp_path}/pid; wait", 0.0, clock) as command:
        command.tick()
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        if asked:
            found = command.end(wait=False)
            assert found is not None
            assert found.code < 0
    assert command._process is not None
    assert command._process.returncode < 0  # it was not waited for
    stat = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat")
    until(lambda: not stat.exists() or stat.read_text().split()[2] == "Z")


def test_conversations_are_counted_where_they_broke() -> None:
    shots = [
        answered(1.0, conversation=7, turn=1),
        lost(2.0, conversation=8, turn=1),
        answered(9.9, conversation=7, turn=2, number=2),  # under way when it began
        lost(11.0, Ending.REFUSED, conversation=9, number=3),
        lost(12.0, conversation=9, number=4),
        lost(13.0, Ending.LEFT, "patience", conversation=10, number=5),
        answered(20.1, conversation=11, number=6),
        lost(21.0, number=7),  # alone
        lost(21.5, number=13),
        lost(22.0, Ending.LEFT, UNFINISHED, conversation=12, number=9),
    ]
    found = course(run(shots, began_unix=1000.0), Happening("x", 1010.0, 1020.0, 0, []))
    counts = {
        name: (window.requests, window.refused, window.failed, window.conversations, window.broken)
        for name, window in found.windows.items()
    }
    assert counts == {"before": (2, 0, 1, 2, 1), "during": (4, 1, 1, 3, 2), "after": (3, 0, 2, 3, 2)}
    assert found.broken == 5
    assert found.windows["before"].ttft_p50_s == pytest.approx(0.2)


def test_nothing_happened_around_it() -> None:
    found = course(run([]), Happening("x", 10.0, 20.0, 0, []))
    assert found.broken == 0
    assert found.windows["during"].ttft_p50_s is None
