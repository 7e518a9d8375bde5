"""What is over reaches every listener once and in order, soon and before it is looked for."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from maitred.core.events import AtDoor, EndpointMoved, Hub
from maitred.core.outcome import Outcome
from maitred.core.words import EndpointState
from maitred.observe.ends import BATCH, Ends, Over
from tests.observe.events import endpoint, over, queued


class Listener:
    """Remembers what it is told, batch by batch."""

    def __init__(self) -> None:
        self.batches: list[list[Over]] = []

    def over(self, ends: Sequence[Over]) -> None:
        self.batches.append(list(ends))


@pytest.fixture
def heard() -> tuple[Hub, Ends, Listener, Listener]:
    hub, first, second = Hub(), Listener(), Listener()
    ends = Ends(first.over, second.over)
    hub.subscribe(ends.hears)
    return hub, ends, first, second


Heard = tuple[Hub, Ends, Listener, Listener]


def at_door(number: int) -> AtDoor:
    return AtDoor(float(number), f"r{number}", Outcome.QUEUE_FULL)


def test_all_are_told_everything_once_and_in_its_order(heard: Heard) -> None:
    hub, ends, first, second = heard
    events: list[Over] = [at_door(1), over(2.0, queued(), Outcome.CLIENT_GONE, None), at_door(3)]
    for event in events:
        hub.tell(event)
    assert first.batches == []
    ends.tell()
    ends.tell()
    assert first.batches == second.batches == [events]


def test_never_more_than_a_batch_is_kept(heard: Heard) -> None:
    hub, ends, first, _ = heard
    for number in range(2 * BATCH + 1):
        hub.tell(at_door(number))
    assert [len(batch) for batch in first.batches] == [BATCH, BATCH]
    ends.tell()
    assert first.batches[2] == [at_door(2 * BATCH)]


def test_what_ended_at_an_endpoint_is_told_before_that_moves(heard: Heard) -> None:
    hub, _, first, _ = heard
    hub.tell(at_door(1))
    hub.subscribe({EndpointMoved: lambda _event: first.batches.append([])})
    hub.tell(EndpointMoved(2.0, endpoint(), EndpointState.DRAINING, EndpointState.GONE, ""))
    assert first.batches == [[at_door(1)], []]
