"""One pool: what a ticket is thought to need, what is learned from answers, who is next."""

from __future__ import annotations

import pytest

from maitred.core.outcome import Outcome, Refusal
from maitred.core.pool import RATIO_MAX, REUSE_GUESS, Pool
from maitred.core.predict import OUTPUT_GUESS
from maitred.core.rights import terms
from maitred.core.saturation import CAP_START
from maitred.core.tokens import NoTokens
from maitred.core.words import (
    Api,
    BandSettings,
    Endpoint,
    EndpointState,
    Facts,
    Identity,
    KvEvents,
    Leg,
    PoolSettings,
    Request,
    Settings,
    Ticket,
    Usage,
)

BAND = BandSettings("default")
NOW = 1000.0


def pool(**limits: object) -> Pool:
    return Pool("p", PoolSettings(**limits), (BAND,))  # type: ignore[arg-type]


def ticket(of: Pool, **more: object) -> Ticket:
    request = Request(**{"id": "r", "api": Api.CHAT, "model": "m", "pool": "p"} | more)  # type: ignore[arg-type]
    return of.ticket(request, Identity("t"), terms(Settings(), "p", of.limits, "", Identity("t")), NOW)


def ended(of: Pool, usage: Usage, **more: object) -> None:
    made = ticket(of, **more)
    of.ended(made, usage)


def test_what_a_ticket_needs_is_its_prompt_and_part_of_its_answer() -> None:
    half = pool(kv_reserve=0.5)
    assert ticket(half, prompt_tokens=100, prompt_exact=True).need == 100 + OUTPUT_GUESS / 2
    assert ticket(half, prompt_tokens=100, prompt_exact=True, output_tokens_max=40).need == 120
    assert ticket(half, prompt_tokens=100, output_tokens_max=40, sequences=3).need == 160
    assert ticket(half, prompt_tokens=100, api=Api.EMBEDDINGS).need == 100


def test_a_prompt_is_estimated_from_its_bytes_where_nobody_counted_it() -> None:
    made = ticket(pool(), body_bytes=4000)
    assert made.prompt_tokens == 1000


def test_what_it_is_thought_to_bring() -> None:
    some = pool()
    assert ticket(some, prompt_tokens=100, output_tokens_max=40).expected == 40


def test_estimates_are_mended_by_what_engines_count_and_exact_ones_are_not() -> None:
    some = pool()
    for _ in range(200):  # this client's language has two tokens where we count one
        ended(some, Usage(2 * 1000, 0, 10), prompt_tokens=1000)
    assert ticket(some, prompt_tokens=1000).prompt_tokens == pytest.approx(2000, rel=0.01)
    assert ticket(some, prompt_tokens=1000, prompt_exact=True).prompt_tokens == 1000


def test_estimates_are_mended_no_further_by_answers_that_come_together() -> None:
    some = pool()
    made = [ticket(some, prompt_tokens=1000) for _ in range(300)]
    for each in made:  # all were estimated before anything was known
        some.ended(each, Usage(2 * 1000, 0, 10))
    assert ticket(some, prompt_tokens=1000).prompt_tokens == pytest.approx(2000, rel=0.01)
    for each in made:
        some.ended(each, Usage(2 * 1000, 0, 10))
    assert ticket(some, prompt_tokens=1000).prompt_tokens == pytest.approx(2000, rel=0.01)


def test_how_far_estimates_are_mended_is_bounded() -> None:
    some = pool()
    for _ in range(1000):
        ended(some, Usage(10**9, 0, 10), prompt_tokens=10)
    assert ticket(some, prompt_tokens=1000).prompt_tokens <= RATIO_MAX * 1000


def test_what_engines_have_cached_needs_no_room() -> None:
    some = pool(kv_reserve=0.0, routing="least-requests")  # which asks of no prompt who has it
    for _ in range(200):
        ended(some, Usage(1000, 800, 10), prompt_tokens=1000, prompt_exact=True)
    assert ticket(some, prompt_tokens=1000, prompt_exact=True).need == pytest.approx(200, abs=5)


def test_figures_that_were_counted_here_teach_nothing() -> None:
    some = pool()
    ended(some, Usage(9999, 0, 9999, exact=False), prompt_tokens=10)
    assert ticket(some).expected == OUTPUT_GUESS
    assert ticket(some, prompt_tokens=1000).prompt_tokens == 1000


def test_a_tenant_pays_for_what_was_not_cached() -> None:
    some = pool()
    made = [ticket(some, prompt_tokens=1000, prompt_exact=True) for _ in range(3)]
    for each in made:
        some.queue.push(each, some.limits)
    some.queue.serve(made[0], NOW)
    flow = made[0].flow
    assert flow.tag == 1000 + 2 * OUTPUT_GUESS
    some.ended(made[0], Usage(1100, 800, 50))
    assert flow.tag == 300 + 2 * 50


def test_answers_asked_for_together_are_predicted_one_by_one() -> None:
    some = pool()
    ended(some, Usage(10, 0, 90), prompt_tokens=10, sequences=3)
    assert ticket(some).expected == 30


def test_a_goal_for_the_first_token_bounds_the_wait_by_the_fastest_engine() -> None:
    some = pool(ttft_s=2.0)
    ejected = Endpoint("x", "p", "", EndpointState.EJECTED, speed=1e9)
    some.endpoints = [endpoint(speed=500.0), endpoint(speed=1000.0), ejected]
    made = ticket(some, prompt_tokens=300, prompt_exact=True)
    assert made.queue_deadline == pytest.approx(NOW + 1.8 - 0.3 - 0.5)
    patient = ticket(some, prompt_tokens=300, prompt_exact=True, deadline_s=0.1)
    assert patient.queue_deadline == NOW + 0.1


def endpoint(**more: object) -> Endpoint:
    return Endpoint("p/a", "p", "", EndpointState.READY, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("cap", "own", "places"), [(4, 0, 4), (0, 9, 9), (0, 0, CAP_START)])
def test_the_time_to_drain_goes_by_all_places(cap: int, own: int, places: int) -> None:
    some = pool(cap=cap)
    some.service_s = 8.0
    for _ in range(9):
        some.queue.push(ticket(some))
    assert some.drain_s(NOW) == 0.0
    some.endpoints = [endpoint(cap=own)]
    assert some.drain_s(NOW) == pytest.approx(10 * 8.0 / places)


def test_the_wait_told_is_not_over_before_the_first_endpoint_has_rested() -> None:
    some = pool(cap=1)
    resting = [endpoint(rests_until=NOW + rest_s) for rest_s in (40.0, 7.0)]
    some.endpoints = resting
    assert some.drain_s(NOW) == pytest.approx(7.5)
    some.endpoints = [*resting, endpoint()]
    assert some.drain_s(NOW) == pytest.approx(1 / 3)


def test_a_refusal_for_want_of_room_tells_the_wait() -> None:
    some = pool(cap=1, queue_requests_max=1)
    some.endpoints = [endpoint(running=1)]
    some.queue.push(ticket(some))
    with pytest.raises(Refusal) as caught:
        some.admit(ticket(some), NOW, lambda wait_s: wait_s + 1000)
    assert caught.value.outcome is Outcome.QUEUE_FULL
    assert caught.value.retry_after_s == 1002.0


def test_the_order_by_deadlines_goes_by_the_settings_and_not_by_the_clients_patience() -> None:
    some = pool(queue_wait_s=30.0)
    patient, hasty = ticket(some), ticket(some, deadline_s=2.0)
    assert (patient.due_at, patient.give_up_at, patient.queue_deadline) == (NOW + 30,) * 3
    assert (hasty.due_at, hasty.give_up_at, hasty.queue_deadline) == (NOW + 30, NOW + 2, NOW + 2)
    some.endpoints = [endpoint(speed=1000.0)]
    patient = ticket(some, ttft_s=2.0)
    assert patient.due_at == patient.queue_deadline < patient.give_up_at == NOW + 30


@pytest.mark.parametrize(("prompt_tokens", "home"), [(160, "p/a"), (161, "")])
def test_who_has_a_tenth_of_a_prompt_is_its_home(prompt_tokens: int, home: str) -> None:
    some, begun = pool(), {"blocks": (1,), "block_tokens": 16}
    assert some.prefixes is not None
    some.prefixes.sent(ticket(some, **begun).request, endpoint())
    made = ticket(some, prompt_tokens=prompt_tokens, prompt_exact=True, **begun | {"blocks": (1, 2)})
    assert (made.cached, made.home) == ({"p/a": 16}, home)
    made.home = "?"
    some.send_home(made)
    assert made.home == home


def test_another_order_or_fairness_reaches_who_waits() -> None:
    some = pool(order="fcfs")
    first, second = ticket(some), ticket(some)
    first.due_at += 60
    for each in (first, second):
        some.queue.push(each, some.limits)
    assert next(some.queue.heads()) is first
    some.apply(PoolSettings(order="deadline"), (BAND,))
    assert next(some.queue.heads()) is second
    assert some.queue.waiting == len(some.queue.all()) == 2
    some.queue.serve(second, NOW)
    some.queue.serve(first, NOW)
    assert some.queue.waiting == 0


def test_a_policy_remembers_so_many_times_what_an_endpoint_holds() -> None:
    of = pool(routing="smg-cache-aware")
    endpoint = Endpoint("p/a:1", "p", "", EndpointState.READY, facts=Facts(kv_tokens=1000))
    prompts = [
        ticket(of, prompt_tokens=800, prompt_exact=True, blocks=(number,), block_tokens=800)
        for number in (1, 2, 3)
    ]

    def known() -> list[bool]:
        assert of.prefixes is not None
        for each in prompts:
            of.prefixes.sent(each.request, endpoint)
        return [bool(of.prefixes.match(each.request)) for each in prompts]

    assert known() == [True, True, True]
    of.apply(PoolSettings(routing="llm-d"), (BAND,))
    assert known() == [False, False, True]


def test_by_what_it_is_known_who_has_a_prompt_and_what_is_wrong_with_that() -> None:
    here, told, silent = pool(), Endpoint("p/a", "p", ""), Endpoint("p/b", "p", "")
    here.blocks.hear(told, KvEvents(told.name, cleared=True))
    blocks = {"blocks": (1, 2), "block_tokens": 16}
    assert here.index(ticket(here, **blocks), told) == ("precise", "")
    assert here.index(ticket(here, **blocks), silent) == ("approximate", "no_events")
    assert here.index(ticket(here), told) == ("approximate", "no_blocks")
    assert here.index(ticket(here, untold=NoTokens.BUSY), told) == ("approximate", "busy")
    here.blocks.hear(told, KvEvents(told.name, lost=True))
    assert here.index(ticket(here, **blocks), told) == ("precise", "lost")
    assert pool(routing="least-requests").index(ticket(here, **blocks), told) == ("none", "")


def test_no_more_of_a_prompt_is_cached_than_it_is_thought_to_have() -> None:
    here, place = pool(), Endpoint("p/a", "p", "")
    for _ in range(200):  # prompts turn out half as long as their bytes say
        ended(here, Usage(500, 0, 10), prompt_tokens=1000)
    request = {"prompt_tokens": 1000, "body_bytes": 4096, "prefix": tuple(range(1, 9))}
    one = ticket(here, **request)
    assert here.prefixes is not None
    here.prefixes.sent(one.request, place)
    here.look_up(one, NOW)
    assert 0 <= one.fresh < one.prompt_tokens // 4
    assert one.need >= 0
    assert one.cached[place.name] <= one.prompt_tokens


def seated(of: Pool, made: Ticket, where: Endpoint, number: int = 1) -> Leg:
    of.queue.push(made)
    return of.seat(made, where, number, NOW)


def test_what_a_seat_takes_is_what_is_not_thought_to_be_there_as_far_as_that_is_believed() -> None:
    of, where = pool(kv_reserve=0.5), Endpoint("p/a:1", "p", "", EndpointState.READY)
    prompt = {"prompt_tokens": 100, "prompt_exact": True, "output_tokens_max": 40, "blocks": (1,)}
    of.prefixes.sent(ticket(of, **prompt, block_tokens=80).request, where)  # type: ignore[union-attr]
    where.kept = 0.5
    leg = seated(of, ticket(of, **prompt, block_tokens=80), where)
    assert (leg.thought, leg.exact, leg.fresh, leg.reserved) == (80, False, 60, 80)
    assert (where.running, where.reserved) == (1, 80)
    of.blocks.hear(where, KvEvents(where.name, cleared=True, stored=(1,)))
    leg = seated(of, ticket(of, **prompt, block_tokens=80), where)
    assert (leg.thought, leg.exact, leg.fresh, leg.reserved) == (80, True, 20, 40)


def test_a_seat_away_from_home_is_a_beginning_and_one_at_home_is_not() -> None:
    of, where = pool(), Endpoint("p/a:1", "p", "", EndpointState.READY)
    seated(of, ticket(of, prompt_tokens=100, blocks=(1,), block_tokens=90), where, 7)
    assert (where.turn, where.cold, where.begun, where.seated) == (7, 7, 1, 1)
    seated(of, ticket(of, prompt_tokens=100, blocks=(1,), block_tokens=90), where, 8)
    assert (where.turn, where.cold, where.begun, where.seated) == (8, 7, 1, 2)


def test_what_part_of_prompts_is_found_in_caches_is_a_moving_mean() -> None:
    of, where = pool(), Endpoint("p/a:1", "p", "", EndpointState.READY)
    assert of.reuse == REUSE_GUESS
    for number in range(3000):
        seated(of, ticket(of, prompt_tokens=100, blocks=(number,), block_tokens=100), where)
    assert of.reuse == pytest.approx(0.0, abs=0.01)
    for _ in range(3000):
        seated(of, ticket(of, prompt_tokens=100, prompt_exact=True, blocks=(9,), block_tokens=100), where)
    assert of.reuse == pytest.approx(1.0, abs=0.01)


def test_who_has_come_just_now_is_one_of_those_who_wait() -> None:
    of = pool(cap=2)
    of.endpoints = [Endpoint("p/a:1", "p", "", EndpointState.READY)]
    of.service_s = 3.0
    assert of.drain_s(NOW) == 1.5
    of.newcomer = ticket(of)
    assert of.drain_s(NOW) == 3.0
