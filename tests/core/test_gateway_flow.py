"""Flow control by example: who waits behind whom, who is put out, who is refused early, who rests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from maitred.core.fairness import FLOWS_KEPT
from maitred.core.outcome import FailureKind, Outcome
from maitred.core.pool import HOLD_S
from maitred.core.speed import TOLD_MIN
from maitred.core.words import (
    BandSettings,
    Endpoint,
    Facts,
    HealthSettings,
    Leg,
    Load,
    Observed,
    Phase,
    PoolSettings,
    Settings,
    Stop,
    TenantSettings,
    Ticket,
    Usage,
)
from tests.core.hall import Hall, limited, refused

CHAT, BATCH = BandSettings("chat"), BandSettings("batch")


def banded(*bands: BandSettings, **limits: object) -> Hall:
    """One endpoint; bands chat and batch unless others are named."""
    pool = PoolSettings(**limits)  # type: ignore[arg-type]
    hall = Hall(Settings(default=pool, bands=bands or (CHAT, BATCH)))
    hall.open(p="a")
    return hall


def serve_next(hall: Hall, usage: Usage | None = None) -> list[Ticket]:
    """End everybody who is seated; who comes in their places."""
    for ticket in [ticket for ticket in hall.tickets if ticket.phase is Phase.DISPATCHED]:
        hall.finish(ticket, usage=usage)
    return hall.seated()


def queue_is_empty(hall: Hall) -> None:
    """Every counter of the queue is nought."""
    queue = hall.gateway._pools["p"].queue
    assert (queue.waiting, queue.body_bytes, hall.gateway.waiting) == (0, 0, 0)
    assert not queue.odd
    assert not queue.held_at
    for band in queue._bands.values():
        assert (band.waiting, band.weight) == (0, 0.0)
        assert not band._flows
        assert not band._places
        assert not band._turns


def test_whoever_finds_nobody_is_in_no_band() -> None:
    hall = banded(cap=1)
    newcomer = hall.accept()
    queue = hall.gateway._pools["p"].queue
    assert (queue.waiting, hall.gateway.waiting_by_pool()) == (0, {"p": 1})
    assert hall.seated() == [newcomer]
    assert newcomer.flow is None
    assert queue.served_at == hall.now
    queue_is_empty(hall)


@pytest.mark.parametrize("limits", [{"queue_requests_max": 0}, {"queue_bytes_max": 10}])
def test_whoever_could_not_wait_but_need_not_is_in_no_band_either(limits: dict[str, int]) -> None:
    hall = banded(cap=1, **limits)
    ticket = hall.accept(body_bytes=11)
    assert hall.seated() == [ticket]
    assert ticket.flow is None
    queue_is_empty(hall)
    assert refused(hall, body_bytes=11).outcome is Outcome.QUEUE_FULL


def test_whoever_is_joined_before_anybody_looked_lines_up() -> None:
    hall = banded(cap=1)
    first, second = hall.accept(), hall.accept()
    assert hall.gateway._pools["p"].queue.waiting == 2
    assert hall.seated() == [first]
    assert serve_next(hall) == [second]
    queue_is_empty(hall)


def test_whoever_has_failed_goes_before_who_came_just_now() -> None:
    hall = Hall(limited(cap=1))
    hall.open(p="ab")
    first, second = hall.seat(), hall.seat()
    hall.accept()
    assert hall.fail(first, FailureKind.STATUS_5XX)
    hall.finish(second.ticket)
    assert hall.seated()[0] is first.ticket


def test_whoever_comes_to_a_pool_that_goes_at_once_is_told() -> None:
    hall = banded(cap=1)
    newcomer = hall.accept()
    hall.address()
    [stop] = hall.release()
    assert isinstance(stop, Stop)
    assert (stop.ticket, stop.outcome) == (newcomer, Outcome.NO_ENDPOINT)


def test_nobody_is_seated_whose_patience_ended_before_anybody_looked() -> None:
    hall = banded(cap=1)
    hall.now = hall.accept().queue_deadline
    assert [type(effect) for effect in hall.release()] == [Stop]
    queue_is_empty(hall)


def test_whoever_leaves_before_anybody_looked_leaves_nothing() -> None:
    hall = banded(cap=1)
    hall.finish(hall.accept())
    assert hall.seated() == []
    queue_is_empty(hall)


# -- bands and tenants ------------------------------------------------------------------------------


def test_a_higher_band_is_served_first_whatever_came_before() -> None:
    hall = banded(cap=1)
    hall.seat()
    batch = [hall.accept(band="batch") for _ in range(2)]
    chat = [hall.accept(band="chat") for _ in range(2)]
    assert [serve_next(hall) for _ in range(4)] == [[ticket] for ticket in (*chat, *batch)]


def test_new_settings_turn_the_bands_round_for_those_who_wait() -> None:
    hall = banded(cap=1)
    hall.seat()
    chat, batch = hall.accept(), hall.accept(band="batch")
    hall.release()
    hall.set(Settings(default=PoolSettings(cap=1), bands=(BATCH, CHAT)))
    assert [serve_next(hall), serve_next(hall)] == [[batch], [chat]]


@pytest.mark.parametrize(
    ("asked", "allowed", "band"),
    [
        ("", (), "chat"),
        ("batch", (), "batch"),
        ("nobody's", (), "chat"),
        ("chat", ("batch",), "batch"),
        ("", ("batch", "chat"), "batch"),
        ("chat", ("batch", "chat"), "chat"),
        ("chat", ("gone",), "batch"),
        ("", ("gone", "chat"), "chat"),
        ("gone", ("gone", "chat"), "chat"),
    ],
)
def test_a_request_waits_in_the_band_it_may_have(asked: str, allowed: tuple[str, ...], band: str) -> None:
    tenants = {"t": TenantSettings(bands=allowed)}
    hall = Hall(Settings(bands=(CHAT, BATCH), tenants=tenants))
    hall.open(p="a")
    assert hall.accept(band=asked).band == band


def test_a_band_may_have_its_own_patience_and_a_client_less() -> None:
    hall = banded(CHAT, BandSettings("batch", deadline_s=3600.0), queue_wait_s=30.0)
    assert hall.accept().queue_deadline == 130.0
    assert hall.accept(band="batch").queue_deadline == 3700.0
    assert hall.accept(band="batch", deadline_s=60.0).queue_deadline == 160.0
    assert hall.accept(deadline_s=60.0).queue_deadline == 130.0


def test_two_tenants_get_equal_service_though_one_sends_ten_times_as_much() -> None:
    hall = Hall(limited(cap=4, queue_requests_max=100_000))
    hall.open(p="a")
    service: Counter[str] = Counter()
    for number in range(2200):
        tenant, tokens = ("quiet", 400) if number % 11 == 0 else ("loud", 150)
        hall.accept(tenant=tenant, prompt_tokens=tokens, prompt_exact=True)
    hall.seated()
    while sum(t.phase is Phase.QUEUED and t.identity.tenant == "quiet" for t in hall.tickets):
        for ticket in [t for t in hall.tickets if t.phase is Phase.DISPATCHED]:
            output_tokens = 300 if ticket.identity.tenant == "quiet" else 60
            usage = Usage(ticket.prompt_tokens, 0, output_tokens)
            hall.finish(ticket, usage=usage)
            service[ticket.identity.tenant] += ticket.prompt_tokens + 2 * output_tokens
        hall.seated()
        hall.tickets = [t for t in hall.tickets if t.phase is not Phase.ENDED]
    assert service["loud"] == pytest.approx(service["quiet"], rel=0.05)


def test_tenants_are_served_by_their_weights() -> None:
    tenants = {"big": TenantSettings(weight=2.0)}
    hall = Hall(Settings(default=PoolSettings(cap=1), tenants=tenants))
    hall.open(p="a")
    for _ in range(60):
        hall.accept(tenant="big", prompt_tokens=100)
        hall.accept(tenant="small", prompt_tokens=100)
    seated = Counter(ticket.identity.tenant for _ in range(60) for ticket in serve_next(hall))
    assert 38 <= seated["big"] <= 42


def test_ten_thousand_new_tenants_leave_nothing_behind_and_starve_nobody() -> None:
    hall = Hall(limited(cap=1, queue_requests_max=200))
    hall.open(p="a")
    hall.seat()
    polite = [hall.accept(tenant="polite") for _ in range(90)]
    said: Counter[Outcome] = Counter()
    served = 0
    for number in range(10_000):
        if hall.waiting() >= 200:
            said[refused(hall, tenant=f"x{number}").outcome] += 1
        else:
            hall.accept(tenant=f"x{number}")
        if number % 50 == 0:
            served += len(serve_next(hall))
            hall.tickets = [t for t in hall.tickets if t.phase is not Phase.ENDED]
    assert said.keys() == {Outcome.QUEUE_FULL}
    band = hall.gateway._pools["p"].queue._bands["default"]
    assert len(band._flows) <= 200 + 2 * FLOWS_KEPT
    assert served == 200
    assert all(
        ticket.outcome in (None, Outcome.COMPLETED) for ticket in polite
    )  # nobody was put out for them
    assert polite[1].outcome is Outcome.COMPLETED
    for ticket in hall.tickets:
        hall.finish(ticket, Outcome.CLIENT_GONE)
    queue_is_empty(hall)


# -- a full queue -----------------------------------------------------------------------------------


def test_a_full_queue_puts_out_the_newest_of_the_lowest_for_a_higher_band() -> None:
    hall = banded(cap=1, queue_requests_max=10)
    hall.seat()
    batch = [hall.accept(band="batch") for _ in range(9)]
    assert refused(hall, band="batch").outcome is Outcome.QUEUE_FULL
    chat = [hall.accept()]
    assert hall.release() == []
    for last in reversed(batch):
        chat.append(hall.accept())
        [stop] = hall.release()
        assert isinstance(stop, Stop)
        assert (stop.ticket, stop.outcome) == (last, Outcome.EVICTED)
        assert 11.0 <= (stop.retry_after_s or 0.0) <= 11 * 1.25  # of a second each, behind ten
        assert hall.ended(last) == [Outcome.EVICTED]
        assert hall.waiting() == 10
    assert refused(hall).outcome is Outcome.QUEUE_FULL
    assert [ticket.phase for ticket in chat] == [Phase.QUEUED] * 10


def test_bytes_stay_within_their_bound_though_large_bodies_take_the_place_of_small_ones() -> None:
    hall = banded(cap=1, queue_bytes_max=1_000_000)
    hall.seat()
    hall.accept(band="batch", body_bytes=100_000)
    batch = [hall.accept(band="batch", body_bytes=100_000) for _ in range(8)]
    assert refused(hall, band="batch", body_bytes=100_000).outcome is Outcome.QUEUE_FULL
    hall.accept(body_bytes=350_000)
    assert hall.gateway._pools["p"].queue.body_bytes <= 1_000_000
    assert [stop.ticket for stop in hall.release() if isinstance(stop, Stop)] == batch[:-4:-1]


def drain(hall: Hall) -> None:
    while any(serve_next(hall)):
        pass


def leave(hall: Hall) -> None:
    for ticket in hall.tickets[::-1]:
        hall.finish(ticket, Outcome.CLIENT_GONE)


def wait_in_vain(hall: Hall) -> None:
    hall.now += 3600.0
    hall.release()


def lose_the_pool(hall: Hall) -> None:
    hall.address()
    hall.release()


def be_put_out(hall: Hall) -> None:
    while hall.gateway._pools["p"].queue._bands["batch"].waiting:
        hall.accept(body_bytes=10_000)
    leave(hall)


def change_bands(hall: Hall) -> None:
    hall.set(Settings(default=PoolSettings(cap=1), bands=(BandSettings("other"),)))
    drain(hall)


@pytest.mark.parametrize("way", [drain, leave, wait_in_vain, lose_the_pool, be_put_out, change_bands])
def test_every_counter_is_nought_after_every_way_out(way: Callable[[Hall], None]) -> None:
    hall = banded(cap=1, queue_bytes_max=500_000)
    hall.seat()
    for number in range(50):
        if number < 45:
            hall.accept(band="batch" if number % 2 else "chat", tenant=f"t{number % 3}", body_bytes=10_000)
    for ticket in hall.tickets[10:20]:
        hall.finish(ticket, Outcome.CLIENT_GONE)
    hall.release()
    way(hall)
    queue_is_empty(hall)


# -- early refusal ----------------------------------------------------------------------------------


def busy(hall: Hall, waiting: int, every_s: float = 1.0) -> None:
    """One place from which somebody goes each second, while so many wait."""
    for _ in range(waiting + 1):
        hall.accept()
    for _ in range(10):
        hall.accept()
        hall.seated()
        hall.now += every_s
        serve_next(hall)


def test_who_would_wait_longer_than_it_can_is_told_so_at_once() -> None:
    hall = Hall(limited(cap=1, queue_wait_s=100.0))
    hall.open(p="a")
    busy(hall, waiting=20)
    wait_s = hall.waiting() + 1
    refusal = refused(hall, deadline_s=wait_s)
    assert refusal.outcome is Outcome.DEADLINE_UNMEETABLE
    assert 0.9 * wait_s <= (refusal.retry_after_s or 0.0) <= 1.1 * 1.25 * wait_s
    assert hall.accept(deadline_s=2.0 * wait_s).phase is Phase.QUEUED


def test_nobody_is_refused_early_where_no_pace_is_known() -> None:
    hall = Hall(limited(cap=1))
    hall.open(p="a")
    hall.seat()
    for _ in range(100):
        hall.accept(deadline_s=0.1)


def test_nobody_is_refused_early_where_nobody_waits() -> None:
    hall = Hall(limited(cap=1, queue_wait_s=1000.0))
    hall.open(p="a")
    busy(hall, waiting=20, every_s=3.0)
    drain(hall)
    hall.seat()
    assert hall.accept(deadline_s=0.1).phase is Phase.QUEUED


def test_a_band_in_which_nobody_waits_is_not_shut_by_what_it_once_waited() -> None:
    hall = banded(cap=1, queue_wait_s=1000.0)
    busy(hall, waiting=20, every_s=3.0)
    drain(hall)
    hall.seat(band="batch")
    for _ in range(3):
        hall.accept(band="batch")
    assert hall.accept(deadline_s=0.1).band == "chat"


# -- KV cache and unread prompts --------------------------------------------------------------------


def with_kv(kv_tokens: int, hosts: str = "a", **limits: object) -> Hall:
    hall = Hall(limited(kv_reserve=0.0, **limits))
    hall.address(p=hosts)
    for host in hosts:
        hall.probe(f"p/{host}:1", facts=Facts(kv_tokens=kv_tokens))
    return hall


def prompt(hall: Hall, tokens: int, tenant: str = "t") -> Ticket:
    return hall.accept(prompt_tokens=tokens, prompt_exact=True, tenant=tenant)


def test_no_more_is_seated_than_the_cache_holds() -> None:
    hall = with_kv(1000)
    first, second, third = (prompt(hall, tokens) for tokens in (600, 400, 1))
    assert hall.seated() == [first, second]
    assert hall.endpoint("p/a:1").reserved == 1000
    hall.finish(first)
    assert hall.seated() == [third]


def test_a_silent_prefill_keeps_its_reservation_as_long_as_it_takes() -> None:
    hall = with_kv(1000, queue_wait_s=3600.0)
    long = prompt(hall, 900)
    hall.seated()
    hall.gateway.sent(long.legs[0], hall.now)
    behind = prompt(hall, 200)
    for _ in range(60):
        hall.now += 10.0
        assert hall.release() == []
        assert hall.endpoint("p/a:1").reserved == 900
    hall.gateway.answered(long.legs[0], hall.now)
    hall.finish(long)
    assert hall.seated() == [behind]


def test_what_an_answer_takes_more_is_not_given_to_others() -> None:
    hall = with_kv(1000)
    leg = hall.seat(prompt_tokens=500, prompt_exact=True)
    hall.gateway.progress(leg, 400, hall.now)
    assert hall.endpoint("p/a:1").reserved == 900
    prompt(hall, 200)
    assert hall.seated() == []
    assert hall.fail(leg) is False
    assert len(hall.seated()) == 1


def test_others_pass_one_that_is_too_large_for_a_while_then_an_endpoint_is_kept_for_it() -> None:
    hall = with_kv(1000, hosts="ab", queue_wait_s=100.0)
    running = [prompt(hall, tokens) for tokens in (600, 700)]
    hall.seated()
    large = prompt(hall, 800)
    own = prompt(hall, 100)  # of the same tenant: served in its order
    passing = [prompt(hall, 100, "other")]
    assert hall.seated() == passing
    hall.now += HOLD_S - 0.1
    passing.append(prompt(hall, 100, "other"))
    assert hall.seated() == passing[1:]
    hall.now += 0.1
    kept, other = hall.endpoint("p/a:1"), hall.endpoint("p/b:1")
    assert (kept.reserved, other.reserved) == (700, 800)
    late = [prompt(hall, 50, "other") for _ in range(6)]
    seated = hall.seated()
    assert seated == late[:4]
    assert all(ticket.legs[0].endpoint is other for ticket in seated)
    for ticket in (*running, *passing):
        if ticket.legs[0].endpoint is kept:
            hall.finish(ticket)
    assert hall.seated()[:2] == [large, own]
    assert large.legs[0].endpoint is kept
    assert not hall.gateway._pools["p"].queue.held_at


def test_an_endpoint_is_kept_for_one_with_an_adapter_too() -> None:
    hall = Hall(limited(saturation="kv-tokens", kv_reserve=0.0, queue_wait_s=100.0))
    hall.address(p="ab")
    hall.probe("p/a:1", facts=Facts(kv_tokens=1000, adapters=("x",)))
    hall.probe("p/b:1", facts=Facts(kv_tokens=1000))
    kept, other = hall.endpoint("p/a:1"), hall.endpoint("p/b:1")
    running = [prompt(hall, 700), prompt(hall, 700)]
    assert hall.seated() == running
    large = hall.accept(prompt_tokens=800, prompt_exact=True, adapter="x")
    passes = prompt(hall, 1, "other")
    assert hall.seated() == [passes]
    hall.now += HOLD_S
    small = [prompt(hall, 149, "other") for _ in range(3)]
    assert hall.seated() == small[:2]
    assert all(ticket.legs[0].endpoint is other for ticket in small[:2])
    hall.finish(next(t for t in running if t.legs[0].endpoint is kept))
    assert large in hall.seated()


def test_new_settings_give_who_waits_the_rank_of_its_band() -> None:
    hall = banded(cap=1)
    hall.seat()
    chat, batch = hall.accept(), hall.accept(band="batch")
    assert (chat.rank, batch.rank) == (0, 1)
    hall.set(Settings(default=PoolSettings(cap=1), bands=(BATCH, CHAT)))
    assert (chat.rank, batch.rank) == (1, 0)
    assert serve_next(hall) == [batch]


def test_new_settings_give_who_came_just_now_the_rank_of_its_band() -> None:
    hall = banded(cap=1)
    newcomer = hall.accept()
    hall.set(Settings(default=PoolSettings(cap=1), bands=(BATCH, CHAT)))
    assert newcomer.rank == 1
    assert hall.seated() == [newcomer]


def test_others_pass_when_the_one_that_a_place_was_kept_for_leaves() -> None:
    hall = with_kv(1000)
    prompt(hall, 700)
    hall.seated()
    large, passes = prompt(hall, 800), prompt(hall, 100, "other")
    assert hall.seated() == [passes]
    hall.now += HOLD_S
    small = prompt(hall, 100, "other")
    assert hall.seated() == []
    hall.finish(large, Outcome.CLIENT_GONE)
    assert hall.seated() == [small]


def test_a_first_token_makes_room_for_the_next_prompt() -> None:
    hall = Hall(limited(ttft_s=2.0))
    hall.open(p="a")
    leg = hall.seat(prompt_tokens=int(hall.endpoint("p/a:1").speed), prompt_exact=True)
    hall.gateway.sent(leg, hall.now)
    second = hall.accept(prompt_tokens=100, prompt_exact=True)
    hall.release()
    hall.now += 1.0  # by the clock it has been read
    assert hall.seated() == []
    hall.gateway.answered(leg, hall.now)
    assert hall.seated() == [second]


def test_a_place_that_was_not_taken_after_all_is_free() -> None:
    hall = Hall(limited(cap=1))
    hall.open(p="ab")
    leg, _ = hall.seat(), hall.seat()
    waiting = hall.accept()
    assert hall.seated() == []
    hall.gateway.sent(leg, hall.now, "p/b:1")
    assert hall.seated() == [waiting]


@pytest.mark.parametrize("band", ["chat", "batch"])
def test_prompts_beyond_what_can_be_read_in_time_wait_here_until_a_first_token(band: str) -> None:
    hall = banded(ttft_s=2.0)
    rate = int(hall.endpoint("p/a:1").speed)
    leg = hall.seat(prompt_tokens=rate, prompt_exact=True)  # a second to read
    second = hall.accept(prompt_tokens=100, prompt_exact=True, band=band)
    assert hall.seated() == []
    assert hall.gateway.next_wakeup() == second.queue_deadline  # time alone makes no room
    hall.now += 0.9
    hall.gateway.answered(leg, hall.now)
    assert hall.seated() == [second]


def test_who_has_waited_past_its_goal_is_not_seated_any_more() -> None:
    hall = Hall(limited(cap=1, ttft_s=2.0))
    hall.open(p="a")
    leg = hall.seat()
    late = hall.accept(prompt_tokens=100, prompt_exact=True)
    hall.release()
    hall.now = late.queue_deadline - 0.001
    hall.endpoint("p/a:1").speed = 10.0  # it turned out to be slower than thought
    hall.finish(leg.ticket)
    [stop] = hall.release()
    assert isinstance(stop, Stop)
    assert (stop.ticket, stop.outcome) == (late, Outcome.QUEUE_DEADLINE)
    queue_is_empty(hall)


def test_places_left_to_a_higher_band_are_not_lost_to_one_that_is_owed_some() -> None:
    hall = banded(CHAT, BandSettings("batch", share_min=0.5), cap=50)
    for _ in range(49):
        hall.seat()
    hall.accept(band="batch", prompt_tokens=100)
    hall.gateway._pools["p"].queue.settle_in()
    hall.gateway._pools["p"].queue._bands["batch"].credit = 100.0
    chat = hall.accept(prompt_tokens=100)
    assert hall.seated() == [chat]


# -- metrics of engines -----------------------------------------------------------------------------


def test_metrics_that_are_old_or_never_came_stop_nobody() -> None:
    hall = Hall(limited(saturation="utilization"))
    hall.open(p="abc")
    for host in "ab":
        hall.gateway.update(Observed(f"p/{host}:1", Load(waiting=99, kv_use=1.0)), hall.now)
    assert [hall.seat().endpoint.name for _ in range(3)] == ["p/c:1"] * 3  # the others are full by their word
    hall.now += 60.0
    assert {hall.seat().endpoint.name for _ in range(2)} == {"p/a:1", "p/b:1"}


def test_a_cap_left_to_us_begins_at_the_engine_s_slots_and_follows_how_it_fares() -> None:
    hall = Hall(limited(cap=0, tpot_s=0.05))
    hall.address(p="a")
    hall.probe("p/a:1", facts=Facts(slots=4))
    legs = [hall.seat() for _ in range(4)]
    waiting = hall.accept()
    assert hall.seated() == []
    stream(hall, legs[0], tpot_s=0.01)
    assert hall.endpoint("p/a:1").cap == 5
    hall.accept()
    assert waiting in hall.seated()
    assert hall.running() == {"p/a:1": 5}
    hall.now += 10.0
    hall.gateway.update(Observed("p/a:1", Load(waiting=3)), hall.now)
    assert hall.endpoint("p/a:1").cap == 4


def stream(hall: Hall, leg: Leg, tpot_s: float, tokens: int = 101) -> None:
    hall.gateway.sent(leg, hall.now)
    hall.gateway.answered(leg, hall.now)
    hall.now += tpot_s * (tokens - 1)
    hall.finish(leg.ticket, usage=Usage(10, 0, tokens))


def test_an_endpoint_far_slower_than_its_peer_gets_far_less() -> None:
    hall = Hall()
    hall.open(p="ab")
    for _ in range(2 * TOLD_MIN + 2):
        leg = hall.seat()
        stream(hall, leg, tpot_s=1.0 if leg.endpoint.name == "p/a:1" else 0.01)
    for _ in range(40):
        hall.seat()
    assert hall.running()["p/a:1"] <= 1


# -- repeats and rests ------------------------------------------------------------------------------


def fail_all(hall: Hall, count: int) -> int:
    """So many requests, all answered with 500 wherever they go; how many were repeated."""
    repeated = 0
    for _ in range(count):
        leg = hall.seat()
        while hall.fail(leg, FailureKind.STATUS_5XX):
            repeated += 1
            [ticket] = hall.seated()
            leg = ticket.legs[0]
        hall.finish(leg.ticket, Outcome.FAILED_UPSTREAM)
    return repeated


def test_an_outage_is_not_multiplied_by_repeats() -> None:
    hall = Hall(Settings(attempts_max=5, health=HealthSettings(failures_max=1000)))
    hall.open(p="abcd")
    assert 10 <= fail_all(hall, 100) <= 10 + 10
    hall.now += 5.0
    assert fail_all(hall, 100) <= 10
    hall.now += 60.0
    assert 10 <= fail_all(hall, 100) <= 10 + 10


def resting(hall: Hall) -> list[str]:
    endpoints: list[Endpoint] = list(hall.gateway.table.by_name.values())
    return [endpoint.name for endpoint in endpoints if endpoint.rests_until > hall.now]


def test_an_engine_that_asks_for_a_rest_gets_it_and_another_one_the_work() -> None:
    hall = Hall()
    hall.open(p="ab")
    leg = hall.seat()
    assert hall.fail(leg, FailureKind.STATUS_429, retry_after_s=7.0)
    assert resting(hall) == [leg.endpoint.name]
    assert hall.seated() == [leg.ticket]
    assert {hall.seat().endpoint.name for _ in range(20)} == {leg.ticket.legs[0].endpoint.name}
    hall.now += 7.0
    assert hall.seat().endpoint is leg.endpoint


def test_the_only_engine_rests_and_the_timer_rings_at_its_end() -> None:
    hall = Hall()
    hall.open(p="a")
    leg = hall.seat()
    assert not hall.fail(leg, FailureKind.STATUS_429, retry_after_s=7.0)
    waiting = hall.accept()
    assert hall.release() == []
    assert hall.gateway.next_wakeup() == 107.0
    hall.now = 106.999
    assert hall.release() == []
    hall.now = 107.0
    assert hall.seated() == [waiting]


def test_the_timer_rings_at_the_end_of_a_rest_for_who_comes_where_nobody_waits() -> None:
    hall = Hall(limited(cap=1), retry=False)
    hall.open(p="ab")
    first, second = hall.seat(), hall.seat()
    waiting = hall.accept()
    assert not hall.fail(first, FailureKind.STATUS_429, retry_after_s=7.0)
    hall.finish(first.ticket, Outcome.ENGINE_OVERLOADED)
    assert hall.release() == []
    hall.finish(second.ticket)
    assert hall.seated() == [waiting]
    newcomer = hall.accept()
    assert hall.release() == []
    assert hall.gateway.next_wakeup() == 107.0
    hall.now = 107.0
    assert hall.seated() == [newcomer]


def test_who_comes_while_all_rest_longer_than_it_can_wait_is_told_at_once() -> None:
    hall = Hall(limited(queue_wait_s=30.0))
    hall.open(p="ab")
    for rest_s in (40.0, 50.0):
        hall.fail(hall.seat(), FailureKind.STATUS_429, retry_after_s=rest_s)
    hall.release()
    refusal = refused(hall)
    assert refusal.outcome is Outcome.DEADLINE_UNMEETABLE
    assert 40.0 <= (refusal.retry_after_s or 0.0) <= 50.0
    hall.now += 20.0
    hall.accept()  # 20 s are left, and 30 s to wait


@pytest.mark.parametrize(
    ("kind", "asked_s", "rests_s"),
    [
        (FailureKind.STATUS_5XX, 7.0, 7.0),
        (FailureKind.STATUS_429, 86_400.0, 60.0),
        (FailureKind.STATUS_429, 0.0, 0.0),
        (FailureKind.STATUS_429, None, 0.0),
        (FailureKind.TRUNCATED, 7.0, 0.0),
    ],
)
def test_a_rest_is_bounded_and_only_for_who_asks(
    kind: FailureKind, asked_s: float | None, rests_s: float
) -> None:
    hall = Hall()
    hall.open(p="ab")
    leg = hall.seat()
    hall.fail(leg, kind, retry_after_s=asked_s)
    assert max(0.0, leg.endpoint.rests_until - hall.now) == rests_s


def test_of_two_rests_the_later_end_holds() -> None:
    hall = Hall()
    hall.open(p="a")
    legs = [hall.seat() for _ in range(3)]
    ends = []
    for leg, asked_s in zip(legs, (30.0, 2.0, 40.0), strict=True):
        hall.fail(leg, FailureKind.STATUS_429, retry_after_s=asked_s)
        ends.append(leg.endpoint.rests_until - hall.now)
    assert ends == [30.0, 30.0, 40.0]


def test_nobody_is_refused_for_the_pause_between_two_generations_of_answers() -> None:
    """Fifty at once take twenty seconds, all together: who comes in the middle need not wait for ever."""
    hall = banded(BandSettings("chat"), cap=50, queue_wait_s=100.0)
    waited_s = []
    for _ in range(200):
        hall.accept()
        hall.release()
    for _generation in range(8):
        for _second in range(19):
            hall.now += 1
            hall.accept()
            hall.release()
        hall.now += 1
        waited_s += [hall.now - ticket.arrival for ticket in serve_next(hall)]
    assert 60 < max(waited_s) <= 80
    assert not any(ticket.outcome is Outcome.QUEUE_DEADLINE for ticket in hall.tickets)
