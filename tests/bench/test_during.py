"""A command in the middle of a run: when it runs, what is kept of it, and whom it broke."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from maitred.bench import during
from maitred.bench.during import LINES_SHOWN, Command, Happening, course
from maitred.bench.shot import UNFINISHED, Ending
from tests.bench.finished import answered, lost, run


class Clock:
    """Wall time that moves when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


GRACE_S = 0.2


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests do not wait for what is stubborn, nor for who buries the children of the dead."""
    monkeypatch.setattr(during, "GRACE_S", GRACE_S)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def happened(command: Command) -> Happening:
    found = command.end(lambda: False)
    assert found is not None
    return found


def until(done: Callable[[], object]) -> None:
    """Look again and again; a command takes its time."""
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end
        os.sched_yield()


def test_it_runs_when_it_is_time_and_not_before(clock: Clock, tmp_path: Path) -> None:
    with Command(f"touch {tmp_path}/ran", 5.0, clock) as command:
        clock.now = 104.9
        command.tick()
        assert command.end(lambda: False) is None
        assert not (tmp_path / "ran").exists()
        clock.now = 105.2
        command.tick()
        assert happened(command).began_unix == 105.2
        assert (tmp_path / "ran").exists()


def test_no_command_never_runs(clock: Clock) -> None:
    with Command("", 0.0, clock) as command:
        command.tick()
        assert command.end(lambda: False) is None


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
            found = command.end(lambda: True)
            assert found is not None
            assert found.code < 0
    assert command._process is not None
    assert command._process.returncode < 0  # it was not waited for
    stat = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat")
    until(lambda: not stat.exists() or stat.read_text().split()[2] == "Z")


def test_it_runs_from_its_begin_to_its_end(clock: Clock) -> None:
    with Command("exit 0", 5.0, clock) as command:
        command.tick()
        assert not command.runs
        clock.now += 5.0
        command.tick()
        until(lambda: not command.runs)
        assert happened(command).code == 0


def test_it_is_waited_for_until_somebody_has_enough(clock: Clock) -> None:
    asked: list[float] = []

    def given_up() -> bool:
        assert command.runs
        asked.append(clock.now)
        return len(asked) == 3

    with Command("sleep 60", 0.0, clock) as command:
        command.tick()
        found = command.end(given_up)
    assert found is not None
    assert found.code == -signal.SIGTERM
    assert len(asked) == 3


STUBBORN = (
    "trap '' TERM; echo > {0}/up; sleep 60; sleep 60",
    "(trap '' TERM; echo > {0}/up; sleep 60) & wait",
)


@pytest.mark.parametrize("stubborn", STUBBORN, ids=["itself", "its child"])
@pytest.mark.parametrize("at_once", [True, False])
def test_what_ignores_its_end_is_killed(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stubborn: str, at_once: bool
) -> None:
    monkeypatch.setattr(during, "GRACE_S", 60.0 if at_once else GRACE_S)
    began_at = time.monotonic()
    with ExitStack() as stack:
        stack.enter_context(suppress(SystemExit))
        command = stack.enter_context(Command(stubborn.format(tmp_path), 0.0, clock))
        command.tick()
        until((tmp_path / "up").exists)
        if at_once:
            raise SystemExit
    process = command._process
    assert process is not None
    assert process.returncode < 0
    until(lambda: not alive(process.pid))
    assert time.monotonic() - began_at < 60.0


def alive(group: int) -> list[str]:
    """Processes of a group that have not ended."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state != "Z":
                found.append(stat.parent.name)
    return found


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
    assert counts == {"before": (2, 0, 1, 2, 1), "during": (4, 1, 1, 3, 2), "after": (3, 0, 2, 1, 0)}
    assert (found.broken, found.lost) == (3, 2)
    assert found.line == (
        "3 conversations were broken in all; 2 requests outside of any were lost; the command ended with 0"
    )
    assert found.windows["before"].ttft_p50_s == pytest.approx(0.2)


def test_how_a_command_ended_is_told() -> None:
    def line(code: int, *lines: str) -> str:
        return course(run([]), Happening("x", 10.0, 20.0, code, list(lines))).line

    assert line(3, "a", "no cluster").endswith("in all; the command ended with 3: no cluster")
    assert line(-15).endswith("in all; the command was ended by signal 15")
    assert line(0, "done").endswith("in all; the command ended with 0")


def test_nothing_happened_around_it() -> None:
    found = course(run([]), Happening("x", 10.0, 20.0, 0, []))
    assert found.broken == 0
    assert found.windows["during"].ttft_p50_s is None
