"""Counting of what is remembered: turns, what they recalled, and what the store took for it."""

from __future__ import annotations

from maitred.core.outcome import Outcome
from maitred.observe.histogram import Histogram

STORE_S = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)
"""Bounds of operations on the store: from a read of a local file to where one is given up."""
ITEMS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
"""Bounds of histories, in items."""


class Turns:
    """Numbers of turns, told on the gateway's thread and read from any.

    `ended[outcome.index]`; `store` by the operation's name; `waiting` jobs are those of all gateways, as they
    were last counted, `making` those of this one.
    """

    __slots__ = ("ended", "history", "making", "store", "waiting")

    def __init__(self) -> None:
        self.ended = [0] * len(Outcome)
        self.history = Histogram(ITEMS)
        self.store: dict[str, Histogram] = {}
        self.waiting = self.making = 0

    def end(self, outcome: Outcome) -> None:
        """A turn is over."""
        self.ended[outcome.index] += 1

    def recalled(self, items: int) -> None:
        """So many items were there before a turn."""
        self.history.observe(items)

    def stored(self, operation: str, took_s: float) -> None:
        """An operation on the store is over."""
        histogram = self.store.get(operation)
        if histogram is None:
            histogram = self.store[operation] = Histogram(STORE_S)
        histogram.observe(took_s)
