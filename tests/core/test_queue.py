"""One pool's queue: order, bounds and deadlines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from maitred.core.queue import LOOK_PAST, PoolQueue
from maitred.core.words import Api, Identity, PoolSettings, Request, Ticket

LIMITS = PoolSettings(queue_requests_max=3, queue_bytes_max=100)


def ticket(deadline: float = 30.0, body_bytes: int = 0) -> Ticket:
    return Ticket(Request("r", Api.CHAT, "m", "p", body_bytes=body_bytes), Identity(), 0.0, deadline)


def length(queue: PoolQueue) -> int:
    return len(queue.tickets)


def test_the_design_allows_eight_tickets_and_two_seconds() -> None:
    assert LOOK_PAST == 8


def test_first_come_first_served_and_a_retry_before_all() -> None:
    queue, first, second, again = PoolQueue(), ticket(), ticket(), ticket()
    queue.push(first)
    queue.push(second)
    queue.push(again, front=True)
    assert queue.candidates() == [again, first, second]
    queue.remove(first)
    assert queue.candidates() == [again, second]


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


def test_a_removed_ticket_gives_back_its_bytes_once() -> None:
    queue, mine, other = PoolQueue(), ticket(body_bytes=7), ticket(body_bytes=5)
    queue.push(mine)
    queue.push(other)
    queue.remove(mine)
    queue.remove(mine)
    assert (length(queue), queue.body_bytes) == (1, 5)


def test_the_head_and_eight_behind_it_are_looked_at() -> None:
    queue, waiting = PoolQueue(), [ticket() for _ in range(12)]
    for each in waiting:
        queue.push(each)
    assert queue.candidates() == waiting[:9]
    queue.remove(waiting[0])
    assert queue.candidates() == waiting[1:10]


Steps = list[tuple[str, int, int]]


@given(
    st.lists(st.tuples(st.sampled_from(["push", "front", "remove"]), st.integers(0, 9), st.integers(0, 50)))
)
def test_counters_and_deadlines_follow_any_coming_and_going(steps: Steps) -> None:
    queue, inside = PoolQueue(), dict[int, Ticket]()
    for verb, number, size in steps:
        if verb == "remove" and number in inside:
            queue.remove(inside.pop(number))
        elif verb != "remove" and number not in inside:
            inside[number] = ticket(deadline=float(size), body_bytes=size)
            queue.push(inside[number], front=verb == "front")
        assert length(queue) == len(inside)
        assert queue.body_bytes == sum(t.request.body_bytes for t in inside.values())
        earliest = min((t.queue_deadline for t in inside.values()), default=None)
        assert queue.next_deadline() == earliest
        if earliest is not None:
            assert queue.overdue(earliest - 0.5) is None
            assert queue.overdue(earliest) in [t for t in inside.values() if t.queue_deadline == earliest]
