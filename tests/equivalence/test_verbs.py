"""The comparison itself: it sees every part of a verb, and is blind to names and to nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.equivalence.verbs import Different, compare, read

Lines = list[list[Any]]
USAGE = {"prompt_tokens": 9, "cached_tokens": 0, "output_tokens": 3, "exact": True}


def journal(name: str = "a", origin: float = 0.0) -> Lines:
    """A short journal, its requests named like this."""
    request = {"id": name, "model": "m", "body_bytes": 99, "prefix": [7, 8]}
    failure = {"kind": "reset", "final": False, "detail": name, "retry_after_s": None}
    return [
        [],
        ["accept", origin + 1.0, [request, {"tenant": "t"}], None],
        ["release", origin + 1.0, [], [["go", name, [[1, "m/h:1", 0]]]]],
        ["sent", origin + 1.0, [1, None], None],
        ["fail", origin + 2.0, [1, failure], True],
        ["release", origin + 2.0, [], [["stop", name, "queue_deadline", 1.5]]],
        ["finish", origin + 3.0, [name, "completed", USAGE], "completed"],
    ]


def told(lines: Lines, origin: float = 0.0) -> Any:
    """The verbs."""
    return read([msgspec.json.encode(line) for line in lines], origin)


def test_names_and_the_origin_of_time_do_not_matter() -> None:
    compare(told(journal("a")), told(journal("another", 1000.0), 1000.0))


def test_what_probes_said_after_the_last_request_does_not_matter() -> None:
    found = ["update", 9.0, [{"type": "Probed", "endpoint": "m/h:1", "ok": True}], None]
    compare(told(journal()), told([*journal(), found]))


def _shift(lines: Lines) -> None:
    lines[3][1] += 2e-6


def _swap(lines: Lines) -> None:
    lines[2], lines[3] = lines[3], lines[2]


def _another_endpoint(lines: Lines) -> None:
    lines[2][3][0][2][0][1] = "m/h:2"


def _another_failure(lines: Lines) -> None:
    lines[4][2][1]["final"] = True


def _another_answer(lines: Lines) -> None:
    lines[4][3] = False


def _another_wait(lines: Lines) -> None:
    lines[5][3][0][3] = 1.50001


def _other_usage(lines: Lines) -> None:
    lines[6][2][2] = {**USAGE, "output_tokens": 4}


def _another_prompt(lines: Lines) -> None:
    lines[1][2][0]["prefix"] = [7, 9]


def _one_less(lines: Lines) -> None:
    lines.pop()


@pytest.mark.parametrize(
    "change",
    [
        _shift,
        _swap,
        _another_endpoint,
        _another_failure,
        _another_answer,
        _another_wait,
        _other_usage,
        _another_prompt,
        _one_less,
    ],
)
def test_everything_else_does(change: Callable[[Lines], None]) -> None:
    lines = journal()
    change(lines)
    for left, right in ((journal(), lines), (lines, journal())):
        with pytest.raises(Different):
            compare(told(left), told(right))
