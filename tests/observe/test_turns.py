"""Turns are counted by how they ended, and the store by what it was asked."""

from __future__ import annotations

from maitred.core.outcome import Outcome
from maitred.observe.turns import Turns


def test_each_is_counted_where_it_belongs() -> None:
    turns = Turns()
    turns.end(Outcome.COMPLETED)
    turns.end(Outcome.CONVERSATION_LOCKED)
    turns.end(Outcome.COMPLETED)
    assert turns.ended[Outcome.COMPLETED.index] == 2
    assert sum(turns.ended) == 3
    turns.recalled(0)
    turns.recalled(200)
    assert (turns.history.counts[0], turns.history.total) == (1, 200)
    turns.stored("keep", 0.003)
    turns.stored("history", 0.0001)
    assert {name: histogram.total for name, histogram in turns.store.items()} == {
        "keep": 0.003,
        "history": 0.0001,
    }
