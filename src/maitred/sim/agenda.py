"""What is to happen when: the clock of a simulation."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from heapq import heappop, heappush
from typing import Any


class Rank(IntEnum):
    """What comes first of what is due at one instant."""

    ENDS = 0
    CHANGES = 1
    ARRIVALS = 2
    TIMERS = 3


ENDS, CHANGES, ARRIVALS, TIMERS = Rank


class Agenda:
    """Actions by instant, rank and order of entry. `now` is in seconds, `done` counts what was done."""

    def __init__(self) -> None:
        self.now = 0.0
        self.done = 0
        self._due: list[tuple[float, int, int, Callable[[Any], None], Any]] = []
        self._entries = 0

    def at(self, at: float, rank: Rank, act: Callable[[Any], None], argument: Any = None) -> None:
        """Call `act` with `argument` at this instant; what lies behind happens now."""
        self._entries += 1
        heappush(self._due, (max(at, self.now), rank, self._entries, act, argument))

    def soon(self, turns: int, act: Callable[[Any], None], argument: Any = None) -> None:
        """Call it at this very instant, but so many turns later: in each turn all others have theirs.

        So what happens at one instant has the order in which an event loop has it.
        """
        if turns > 1:
            self.at(self.now, ENDS, self._turn, (turns - 1, act, argument))
        else:
            self.at(self.now, ENDS, act, argument)

    def _turn(self, what: tuple[int, Callable[[Any], None], Any]) -> None:
        self.soon(*what)

    def step(self) -> bool:
        """Do what comes next; False when there is nothing."""
        if not self._due:
            return False
        self.now, _, _, act, argument = heappop(self._due)
        self.done += 1
        act(argument)
        return True
