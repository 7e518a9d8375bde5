"""One pool's queue: order, bounds and deadlines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from maitred.core.queue import PoolQueue
from maitred.core.words import Api, Identity, Phase, PoolSettings, Request, Ticket

LIMITS = PoolSettings(queue_requests_max=3, queue_bytes_max=100)


def ticket(
    deadline: float = 30.0, body_bytes: int = 0, arrival: float = 0.0, excluded: tuple[str, ...] = ()
) -> Ticket:
    made = Ticket(Request("r", Api.CHAT, "m", "p", body_bytes=body_bytes), Identity(), arrival, deadline)
    made.excluded = made.lane = excluded
    return made


def served(queue: PoolQueue) -> list[Ticket]:
    """All tickets in the order in which free endpoints everywhere would take them."""
    order = []
    while heads := list(queue.heads()):
        queue.remove(heads[0])
        order.append(heads[0])
    return order


def test_first_come_first_served_and_a_retry_in_its_old_place() -> None:
    queue = PoolQueue()
    tickets = [ticket(arrival=float(at)) for at in range(4)]
    again = [ticket(arrival=at, excluded=("a",)) for at in (1.5, 0.5)]
    for each in (*tickets, *again):
        queue.push(each)
    assert list(queue.heads()) == [tickets[0], again[1]]
    assert served(queue) == [tickets[0], again[1], tickets[1], again[0], tickets[2], tickets[3]]


def test_lanes_go_with_their_last_ticket() -> None:
    queue = PoolQueue()
    for number in range(1000):
        retry = ticket(excluded=(f"e{number}",))
        queue.push(retry)
        queue.remove(retry)
    assert list(queue.heads()) == []
    assert not queue.odd
    assert all(not band._flows and not band._places for band in queue._bands.values())


def test_requests_are_bounded() -> None:
    queue = PoolQueue()
    for _ in range(3):
        assert not queue.full(0, LIMITS)
        queue.push(ticket())
    assert queue.full(0, LIMITS)


def test_bytes_are_bounded() -> None:
    queue = PoolQueue()
    queue.push(ticket(body_bytes=60))
    assert not queue.full(40, LIMITS)
    assert queue.full(41, LIMITS)
    queue.push(ticket(body_bytes=40))
    assert queue.full(1, LIMITS)
    assert not queue.full(0, LIMITS)


def test_a_removed_ticket_gives_back_its_bytes() -> None:
    queue, mine, other = PoolQueue(), ticket(body_bytes=7), ticket(body_bytes=5)
    queue.push(mine)
    queue.push(other)
    queue.remove(mine)
    assert (queue.waiting, queue.body_bytes) == (1, 5)


Steps = list[tuple[str, int, int]]


@given(
    st.lists(st.tuples(st.sampled_from(["push", "again", "remove"]), st.integers(0, 9), st.integers(0, 50)))
)
def test_counters_and_deadlines_follow_any_coming_and_going(steps: Steps) -> None:
    queue, inside = PoolQueue(), dict[int, Ticket]()
    for verb, number, size in steps:
        if verb == "remove" and number in inside:
            gone = inside.pop(number)
            queue.remove(gone)
            gone.phase = Phase.ENDED
        elif verb != "remove" and number not in inside:
            excluded = ("a",) if verb == "again" else ()
            inside[number] = ticket(float(size), size, float(number), excluded)
            queue.push(inside[number])
        assert queue.waiting == len(inside)
        assert queue.body_bytes == sum(t.request.body_bytes for t in inside.values())
        earliest = min((t.queue_deadline for t in inside.values()), default=None)
        assert queue.next_deadline() == earliest
        if earliest is not None:
            assert queue.overdue(earliest - 0.5) is None
            assert queue.overdue(earliest) in [t for t in inside.values() if t.queue_deadline == earliest]
