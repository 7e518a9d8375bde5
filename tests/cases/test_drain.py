"""The end of a gateway: first it says no, then what runs comes to its end, and only then it is cut."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from maitred.config.load import load
from maitred.config.raw import ConfigError
from maitred.config.tree import Drain
from maitred.core.words import Endpoints
from tests.cases.place import on_sockets, serving
from tests.cases.upstream import GOOD, Plan, stream
from tests.net.http import get
from tests.proxy import place as proxy_place
from tests.proxy import upstream as proxy_upstream
from tests.proxy.faults import spoken
from tests.proxy.place import STREAM, WHOLE, in_virtual_time
from tests.proxy.upstream import DONE, FINISH, JSON, LAST, ROLE, chunk, word


def held(rest: asyncio.Event) -> Plan:
    """A stream that goes on when the test says so."""
    return [
        *stream(ROLE, word("Hello"), end=()),
        rest,
        chunk(word(" world")),
        chunk(FINISH),
        chunk(DONE),
        LAST,
    ]


async def not_ready(place: proxy_place.Place) -> None:
    """Wait until load balancers are told no."""
    while (await place.ask(get("/readyz"))).status != 503:
        await asyncio.sleep(0)


class TestRollingOver:
    """B93: kserve/kserve#5602.

    A gateway whose grace is shorter than its streams, or that stops listening before its balancer has
    noticed, cuts conversations at every release.
    """

    @in_virtual_time()
    async def test_it_says_no_first_and_serves_on_until_that_is_noticed(self) -> None:
        rest = [chunk(word(" world")), chunk(FINISH), chunk(DONE), LAST]
        plan = [*proxy_upstream.stream(ROLE, word("Hello"), end=()), 30.0, *rest]
        drain = Drain(notice_s=5.0, limit_s=60.0)
        async with proxy_place.serving(plan, proxy_upstream.GOOD, drain=drain) as place:
            client = await place.client()
            client.send(STREAM)
            await client.heard(b"Hello")
            draining = asyncio.create_task(place.app.drain())
            await not_ready(place)
            assert (await place.ask(get("/livez"))).status == 200
            late = await place.ask(WHOLE)
            assert (late.status, late.body, late.value(b"connection")) == (200, JSON, b"close")
            await place.until(lambda: not place.app.house.gateway.settings.accepting)
            refused = await place.ask(WHOLE)
            assert (refused.status, refused.outcome) == (503, "draining")
            assert refused.value(b"x-should-retry") == b"true"
            assert not draining.done(), "it waits for the stream"
            assert (await client.answer()).body.endswith(word(" world") + FINISH + DONE)
            assert await draining == 0

    @in_virtual_time(1000)
    async def test_a_stream_of_90_seconds_ends_by_itself_within_120(self) -> None:
        plan = [*proxy_upstream.stream(word("Hello"), end=()), 90.0, chunk(DONE), LAST]
        async with proxy_place.serving(plan, drain=Drain(limit_s=120.0)) as place:
            client = await place.client()
            client.send(STREAM)
            await client.heard(b"Hello")
            draining = asyncio.create_task(place.app.drain())
            assert (await client.answer()).body == word("Hello") + DONE
            assert await draining == 0
            assert place.outcomes == ["completed"]

    @on_sockets
    async def test_at_the_limit_a_stream_is_told_that_it_is_cut(self) -> None:
        async with serving(held(asyncio.Event()), drain=Drain(limit_s=0.1)) as place:
            client = await place.client()
            client.send(STREAM)
            await client.heard(b"Hello")
            assert await place.app.drain() == 1
            answer = await client.answer()
            said = spoken(answer)
            assert answer.body.startswith(ROLE + word("Hello"))
            assert said[-1]["error"]["code"] == "draining"
            assert "[DONE]" not in said
            assert place.outcomes == ["draining"]
            await place.script.asked[0].lost.wait()

    @on_sockets
    async def test_what_waits_at_the_limit_is_refused_properly(self) -> None:
        async with serving(held(asyncio.Event()), drain=Drain(limit_s=0.1), model={"cap": 1}) as place:
            running, waiting = await place.client(), await place.client()
            running.send(STREAM)
            await running.heard(b"Hello")
            waiting.send(WHOLE)
            await place.until(lambda: place.waiting == 1)
            assert await place.app.drain() == 2
            answer = await waiting.answer()
            assert (answer.status, answer.outcome) == (503, "draining")
            assert len(place.script.asked) == 1

    @pytest.mark.parametrize("gone_first", [True, False])
    @on_sockets
    async def test_an_engine_replaced_at_the_same_time_finishes_what_it_began(self, gone_first: bool) -> None:
        """Both tiers roll at once: the old engine is off the list while its stream runs and we drain."""
        rest = asyncio.Event()
        async with serving(held(rest), GOOD, engines=2, drain=Drain(limit_s=60.0)) as place:
            client = await place.client()
            client.send(STREAM)
            await client.heard(b"Hello")
            busy = place.script.asked[0].kitchen
            stays = Endpoints({"m": (place.engines[1 - busy].url,)})
            if gone_first:
                place.app.house.update(stays)
            draining = asyncio.create_task(place.app.drain())
            await not_ready(place)
            if not gone_first:
                place.app.house.update(stays)
            assert not draining.done()
            rest.set()
            assert (await client.answer()).body.endswith(DONE)
            assert await draining == 0
            await place.until(lambda: len(place.states) == 1)

    @on_sockets
    async def test_idle_connections_do_not_keep_it(self) -> None:
        async with serving() as place:
            clients = [await place.client() for _ in range(10)]
            for client in clients:
                client.send(WHOLE)
                await client.answer()
            assert await place.app.drain() == 0
            for client in clients:
                await client.closed()

    @pytest.mark.parametrize(
        ("drain", "fits"),
        [
            ("limit: 120s, grace: 30s", False),
            ("notice: 5s, limit: 26s, grace: 30s", False),
            ("notice: 5s, limit: 25s, grace: 30s", True),
            ("limit: 120s", True),
        ],
    )
    def test_a_limit_beyond_the_platforms_patience_is_no_start(
        self, drain: str, fits: bool, tmp_path: Path
    ) -> None:
        file = tmp_path / "maitred.yaml"
        file.write_text(f"version: 1\nendpoints: [http://127.0.0.1:1]\ndrain: {{{drain}}}\n")
        if fits:
            assert load(file, environ={}).drain.limit_s > 0
            return
        with pytest.raises(ConfigError, match=r"drain\.") as refused:
            load(file, environ={})
        assert "30s" in str(refused.value)
