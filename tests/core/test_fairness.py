"""Who is next within a band: fair service between tenants, and what is remembered of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from maitred.core.fairness import CREDIT_MAX, FLOWS_KEPT, Band, cost_of
from maitred.core.queue import PoolQueue
from maitred.core.words import Api, BandSettings, Identity, PoolSettings, Request, Ticket

TOKEN = PoolSettings(fairness="token")
TURNS = PoolSettings(fairness="round-robin")
STRICT = PoolSettings(fairness="strict")


class Line:
    """A queue of one pool, before an endpoint that takes one ticket after the other.

    What serving costs is the ticket's `prompt_tokens`.
    """

    def __init__(self, limits: PoolSettings = TOKEN, *bands: BandSettings) -> None:
        self.queue, self.limits = PoolQueue(bands or (BandSettings("default"),)), limits
        self.service: Counter[str] = Counter()
        self.now = 0.0

    def push(self, tenant: str, tokens: int = 100, *, weight: float = 1.0, wait_s: float = 1e9) -> Ticket:
        self.now += 1.0
        request = Request(f"r{self.now}", Api.CHAT, "m", "p", prompt_tokens=tokens)
        ticket = Ticket(request, Identity(tenant), self.now, self.now + wait_s, self.now + wait_s)
        ticket.weight, ticket.prompt_tokens = weight, tokens
        self.queue.push(ticket, self.limits)
        return ticket

    def serve(self) -> Ticket:
        """Seat who is next."""
        ticket = next(iter(self.queue.heads()))
        self.queue.serve(ticket, self.now)
        self.service[ticket.identity.tenant] += ticket.prompt_tokens
        ticket.attempts += 1
        return ticket

    def order(self, count: int) -> str:
        """The tenants of the next so many."""
        return "".join(self.serve().identity.tenant for _ in range(count))

    @property
    def band(self) -> Band:
        return self.queue._bands["default"]


def test_an_output_token_costs_two_of_the_prompt() -> None:
    assert cost_of(100, 50) == 200


def test_equal_tenants_get_equal_token_service_though_one_sends_ten_times_as_much() -> None:
    line = Line()
    for number in range(1000):  # ten requests of the first for each of the second, of other sizes
        line.push("a", 50 + number % 7 * 30)
        if number % 10 == 0:
            line.push("b", 300 + number % 3 * 200)
    while line.band._flows["b"].waiting:  # both are backlogged
        line.serve()
    assert line.service["a"] == pytest.approx(line.service["b"], rel=0.05)


def test_service_goes_by_weight() -> None:
    line = Line()
    for _ in range(300):
        line.push("a", weight=2.0)
        line.push("b", weight=1.0)
    line.order(300)
    assert line.service["a"] == pytest.approx(2 * line.service["b"], rel=0.02)


def test_round_robin_counts_requests_whatever_they_cost() -> None:
    line = Line(TURNS)
    for _ in range(10):
        line.push("a", 10_000)
        line.push("b", 1)
    assert line.order(8) == "abababab"


def test_strict_tells_no_tenants_apart() -> None:
    line = Line(STRICT)
    for tenant in "aaabab":
        line.push(tenant)
    assert line.order(6) == "aaabab"
    assert not line.band._flows


def test_a_tenant_is_served_in_the_order_of_its_deadlines_where_the_settings_say_so() -> None:
    line = Line(PoolSettings(order="deadline"))
    late, soon, between = (line.push("a", wait_s=wait_s) for wait_s in (90.0, 10.0, 50.0))
    assert [line.serve() for _ in range(3)] == [soon, between, late]


def test_a_new_weight_reaches_those_of_its_tenant_who_wait() -> None:
    line = Line()
    for _ in range(40):
        line.push("a")
        line.push("b")
    line.push("a", weight=3.0)
    line.service.clear()
    line.order(20)
    assert line.service["a"] == pytest.approx(1500, abs=100)
    assert line.queue._bands["default"].weight == 4.0


def test_a_newcomer_starts_where_the_others_are() -> None:
    line = Line()
    for _ in range(50):
        line.push("a")
        line.push("b")
    line.order(40)
    for _ in range(10):
        line.push("c")
    line.service.clear()
    line.order(15)
    assert all(400 <= service <= 600 for service in line.service.values())  # a third each, nothing owed


def test_who_was_away_is_owed_nothing_and_still_owes_what_it_had() -> None:
    line = Line()
    line.push("a", 1000)
    for _ in range(30):
        line.push("b")
    assert line.order(2) == "ab"
    line.push("a", 1000)  # it has had a thousand tokens, and has to wait until the other has too
    assert line.order(8) == "bbbbbbbb"
    assert "a" in line.order(6)


def test_small_requests_one_at_a_time_get_their_part_beside_a_backlog() -> None:
    line = Line()
    for _ in range(50):
        line.push("a", 1000)
    for _ in range(100):
        line.push("b", 100)  # only ever one of it waits
        while line.serve().identity.tenant != "b":
            pass
    assert line.service["b"] >= line.service["a"] / 3


def test_what_it_did_cost_counts_in_the_end() -> None:
    line = Line()
    for _ in range(20):
        line.push("a")
        line.push("b")
    first, second = line.serve(), line.serve()
    line.queue.settle(first, 500.0)  # thought to be 100
    line.queue.settle(second, 100.0)
    assert line.order(5) == "bbbba"
    line.queue.settle(first, 9999.0)  # once
    assert line.band._flows["a"].tag == 600.0


def test_a_retry_keeps_its_place_and_is_charged_once() -> None:
    line = Line()
    for _ in range(4):
        line.push("a")
        line.push("b")
    again = line.serve()
    tag = line.band._flows["a"].tag
    again.lane = ("e",)
    line.queue.push(again, TOKEN)
    assert line.serve().identity.tenant == "b"
    assert line.serve() is again
    assert line.band._flows["a"].tag == tag


# -- tenants without end ----------------------------------------------------------------------------


def flood(line: Line, count: int, fresh: int) -> int:
    """So many tenants that come once, `fresh` of them at a time; how many were served for it."""
    served = waiting = 0
    for number in range(count):
        line.push(f"x{number}")
        waiting += 1
        while waiting > fresh:
            waiting -= line.serve().identity.tenant != "polite"
            served += 1
    return served


def test_an_endless_row_of_new_tenants_starves_nobody() -> None:
    line = Line()
    for _ in range(1000):
        line.push("polite")
    served = flood(line, 2000, fresh=9)  # the polite one is one of ten
    assert line.service["polite"] / 100 == pytest.approx(served / 10, rel=0.15)


@pytest.mark.parametrize("fresh", [9, 3000])
def test_an_endless_row_of_new_tenants_leaves_no_memory(fresh: int) -> None:
    line, most = Line(), 0
    line.push("polite", 1_000_000)
    for _ in range(3):
        flood(line, 10_000, fresh)
        most = max(most, len(line.band._flows), len(line.band._turns) // 4)
        while line.queue.waiting:
            line.serve()
    assert most <= 2 * (fresh + FLOWS_KEPT)
    assert not line.band._flows
    assert not line.band._turns
    assert not line.band._places
    assert (line.band.waiting, line.band.weight) == (0, 0.0)


def test_forgetting_is_not_done_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    line, times = Line(), 0
    forget: Callable[[Band], None] = Band._forget

    def counted(band: Band) -> None:
        nonlocal times
        times += 1
        forget(band)

    monkeypatch.setattr(Band, "_forget", counted)
    for _ in range(30):
        line.push("polite")
    flood(line, 20_000, fresh=9)
    assert 1 <= times <= 20_000 / FLOWS_KEPT + 1


def test_turns_that_came_to_nothing_are_swept_out() -> None:
    line = Line()
    line.push("stays")
    for _ in range(2000):
        line.queue.remove(line.push("leaves"))
    assert len(line.band._turns) <= 100


# -- guaranteed shares ------------------------------------------------------------------------------


class Bands(Line):
    """Two bands; the lower one has a tenth guaranteed."""

    def __init__(self, share_min: float = 0.1) -> None:
        super().__init__(TOKEN, BandSettings("high"), BandSettings("low", share_min=share_min))

    def wait(self, tenant: str, tokens: int = 100) -> None:
        """`h` waits in the high band, `l` in the low one."""
        self.now += 1.0
        request = Request(f"r{self.now}", Api.CHAT, "m", "p", prompt_tokens=tokens)
        ticket = Ticket(request, Identity(tenant), self.now, 1e9)
        ticket.band, ticket.prompt_tokens = {"h": "high", "l": "low"}[tenant], tokens
        self.queue.push(ticket, self.limits)


def test_bands_are_served_in_strict_order() -> None:
    line = Bands(share_min=0.0)
    for tenant in "lhlhlh":
        line.wait(tenant)
    assert line.order(6) == "hhhlll"


@pytest.mark.parametrize("tokens", [20, 100, 700])
def test_a_lower_band_gets_its_guaranteed_share_of_the_tokens(tokens: int) -> None:
    line = Bands()
    for _ in range(3000):
        line.wait("h", 100)
        line.wait("l", tokens)
    while sum(line.service.values()) < 100_000:
        line.serve()
    assert line.service["l"] / sum(line.service.values()) == pytest.approx(0.1, abs=0.015)


def test_a_band_that_had_the_place_to_itself_is_neither_owed_nor_owes_for_it() -> None:
    line = Bands()
    for _ in range(60):
        line.wait("l")
    line.order(30)
    for _ in range(60):
        line.wait("h")
    assert 3 <= line.order(40).count("l") <= 5


def test_what_a_band_is_owed_is_bounded() -> None:
    line = Bands()
    line.wait("l")
    for _ in range(100):
        line.wait("h", 1_000_000)
    while line.queue._bands["high"].waiting:  # the low one fits nowhere meanwhile
        ticket = next(line.queue._bands["high"].heads())
        line.queue.serve(ticket, line.now)
    assert line.queue._bands["low"].credit == CREDIT_MAX
