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


def test_what_is_to_be_soon_happens_in_turns_and_before_anything_else_of_the_instant() -> None:
    agenda, done = Agenda(), list[str]()

    def begin(_: object) -> None:
        agenda.soon(3, done.append, "third")
        agenda.soon(1, done.append, "first")
        agenda.soon(2, done.append, "second")
        agenda.soon(1, done.append, "first, too")

    agenda.at(1.0, ENDS, begin)
    agenda.at(1.0, CHANGES, done.append, "change")
    while agenda.step():
        pass
    assert done == ["first", "first, too", "second", "third", "change"]
    assert agenda.now == 1.0
