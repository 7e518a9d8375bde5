"""Two journals side by side: the same verbs at the same instants with the same arguments and answers.

Requests and blocks are named by their order: the shells may call a request as they like, and the simulator
does not know the text of an answer. Left out are what is only for people (`why`, `detail`); facts, since an
engine tells more of them than its model has; whose decisions are kept, which is chance; in which order blocks
came that were told of together; and the calendar, which the simulator has none of.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

TOLERANCE = 1e-6
LEFT_OUT = {
    "Request": ("id", "receipt"),
    "Failure": ("detail", "retry_after_s"),
    "Probed": ("facts", "why"),
}


class Different(AssertionError):
    """The two shells said different things."""


class Verb(Struct):
    """One call: at an instant of the run, with what was given and what was answered."""

    at: float
    name: str
    given: list[Any]
    answer: Any

    @property
    def of_calendar(self) -> bool:
        return self.name == "update" and self.given[0]["type"] == "Periods"

    def __str__(self) -> str:
        return f"{self.at:12.6f} {self.name} {self.given} -> {self.answer}"


class _Reader:
    def __init__(self, origin: float) -> None:
        self._origin = origin
        self._ids: dict[str, int] = {}
        self._blocks: dict[int, int] = {}

    def read(self, line: bytes) -> Verb:
        name, at, given, answer = msgspec.json.decode(line)
        match name:
            case "accept":
                request = _less(given[0], "Request")
                number = self._ids.setdefault(given[0]["id"], len(self._ids))
                given = [number, self._named(request, "blocks"), given[1]]
            case "finish":
                given[0] = self._ids[given[0]]
            case "fail":
                given[1] = _less(given[1], "Failure")
            case "update":
                given[0] = self._named(_less(given[0], given[0]["type"]), "stored", "removed")
            case "release":
                for effect in answer:
                    if effect[0] != "drop":
                        effect[1] = self._ids[effect[1]]
        return Verb(at - self._origin, name, given, answer)

    def _named(self, told: dict[str, Any], *blocks: str) -> dict[str, Any]:
        """With its blocks by their numbers."""
        known = self._blocks
        return told | {
            name: sorted([known.setdefault(key, len(known)) for key in told[name]])
            for name in blocks
            if name in told
        }


def _less(told: dict[str, Any], kind: str) -> dict[str, Any]:
    return {name: value for name, value in told.items() if name not in LEFT_OUT.get(kind, ())}


def read(lines: Iterable[bytes], origin: float = 0.0) -> list[Verb]:
    """A journal's verbs as far as they concern requests: what the probes said after the last is left out."""
    reader = _Reader(origin)
    verbs = [verb for verb in map(reader.read, list(lines)[1:]) if not verb.of_calendar]
    while verbs and verbs[-1].name == "update":
        verbs.pop()
    return verbs


def compare(simulated: list[Verb], served: list[Verb]) -> None:
    """Raise Different at the first verb that is not the same."""
    for number in range(max(len(simulated), len(served))):
        left, right = simulated[number : number + 1], served[number : number + 1]
        if not (left and right and _same(left[0], right[0])):
            raise Different(_told(number, simulated, served))


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, Verb):
        return _same(
            [left.at, left.name, left.given, left.answer], [right.at, right.name, right.given, right.answer]
        )
    if isinstance(left, float) or isinstance(right, float):
        return left is not None and right is not None and abs(left - right) <= TOLERANCE
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)


def _told(number: int, simulated: list[Verb], served: list[Verb]) -> str:
    lines = [f"verb {number} differs"]
    lines += [f"   both  {verb}" for verb in served[max(0, number - 12) : number]]
    lines += [f"   sim   {verb}" for verb in simulated[number : number + 6]]
    lines += [f"   proxy {verb}" for verb in served[number : number + 6]]
    return "\n".join(lines)
