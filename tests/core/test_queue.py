"""One pool's queue: order, bounds and deadlines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maitred.core.queue import PoolQueue
from maitred.core.words import Api, BandSettings, Identity, Phase, PoolSettings, Request, Ticket

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


# -- bands and tenants in a full queue ---------------------------------------------------------------

TEN = PoolSettings(queue_requests_max=10, queue_bytes_max=100)
HIGH, MID, LOW = "high", "mid", "low"


def bands(*names: str, kept: str = "") -> PoolQueue:
    return PoolQueue([BandSettings(name, preempt=name != kept) for name in names])


def of(band: str, tenant: str = "t", body_bytes: int = 0, weight: float = 1.0) -> Ticket:
    return Ticket(
        Request("r", Api.CHAT, "m", "p", body_bytes=body_bytes), Identity(tenant), 0.0, 30.0,
        band=band, rank=(HIGH, MID, LOW).index(band), weight=weight,
    )  # fmt: skip


def fill(queue: PoolQueue, count: int, band: str, tenant: str = "t", body_bytes: int = 0) -> list[Ticket]:
    made = [of(band, tenant, body_bytes) for _ in range(count)]
    for each in made:
        queue.push(each, TEN)
    return made


def admits(queue: PoolQueue, newcomer: Ticket) -> bool:
    return not queue.crowded(newcomer, TEN)


@pytest.mark.parametrize(("band", "room"), [(HIGH, 10), (MID, 9), (LOW, 8)])
def test_a_lower_band_leaves_some_of_the_queue_to_those_above(band: str, room: int) -> None:
    queue = bands(HIGH, MID, LOW)
    fill(queue, room - 1, LOW)
    assert admits(queue, of(band, body_bytes=room * 10))
    assert not admits(queue, of(band, body_bytes=room * 10 + 1))
    fill(queue, 1, LOW)
    assert not admits(queue, of(band))


def test_the_newest_of_the_lowest_band_has_to_go() -> None:
    queue = bands(HIGH, MID, LOW)
    low, mid = fill(queue, 4, LOW), fill(queue, 6, MID)
    assert queue.victims(of(HIGH), TEN) == [low[3]]
    for each in low:
        queue.remove(each)
    fill(queue, 4, HIGH)
    assert queue.victims(of(HIGH), TEN) == [mid[5]]
    assert queue.victims(of(LOW), TEN) == []


def test_a_band_is_not_refused_for_what_a_lower_one_has_of_its_part() -> None:
    queue = bands(HIGH, MID, LOW)
    low, _ = fill(queue, 8, LOW), fill(queue, 1, MID)
    assert queue.crowded(of(MID, "other"), TEN)
    assert queue.victims(of(MID, "other"), TEN) == [low[7]]


def test_nobody_is_put_out_while_there_is_room() -> None:
    queue = bands(HIGH, LOW)
    fill(queue, 9, LOW)
    assert queue.victims(of(HIGH), TEN) == []


def test_a_retry_is_never_put_out() -> None:
    queue = bands(HIGH, LOW)
    low = fill(queue, 10, LOW)
    low[9].attempts = 1
    assert queue.victims(of(HIGH), TEN) == [low[8]]


def test_so_many_are_put_out_as_make_room_for_a_large_body_or_nobody() -> None:
    queue = bands(HIGH, LOW)
    low = fill(queue, 5, LOW, body_bytes=10)
    kept = fill(queue, 2, HIGH, body_bytes=25)
    assert queue.victims(of(HIGH, body_bytes=21), TEN) == [low[4], low[3], low[2]]
    assert queue.victims(of(HIGH, body_bytes=50), TEN) == low[::-1]
    assert queue.victims(of(HIGH, body_bytes=51), TEN) == []
    for each in kept:
        queue.remove(each)


def test_a_band_may_be_kept_from_being_put_out() -> None:
    queue = bands(HIGH, MID, LOW, kept=LOW)
    fill(queue, 7, LOW)
    mid = fill(queue, 3, MID)
    assert queue.victims(of(HIGH), TEN) == [mid[2]]


def test_a_tenant_may_fill_its_part_of_the_queue_when_others_are_there() -> None:
    queue = bands(HIGH)
    fill(queue, 5, HIGH, "hog")
    assert admits(queue, of(HIGH, "hog"))  # alone it may have it all
    fill(queue, 1, HIGH, "other")
    assert not admits(queue, of(HIGH, "hog"))
    assert queue.victims(of(HIGH, "hog"), TEN) == []
    assert admits(queue, of(HIGH, "other"))
    assert admits(queue, of(HIGH, "third"))


def test_parts_go_by_weight() -> None:
    queue = bands(HIGH)
    fill(queue, 1, HIGH, "other")
    for _ in range(7):
        assert admits(queue, of(HIGH, "heavy", weight=3.0))
        queue.push(of(HIGH, "heavy", weight=3.0), TEN)
    queue.push(of(HIGH, "heavy", weight=3.0), TEN)
    assert not admits(queue, of(HIGH, "heavy", weight=3.0))


def test_who_has_more_than_its_part_makes_room_for_who_has_less() -> None:
    queue = bands(HIGH)
    hog = fill(queue, 10, HIGH, "hog")
    assert queue.victims(of(HIGH, "polite"), TEN) == [hog[9]]
    assert queue.victims(of(HIGH, "hog"), TEN) == []


def test_nobody_makes_room_for_who_has_its_part() -> None:
    queue = bands(HIGH)
    for tenant, count in (("third", 1), ("mine", 4), ("hog", 5)):
        fill(queue, count, HIGH, tenant)
    assert queue.victims(of(HIGH, "mine"), TEN) == []
    assert len(queue.victims(of(HIGH, "third"), TEN)) == 1


def test_tenants_of_one_request_do_not_put_each_other_out() -> None:
    queue = bands(HIGH)
    for number in range(10):
        fill(queue, 1, HIGH, f"x{number}")
    assert queue.crowded(of(HIGH, "new"), TEN)
    assert queue.victims(of(HIGH, "new"), TEN) == []


def test_new_settings_reorder_the_bands_and_lose_nobody() -> None:
    queue = bands(HIGH, LOW)
    low, high = fill(queue, 2, LOW), fill(queue, 2, HIGH)
    queue.arrange([BandSettings(LOW), BandSettings("new")])
    assert queue.all() == [*low, *high]
    assert served(queue) == [*low, *high]
    queue.arrange([BandSettings("new")])
    assert list(queue._bands) == ["new"]
    late = of(LOW)
    queue.push(late, TEN)
    assert served(queue) == [late]


# -- waits ------------------------------------------------------------------------------------------


def paced(queue: PoolQueue, count: int, tenant: str = "t") -> float:
    """So many are seated, one a second, while others wait; until when."""
    fill(queue, count, HIGH, tenant)
    for second in range(count - 1):
        queue.serve(next(iter(queue.heads())), float(second))
    return float(count - 2)


def test_the_wait_is_that_of_those_before_in_this_tenants_part() -> None:
    queue = bands(HIGH)
    now = paced(queue, 20)
    fill(queue, 9, HIGH, "hog")
    assert queue.wait_s(of(HIGH, "hog"), TEN, now) == pytest.approx(11.0, rel=0.1)
    assert queue.wait_s(of(HIGH, "new"), TEN, now) == pytest.approx(3.0, rel=0.1)  # each of two goes once


def test_a_pause_says_nothing_until_answers_must_be_over() -> None:
    queue = bands(HIGH, LOW)
    now = paced(queue, 20)
    fill(queue, 9, HIGH)
    fill(queue, 9, LOW)
    known = queue.wait_s(of(HIGH), TEN, now)
    assert known is not None
    assert queue.wait_s(of(HIGH), TEN, now + 60, answer_s=30.0) == pytest.approx(known)
    assert (queue.wait_s(of(HIGH), TEN, now + 90, answer_s=30.0) or 0) > 2 * known
    queue.serve(next(queue._bands[LOW].heads()), now + 60)  # others go on: that is no pause
    assert (queue.wait_s(of(HIGH), TEN, now + 60, answer_s=30.0) or 0) > 3 * known


def test_no_wait_is_known_where_nobody_of_the_band_waits() -> None:
    queue = bands(HIGH, LOW)
    now = paced(queue, 20)
    for each in queue.all():
        queue.remove(each)
    assert queue.wait_s(of(HIGH), TEN, now) is None
    fill(queue, 3, LOW)
    assert queue.wait_s(of(HIGH), TEN, now) is None
    first = of(HIGH)
    first.arrival = now
    queue.push(first, TEN)
    assert queue.wait_s(of(HIGH), TEN, now) == pytest.approx(2.0, rel=0.1)


def test_the_waits_of_single_ones_mend_the_pace_of_their_band() -> None:
    queue = bands(HIGH, LOW)
    now = paced(queue, 20)
    fill(queue, 3, LOW)
    while queue._bands[HIGH].waiting:
        queue.serve(next(iter(queue.heads())), now)
    for second in range(100):
        single = of(HIGH)
        single.arrival = now + second
        queue.push(single, TEN)
        queue.serve(single, now + second + 0.2)
    assert (queue._bands[HIGH].pace.seat_s(now + 100) or 9.9) < 0.5


def test_the_time_after_the_last_one_left_is_no_pace() -> None:
    queue = bands(HIGH, LOW)
    now = paced(queue, 20)
    fill(queue, 3, LOW)
    [last] = queue._bands[HIGH].heads()
    queue.remove(last)
    again = of(HIGH)
    again.attempts = 1
    queue.push(again, TEN)
    queue.serve(again, now + 3600.0)
    assert queue._bands[HIGH].pace.seat_s(now + 3600.0) == pytest.approx(1.0, rel=0.05)


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
