"""The end of a gateway: turns come to theirs, and what waits in the background is another's."""

from __future__ import annotations

import asyncio
from typing import Any

from maitred.config.auth import Store
from maitred.config.responses import Background, Responses
from maitred.config.tree import Drain
from tests.proxy.upstream import DONE, FINISH, ROLE, USAGE, Plan, chunk, stream, word
from tests.responses.place import RESPONSES, events_of, in_real_time, remembering, says, text_of, turn
from tests.responses.test_background import QUICK, ended, submitted

SLOW: Plan = [
    *stream(ROLE, word("Hel"), end=()),
    0.2,
    *map(chunk, (word("lo"), FINISH, USAGE, DONE)),
    b"0\r\n\r\n",
]
HANGS: Plan = [*stream(ROLE, word("Hel"), end=()), 1e6]
SOON: dict[str, Any] = {"responses": Responses(lease_s=0.5, background=Background(period_s=0.05))}


@in_real_time
async def test_a_turn_that_streams_comes_to_its_end_and_is_kept(url: str) -> None:
    async with remembering(url, SLOW) as it:
        client = await it.place.client()
        client.send(turn(stream=True))
        await client.heard(b"Hel")
        assert await it.place.app.drain() == 0
        *_, last = events_of(await client.answer())
        assert text_of(last["response"]) == "Hello"
        assert it.rows("responses")[0]["status"] == "completed"


@in_real_time
async def test_one_that_takes_too_long_is_cut_and_failed(url: str) -> None:
    async with remembering(url, HANGS, drain=Drain(limit_s=0.05)) as it:
        client = await it.place.client()
        client.send(turn(stream=True))
        await client.heard(b"Hel")
        assert await it.place.app.drain() == 1
        *_, last = events_of(await client.answer())
        assert (last["type"], text_of(last["response"])) == ("response.failed", "Hel")
        assert it.rows("responses")[0]["status"] == "failed"


@in_real_time
async def test_a_new_turn_is_refused_and_what_was_kept_can_still_be_read(url: str) -> None:
    async with remembering(url, says("Hello")) as it:
        response = await it.turn()
        await it.place.app.drain()
        refused = await it.ask(turn(previous_response_id=response["id"]))
        assert (refused.status, refused.json["error"]["code"]) == (503, "draining")
        assert (await it.get(f"{RESPONSES}/{response['id']}")).json == response


@in_real_time
async def test_a_job_that_was_begun_and_not_streamed_is_made_by_another_gateway(url: str) -> None:
    shared: dict[str, Any] = {**SOON, "store": Store(url=url, sweep_s=0.05)}
    async with remembering(url, (1e6,), drain=Drain(limit_s=0.05), **shared) as ends:
        id_ = (await submitted(ends))["id"]
        await ends.place.menu.called()
        async with remembering(url, says("Hello"), **shared) as goes_on:
            await ends.place.app.drain()
            response = await ended(goes_on, id_)
            assert (response["status"], text_of(response)) == ("completed", "Hello")


@in_real_time
async def test_who_follows_a_job_is_sent_elsewhere(url: str) -> None:
    async with remembering(url, (1e6,), **QUICK) as it:
        id_ = (await submitted(it))["id"]
        client = await it.place.client()
        client.send(f"GET {RESPONSES}/{id_}?stream=true HTTP/1.1\r\nhost: a\r\n\r\n".encode())
        await it.place.menu.called()
        draining = asyncio.create_task(it.place.app.drain())
        await client.closed()
        assert (
            await it.ask(f"POST {RESPONSES}/{id_}/cancel HTTP/1.1\r\nhost: a\r\n\r\n".encode())
        ).status == 200
        await draining
