"""The agenda: by instant, then by rank, then as entered."""

from __future__ import annotations

from maitred.sim.agenda import ARRIVALS, CHANGES, ENDS, TIMERS, Agenda


def test_what_is_due_comes_in_order() -> None:
    agenda, done = Agenda(), list[str]()
    for at, rank, name in (
        (2.0, ENDS, "late"), (1.0, TIMERS, "timer"), (1.0, ARRIVALS, "first"), (1.0, ARRIVALS, "second"),
        (1.0, ENDS, "end"), (1.0, CHANGES, "change"),
    ):  # fmt: skip
        agenda.at(at, rank, done.append, name)
    instants = []
    while agenda.step():
        instants.append(agenda.now)
    assert done == ["end", "change", "first", "second", "timer", "late"]
    assert instants == [1.0] * 5 + [2.0]
    assert agenda.done == 6


def test_what_lies_behind_happens_now() -> None:
    agenda, seen = Agenda(), list[float]()
    agenda.at(5.0, ENDS, lambda _: agenda.at(1.0, ENDS, lambda _: seen.append(agenda.now)))
    while agenda.step():
        pass
    assert seen == [5.0]
