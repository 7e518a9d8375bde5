"""Responses that nobody waits for: polled, streamed, left, resumed, cancelled, and bounded."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from maitred.config.auth import Store
from maitred.config.flow import Rates, Tenant
from maitred.config.responses import Background, Kept, Responses
from maitred.config.tree import Queue
from maitred.core.limits import UNLIMITED, Limits
from maitred.core.outcome import Outcome, Refusal
from maitred.core.rights import limited
from maitred.core.words import Identity
from maitred.responses import job
from maitred.responses.turn import NO_ANSWER
from tests.net.http import Answer, turns
from tests.proxy.upstream import DONE, FINISH, ROLE, USAGE, Plan, chunk, stream, whole, word
from tests.responses.place import (
    CONVERSATIONS,
    RESPONSES,
    Remembering,
    call,
    events_of,
    in_real_time,
    remembering,
    says,
    streams,
    text_of,
    turn,
)

QUICK: dict[str, Any] = {"responses": Responses(background=Background(period_s=0.05))}
SLOW: Plan = [
    *stream(ROLE, word("Hel"), end=()),
    0.3,
    *map(chunk, (word("lo"), FINISH, USAGE, DONE)),
    b"0\r\n\r\n",
]
NEVER: Plan = (1e6,)


async def ended(it: Remembering, id_: str) -> dict[str, Any]:
    """Poll until it is over."""
    while True:
        response: dict[str, Any] = (await it.get(f"{RESPONSES}/{id_}")).json
        if response["status"] not in ("queued", "in_progress"):
            return response
        await asyncio.sleep(0.01)


async def submitted(it: Remembering, **members: Any) -> dict[str, Any]:
    """One that was queued."""
    response = await it.turn(background=True, **members)
    assert response["status"] == "queued"
    return response


async def cancelled(it: Remembering, id_: str) -> Answer:
    return await it.ask(call("POST", f"{RESPONSES}/{id_}/cancel"))


@in_real_time
async def test_it_is_made_and_can_be_gone_on_from(url: str) -> None:
    async with remembering(url, says("Hello"), says("x"), **QUICK) as it:
        queued = await submitted(it)
        response = await ended(it, queued["id"])
        assert (response["status"], text_of(response), response["background"]) == ("completed", "Hello", True)
        assert response["created_at"] == queued["created_at"]
        assert it.rows("jobs") == []
        await it.turn("and?", previous_response_id=response["id"])
        assert it.told.said == [("user", "hi"), ("assistant", "Hello"), ("user", "and?")]


@in_real_time
async def test_a_stream_of_it_goes_to_its_end(url: str) -> None:
    async with remembering(url, SLOW, **QUICK) as it:
        events = events_of(await it.ask(turn(stream=True, background=True)))
        kinds = [event["type"] for event in events]
        assert kinds[:3] == ["response.created", "response.queued", "response.in_progress"]
        assert kinds[-1] == "response.completed"
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert text_of(events[-1]["response"]) == "Hello"


@in_real_time
async def test_who_leaves_it_does_not_stop_it_and_can_resume_without_gap_or_repeat(url: str) -> None:
    async with remembering(url, SLOW, **QUICK) as it:
        client = await it.place.client()
        client.send(turn(stream=True, background=True))
        await client.heard(b"Hel")
        client.leave()
        id_ = it.rows("responses")[0]["id"]
        live = events_of(await it.get(f"{RESPONSES}/{id_}?stream=true&starting_after=1"))
        assert live[0]["type"] == "response.in_progress"
        assert text_of(live[-1]["response"]) == "Hello"
        everything = events_of(await it.get(f"{RESPONSES}/{id_}?stream=true"))
        assert [event["sequence_number"] for event in everything] == list(range(len(everything)))
        assert everything[2:] == live
        for after in range(len(everything) + 1):
            resumed = await it.get(f"{RESPONSES}/{id_}?stream=true&starting_after={after}")
            assert events_of(resumed) == everything[after + 1 :]


@pytest.mark.parametrize("streamed", [False, True])
@in_real_time
async def test_one_that_runs_is_cancelled_and_its_engine_stops(url: str, streamed: bool) -> None:
    plan = stream(ROLE, word("Hel"), end=()) if streamed else NEVER
    async with remembering(url, plan, **QUICK) as it:
        client = await it.place.client()
        client.send(turn(stream=streamed, background=True))
        asked = await it.place.menu.called()
        id_ = it.rows("responses")[0]["id"]
        assert (await cancelled(it, id_)).json["status"] == "cancelled"
        await asked.lost.wait()
        assert (await cancelled(it, id_)).json["status"] == "cancelled"
        assert (await it.get(f"{RESPONSES}/{id_}")).json["status"] == "cancelled"
        if streamed:
            last = events_of(await client.answer())[-1]
            assert (last["type"], last["response"]["status"]) == ("response.failed", "cancelled")
        refused = await it.ask(turn(previous_response_id=id_))
        assert refused.status == 400
        assert it.rows("jobs") == []


@in_real_time
async def test_only_a_few_are_made_at_once_and_those_that_wait_can_be_cancelled(url: str) -> None:
    few: dict[str, Any] = {"responses": Responses(background=Background(period_s=0.05, running_max=1))}
    async with remembering(url, NEVER, **few) as it:
        first, second = await submitted(it), await submitted(it)
        await it.place.menu.called()
        assert (await it.get(f"{RESPONSES}/{second['id']}")).json["status"] == "queued"
        for response in (second, first):
            assert (await cancelled(it, response["id"])).json["status"] == "cancelled"
        assert len(it.place.menu.asked) == 1


@in_real_time
async def test_the_queue_is_bounded(url: str) -> None:
    bound: dict[str, Any] = {"default_tenant": Tenant(responses=Kept(waiting_max=1))}
    few: dict[str, Any] = {"responses": Responses(background=Background(running_max=1))}
    async with remembering(url, NEVER, **bound, **few) as it:
        first = await submitted(it)
        await it.place.menu.called()
        second = await submitted(it)
        refused = await it.ask(turn(background=True))
        assert (refused.status, refused.json["error"]["code"]) == (429, "server_overloaded")
        for response in (second, first):
            await cancelled(it, response["id"])


@in_real_time
async def test_what_is_refused_is_refused_before_it_is_queued(url: str) -> None:
    async with remembering(url, says("x"), **QUICK) as it:
        for members, status in (
            ({"model": "gpt-9"}, 404),
            ({"previous_response_id": "resp_0"}, 404),
            ({"store": False}, 400),
        ):
            assert (await it.ask(turn(background=True, **members))).status == status
        assert it.rows("responses") == it.rows("jobs") == []


@in_real_time
async def test_what_an_engine_refuses_failed(url: str) -> None:
    said = b'{"error":{"message":"no such thing","type":"BadRequestError","param":null,"code":400}}'
    async with remembering(url, (whole(said, status=400),), **QUICK) as it:
        response = await ended(it, (await submitted(it))["id"])
        assert (response["status"], response["error"]["message"]) == ("failed", "no such thing")


@in_real_time
async def test_a_conversation_is_locked_from_its_place_in_the_queue_on(url: str) -> None:
    async with remembering(url, NEVER, **QUICK) as it:
        id_ = (await it.ask(call("POST", CONVERSATIONS, {}))).json["id"]
        first = await submitted(it, conversation=id_)
        assert (await it.ask(turn(conversation=id_))).status == 409
        await cancelled(it, first["id"])
        await submitted(it, conversation=id_)
        for row in it.rows("responses"):
            await cancelled(it, row["id"])


@in_real_time
async def test_only_what_was_made_in_the_background_is_cancelled_or_streamed_again(url: str) -> None:
    async with remembering(url, says("x")) as it:
        response = await it.turn()
        for answer in (
            await cancelled(it, response["id"]),
            await it.get(f"{RESPONSES}/{response['id']}?stream=true"),
        ):
            assert (answer.status, answer.json["error"]["type"]) == (400, "invalid_request_error")


@in_real_time
async def test_a_key_is_nowhere_in_the_store(url: str) -> None:
    async with remembering(url, NEVER, **QUICK) as it:
        body = turn(background=True).partition(b"\r\n\r\n")
        await it.ask(body[0] + b"\r\nAuthorization: Bearer sk-secret\r\n\r\n" + body[2])
        (job,) = it.rows("jobs")
        assert "sk-secret" not in str(job)
        await cancelled(it, job["response_id"])


@in_real_time
async def test_a_repeat_with_the_same_key_is_the_same_job(url: str) -> None:
    async with remembering(url, streams("x"), **QUICK) as it:
        request = turn(background=True).replace(b"\r\n\r\n", b"\r\nIdempotency-Key: k\r\n\r\n", 1)
        first, second = await it.ask(request), await it.ask(request)
        assert first.json["id"] == second.json["id"]
        await ended(it, first.json["id"])


@in_real_time
async def test_a_repeat_of_a_stream_follows_it_to_its_end(url: str) -> None:
    async with remembering(url, SLOW, NEVER, **QUICK) as it:
        request = turn("hi", "idempotency-key: k", stream=True, background=True)
        first, second = await asyncio.gather(it.ask(request), it.ask(request))
        assert events_of(first) == events_of(second) == events_of(await it.ask(request))
        other = turn("hi", "idempotency-key: k2", stream=True, background=True)
        client = await it.place.client()
        client.send(other)
        await client.heard(b"response.in_progress")
        id_ = it.rows("jobs")[0]["response_id"]
        assert (await cancelled(it, id_)).status == 200
        *_, last = events_of(await it.ask(other))
        assert (last["type"], last["response"]["status"]) == ("response.failed", "cancelled")


@in_real_time
async def test_what_there_is_no_room_for_is_tried_again(url: str) -> None:
    go = asyncio.Event()
    narrow: dict[str, Any] = {"cap": 1, "queue": Queue(requests_max=1)}
    async with remembering(url, [go, *says("late")], model=narrow, **QUICK) as it:
        ids = [(await submitted(it))["id"] for _ in range(3)]
        await it.place.until(lambda: "queue_full" in it.place.outcomes)
        go.set()
        for response in [await ended(it, id_) for id_ in ids]:
            assert (response["status"], text_of(response)) == ("completed", "late")


@in_real_time
async def test_who_waits_for_his_limits_keeps_nobody_else_from_his_turn(url: str) -> None:
    few: dict[str, Any] = {"responses": Responses(background=Background(period_s=0.05, running_max=1))}
    bound: dict[str, Any] = {"tenants": {"a": Tenant(limits=Rates(requests_per_min=1))}}
    async with remembering(url, says("x"), says("y"), **few, **bound) as it:
        it.tell_tenants_apart()
        ids = [(await it.turn("hi", "x-tenant: a", background=True))["id"] for _ in range(3)]
        first, second, third = ids

        async def is_(status: str, id_: str, tenant: str) -> None:
            path, who = f"{RESPONSES}/{id_}", f"x-tenant: {tenant}"
            while (await it.ask(call("GET", path, None, who))).json["status"] != status:
                await asyncio.sleep(0.01)

        await is_("completed", first, "a")
        await is_("in_progress", second, "a")
        other = (await it.turn("hi", "x-tenant: b", background=True))["id"]
        await is_("completed", other, "b")
        await is_("queued", third, "a")
        for id_ in (second, third):
            await it.ask(call("POST", f"{RESPONSES}/{id_}/cancel", None, "x-tenant: a"))


@pytest.mark.parametrize(("limits", "held"), [(UNLIMITED, []), (Limits(concurrent=9), ["key k"])])
@in_real_time
async def test_who_is_unlimited_is_so_in_the_background(
    url: str, monkeypatch: pytest.MonkeyPatch, limits: Limits, held: list[str]
) -> None:
    found: list[str] = []

    def noted(*asked: Any) -> list[tuple[str, Limits]]:
        holders = limited(*asked)
        found.extend(name for name, _ in holders)
        return holders

    monkeypatch.setattr("maitred.core.rights.limited", noted)
    async with remembering(url, says("x"), **QUICK) as it:
        it.tell_tenants_apart(Identity(key="k", limits=limits))
        await ended(it, (await submitted(it))["id"])
        assert found == held


@in_real_time
async def test_only_as_many_ask_at_once_as_there_are_places(url: str) -> None:
    one = {"responses": Responses(background=Background(period_s=0.05, running_max=1))}
    async with remembering(url, says("x"), **one) as it:
        places = it.place.app.site.places
        async with places:  # as who comes back from a rest finds it
            id_ = (await submitted(it))["id"]
            await it.place.until(lambda: id_ in it.place.app.site.running)
            await turns(100)
            assert it.place.menu.asked == []
        assert text_of(await ended(it, id_)) == "x"
        assert not places.locked()


@in_real_time
async def test_only_where_there_was_no_endpoint_the_wait_is_doubled(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    no, limited, over = Outcome.NO_ENDPOINT, Outcome.RATE_LIMITED, Outcome.BAD_REQUEST
    refusals, rested = iter((limited, limited, no, no, limited, no, over)), []

    async def asked_once(_: object) -> tuple[Any, Refusal]:
        return NO_ANSWER, Refusal(next(refusals), "")

    async def rest(_: object, refused: Refusal, missed: int) -> None:
        rested.append((refused.outcome, missed))

    monkeypatch.setattr(job, "_asked_once", asked_once)
    monkeypatch.setattr(job, "_rest", rest)
    async with remembering(url, **QUICK) as it:
        await ended(it, (await submitted(it))["id"])
    assert [missed for outcome, missed in rested if outcome is no] == [0, 1, 2]


@in_real_time
async def test_a_tenant_is_passed_by_for_its_own_limits_alone() -> None:
    site: Any = SimpleNamespace(limited=Counter(), jobs=asyncio.Event())
    asked: Any = SimpleNamespace(site=site, tenant="a")
    rests = []
    for whose, passed, woken in (
        ("model", {}, False),
        ("tenant", {"a": 1}, True),
        ("key", {"a": 2}, False),
    ):
        site.jobs.clear()
        refused = Refusal(Outcome.RATE_LIMITED, "", retry_after_s=60, whose=whose)
        rests.append(asyncio.create_task(job._rest(asked, refused, 0)))
        await turns(2)
        assert (site.limited, site.jobs.is_set()) == (passed, woken)
    for rest in rests:
        rest.cancel()
    await asyncio.wait(rests)
    assert not site.limited


@in_real_time
async def test_what_waits_too_long_is_given_up(url: str) -> None:
    soon = Responses(background=Background(period_s=0.05, running_max=1, expires_s=1.0))
    async with remembering(url, NEVER, responses=soon, store=Store(url=url, sweep_s=0.05)) as it:
        first = await submitted(it)
        await it.place.menu.called()
        response = await ended(it, (await submitted(it))["id"])
        assert (response["status"], response["error"]["code"]) == ("failed", "server_error")
        assert "too long" in response["error"]["message"]
        assert (await cancelled(it, first["id"])).json["status"] == "cancelled"


@in_real_time
async def test_what_is_refused_when_it_is_made_has_failed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with remembering(url, says("x"), **QUICK) as it:
        servers, asked = it.place.app.site.servers, count()

        def gone(*_: object) -> None:
            if next(asked):
                raise Refusal(Outcome.BAD_REQUEST, "there is no such server", param="tools")

        monkeypatch.setattr(servers, "tools", gone)
        response = await ended(it, (await submitted(it))["id"])
        assert (response["status"], response["error"]["message"]) == ("failed", "there is no such server")
        assert it.place.menu.asked == []
