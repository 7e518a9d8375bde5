"""Who asks, how patient he is and which conversation it is: the model's call keeps it all."""

from __future__ import annotations

from typing import Any

from maitred.config.flow import Band
from maitred.core.events import Ended
from maitred.core.words import Identity, Ticket
from tests.responses.place import (
    CONVERSATIONS,
    Remembering,
    call,
    in_real_time,
    remembering,
    says,
    turn,
)
from tests.responses.test_background import QUICK, ended, submitted

BANDS = (Band(name="chat"), Band(name="batch", service_tiers=("flex",)))


def tickets(it: Remembering) -> list[Ticket]:
    """Those of all model calls from now on, as they end."""
    told: list[Ticket] = []
    it.place.app.hub.subscribe({Ended: lambda event: told.append(event.ticket)})
    return told


@in_real_time
async def test_all_turns_of_a_conversation_are_one_session(url: str) -> None:
    async with remembering(url, says("x")) as it:
        told = tickets(it)
        first = await it.turn()
        second = await it.turn(previous_response_id=first["id"])
        await it.turn(previous_response_id=second["id"])
        assert len({ticket.request.session for ticket in told}) == 1
        assert told[0].request.session
        conversation = (await it.ask(call("POST", CONVERSATIONS, {}))).json["id"]
        for _ in range(2):
            await it.turn(conversation=conversation)
        assert len({ticket.request.session for ticket in told}) == 2
        for _ in range(2):
            await it.turn("hi", "x-session-id: mine")
        assert len({ticket.request.session for ticket in told}) == 3
        for _ in range(2):
            await it.turn(prompt_cache_key="mine")
        assert len({ticket.request.session for ticket in told}) == 4


@in_real_time
async def test_the_head_means_what_it_means_elsewhere(url: str) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with remembering(url, says("x")) as it:
        it.tell_tenants_apart()
        told = tickets(it)
        headers = ("x-tenant: t", "x-stainless-read-timeout: 7", "x-stainless-retry-count: 2")
        await it.turn("hi", *headers, f"traceparent: {trace}")
        (ticket,) = told
        assert ticket.identity.tenant == "t"
        assert (ticket.request.deadline_s, ticket.request.retry) == (7.0, 2)
        asked = it.place.menu.asked[0]
        assert asked.values("traceparent") == [trace]
        assert asked.values("x-tenant") == asked.values("x-session-id") == []
        assert it.place.lines[0]["id"] == asked.values("x-request-id")[0]
        assert it.place.lines[0]["path"] == "/v1/responses"


@in_real_time
async def test_a_service_tier_asks_for_a_band_in_the_background_too(url: str) -> None:
    sections: dict[str, Any] = {"bands": BANDS, **QUICK}
    async with remembering(url, says("x"), **sections) as it:
        told = tickets(it)
        await it.turn(service_tier="flex")
        await it.turn(service_tier="priority")
        await ended(it, (await submitted(it, service_tier="flex"))["id"])
        assert [ticket.band for ticket in told] == ["batch", "chat", "batch"]


@in_real_time
async def test_who_may_not_wait_in_a_band_does_not(url: str) -> None:
    async with remembering(url, says("x"), bands=BANDS) as it:
        told = tickets(it)
        app = it.place.app
        it.tell_tenants_apart(Identity(bands=("chat",)))
        assert app.front.service is app.site.service
        assert (await it.ask(turn(service_tier="flex"))).status == 200
        assert [ticket.band for ticket in told] == ["chat"]


@in_real_time
async def test_a_background_turn_is_its_tenants(url: str) -> None:
    async with remembering(url, says("x"), **QUICK) as it:
        it.tell_tenants_apart()
        told = tickets(it)
        response = await it.turn("hi", "x-tenant: t", background=True)
        await it.place.until(lambda: len(told) == 1)
        assert told[0].identity.tenant == "t"
        assert (await it.get(f"/v1/responses/{response['id']}")).status == 404
