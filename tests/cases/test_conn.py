"""Connections to engines: none is lost, none is cut because it is long, none is waited for in vain."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from maitred.config.tree import Config, EndpointsDns, Model, Queue, Upstream
from maitred.control import discovery, sources
from tests.cases.place import ANYWHERE, Place, deaf, on_sockets, open_sockets, opened, serving
from tests.cases.upstream import GOOD, SILENCE, Engine, Plan, card, stream
from tests.net.http import Broken, Client, post
from tests.ports import free_port
from tests.proxy import place as proxy_place
from tests.proxy import upstream as proxy_upstream
from tests.proxy.faults import spoken
from tests.proxy.place import STREAM, WHOLE, in_virtual_time
from tests.proxy.upstream import DONE, FINISH, JSON, LAST, ROLE, End, chunk, head, whole, word
from tests.proxy.upstream import STREAM as STREAM_HEAD

NEVER = asyncio.Event
HEADS: list[Plan] = [
    SILENCE,
    [STREAM_HEAD, NEVER()],
    [*stream(ROLE, word("Hello"), end=()), NEVER()],
    [whole(b'{"error":{"message":"slow down"}}', "retry-after: 1", status=429)],
    [head(500), End.CLOSE],
    [STREAM_HEAD, b"xyz\r\n"],
    [*stream(ROLE, word("Hello"), end=()), End.RESET],
    [head(200, "content-length: 100000"), b"x" * 70_000, End.CLOSE],
    stream(),
    GOOD,
]


async def visit(place: Place, random: Random) -> None:
    """One client: it asks, and takes its answer or leaves somewhere on the way."""
    client = await place.client()
    client.send(random.choice((STREAM, WHOLE)))
    if random.random() < 0.6:
        for _ in range(random.randrange(30)):
            await asyncio.sleep(0)
    else:
        await taken(client)
    client.leave()


async def taken(client: Client) -> None:
    """Take the answer, unless it does not come for a while."""
    try:
        async with asyncio.timeout(0.1):
            await client.answer()
    except (Broken, TimeoutError):
        pass


class TestNothingIsLeftOpen:
    """B39: jwadow/kiro-gateway#38, mistralai/client-python#532, encode/httpcore#550,
    Routstr/routstr-core#696.

    Streams that were cancelled or failed were never closed, until the pool had nothing more to give.
    """

    @on_sockets
    async def test_files_and_places_are_back_after_a_thousand_mishaps(self) -> None:
        random = Random(39)
        before = open_sockets()
        plans = [plan for _ in range(100) for plan in random.sample(HEADS, len(HEADS))]
        async with serving(*plans, GOOD, engines=2, model={"cap": 8}) as place:
            for _ in range(25):
                await asyncio.gather(*(visit(place, random) for _ in range(40)))
            await place.until(lambda: not place.app.journeys)
            assert place.running == [0, 0]
            assert place.app.pool.open == place.app.pool.idle
            place.script.set(GOOD)
            await place.until(lambda: any(state.label == "ready" for state in place.states))
            assert (await place.ask()).body == JSON
            outcomes = Counter(place.outcomes)
            assert outcomes["client_gone"] > 100
            assert {"completed", "failed_upstream", "failed_truncated"} <= set(outcomes)
        assert open_sockets() == before


TICKS = 400


class TestLongIsNoFault:
    """B41: modelplaneai/modelplane#174, vllm-project/aibrix#1176, defilantech/LLMKube#734,
    llm-d/llm-d-deployer#339.

    Limits on the whole of an answer cut long generations that were well. There is none; what is limited is
    each wait, by a setting of its own. The hours pass in virtual time.
    """

    @in_virtual_time(1000)
    async def test_a_stream_of_400_seconds_with_the_settings_of_the_house(self) -> None:
        words = [step for n in range(TICKS) for step in (1.0, chunk(word(f"{n} ")))]
        plan: proxy_upstream.Plan = [STREAM_HEAD, chunk(ROLE), *words, chunk(FINISH), chunk(DONE), LAST]
        async with proxy_place.serving(plan) as place:
            answer = await place.ask(STREAM)
            assert len(spoken(answer)) == TICKS + 3
            assert place.outcomes == ["completed"]

    @in_virtual_time(1000)
    async def test_an_answer_after_200_seconds(self) -> None:
        async with proxy_place.serving([200.0, whole(JSON)]) as place:
            assert (await place.ask(WHOLE)).body == JSON

    @in_virtual_time(1000)
    async def test_a_wait_of_300_seconds_where_it_was_allowed(self) -> None:
        model = {"cap": 1, "queue": Queue(wait_s=400.0)}
        async with proxy_place.serving([300.0, whole(JSON)], proxy_upstream.GOOD, model=model) as place:
            both = await asyncio.gather(place.ask(WHOLE), place.ask(WHOLE))
            assert [answer.body for answer in both] == [JSON, JSON]
            assert max(line["queue_s"] for line in place.lines) >= 299

    @pytest.mark.parametrize(
        ("said", "wait_s"),
        [("5", 5), ("0.5", 0.5), ("3600", 30), ("", 30), ("0", 30), ("-1", 30), ("nan", 30)],
    )
    @in_virtual_time(1000)
    async def test_a_request_may_say_that_it_waits_less_and_never_that_it_waits_more(
        self, said: str, wait_s: float
    ) -> None:
        """By the header in which the official clients tell their own time limit."""
        patience = [f"x-stainless-read-timeout: {said}"] if said else []
        async with proxy_place.serving(proxy_upstream.SILENCE, model={"cap": 1}) as place:
            client = await place.client()
            client.send(WHOLE)
            await place.menu.called()
            asked = post(proxy_place.CHAT, proxy_place.chat(seed=1), *patience)
            assert await proxy_place.took(place.ask(asked)) == pytest.approx(wait_s)
            assert place.outcomes == ["queue_deadline"]
            client.leave()

    @in_virtual_time(1000)
    async def test_its_patience_cuts_no_answer_that_has_begun(self) -> None:
        ticks = [step for n in range(60) for step in (1.0, chunk(word(f"{n} ")))]
        plan: proxy_upstream.Plan = [STREAM_HEAD, chunk(ROLE), *ticks, chunk(FINISH), chunk(DONE), LAST]
        async with proxy_place.serving(plan) as place:
            asked = post(proxy_place.CHAT, proxy_place.chat(stream=True), "x-stainless-read-timeout: 5")
            assert (await place.ask(asked)).body.endswith(DONE)

    @on_sockets
    async def test_each_wait_has_its_own_setting_and_it_is_obeyed(self) -> None:
        hurry = Upstream(first_byte_s=0.3, idle_s=0.3, connect_s=0.3)
        stalls = [*stream(ROLE, word("Hello"), end=()), NEVER()]
        async with serving(
            SILENCE, stalls, SILENCE, upstream=hurry, model={"queue": Queue(wait_s=0.1), "cap": 1}
        ) as place:
            late = await place.ask()
            assert (late.status, late.outcome) == (504, "failed_deadline")
            assert late.value(b"x-should-retry") == b"false"
            assert "error" in spoken(await place.ask(STREAM))[-1]
            first, second = await asyncio.gather(place.ask(), place.ask())
            assert {first.outcome, second.outcome} == {"failed_deadline", "queue_deadline"}
            assert place.outcomes[1] == "failed_upstream"

    @on_sockets
    async def test_connecting_has_one_too(self) -> None:
        engine = Engine()
        async with opened([engine], upstream=Upstream(connect_s=0.2)) as place:
            with deaf() as port:
                await nowhere(place, port)
                answer = await place.ask()
            assert (answer.status, answer.outcome) == (502, "failed_upstream")
            assert "no connection in 0.2 s" in answer.json["error"]["message"]


async def nowhere(place: Place, port: int) -> None:
    """From now on the one engine is at a port that takes no connection."""
    await place.drop_idle()
    (endpoint,) = place.app.house.gateway.table.by_name.values()
    endpoint.url = f"http://127.0.0.1:{port}"


class Names:
    """A resolver that says what the test says."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)
        self.asked = 0

    async def __call__(self, _host: str) -> list[str]:
        self.asked += 1
        return self.addresses

    @asynccontextmanager
    async def serving(self, *engines: Engine, ttl_s: float) -> AsyncIterator[Place]:
        """A gateway whose engines are at all addresses of one name."""

        def config(urls: list[str]) -> Config:
            url = f"http://engines.test:{engines[0].port}"
            return Config(listen=ANYWHERE, models=(Model("m", EndpointsDns(url, ttl_s)),))

        async def begin(place: Place) -> None:
            place.app.discovery.sources._resolve = self
            await place.begin()
            await place.ready(len(set(self.addresses)))

        async with opened(engines, config=config, begin=begin) as place:
            yield place


async def at(*hosts: str) -> list[Engine]:
    """Engines at these addresses and one port."""
    engines = [Engine(host=host) for host in hosts]
    await engines[0].open(free_port())
    for engine in engines[1:]:
        await engine.open(engines[0].port)
    return engines


class TestAddressesThatMove:
    """B42: NatLabRockies/api-umbrella#4, apache/apisix#8775, traefik/traefik#7564.

    A name was resolved once, and the old address got its requests for as long as connections to it lived.
    Every address of a name is an endpoint of its own; what is no longer one drains.
    """

    @pytest.fixture(autouse=True)
    def often(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What is due is looked for often."""
        monkeypatch.setattr(discovery, "PERIOD_S", 0.02)
        monkeypatch.setattr(sources, "PERIOD_S", 0.02)

    @on_sockets
    async def test_a_new_address_takes_over_and_the_old_one_drains(self) -> None:
        old, new = await at("127.0.0.2", "127.0.0.3")
        rest, names = asyncio.Event(), Names("127.0.0.2")
        old.script.set([*stream(word("Hello"), end=()), rest, chunk(DONE), LAST])
        async with names.serving(old, new, ttl_s=0.05) as place:
            client = await place.client()
            client.send(STREAM)
            await client.heard(b"Hello")
            names.addresses = ["127.0.0.3"]
            await place.until(lambda: [state.label for state in place.states] == ["draining", "ready"])
            for _ in range(3):
                assert (await place.ask()).body == JSON
            rest.set()
            assert (await client.answer()).body == word("Hello") + DONE
            await place.until(lambda: len(place.states) == 1)
            assert (len(old.script.asked), len(new.script.asked)) == (1, 3)

    @on_sockets
    async def test_one_that_refuses_is_looked_up_again_long_before_its_time(self) -> None:
        old, new = await at("127.0.0.2", "127.0.0.3")
        names = Names("127.0.0.2")
        async with names.serving(old, new, ttl_s=1000.0) as place:
            assert (await place.ask()).body == JSON
            names.addresses = ["127.0.0.3"]
            old.close()
            assert (await place.ask()).status in (200, 502, 503)
            await place.until(lambda: place.urls == {new.url})
            await place.ready()
            assert (await place.ask()).body == JSON
            assert names.asked <= 4

    @on_sockets
    async def test_each_address_is_an_endpoint(self) -> None:
        engines = await at("127.0.0.2", "127.0.0.3", "127.0.0.4")
        async with Names("127.0.0.3", "127.0.0.2", "127.0.0.4", "127.0.0.2").serving(
            *engines, ttl_s=0.05
        ) as place:
            assert len(place.states) == 3
            for _ in range(6):
                await place.ask()
            assert [len(engine.script.asked) for engine in engines] == [2, 2, 2]

    @on_sockets
    async def test_another_model_at_an_old_address_gets_nothing(self) -> None:
        """The address went to somebody else, and the name has not been looked up since."""
        old, new = await at("127.0.0.2", "127.0.0.3")
        names = Names("127.0.0.2", "127.0.0.3")
        async with names.serving(old, new, ttl_s=1000.0) as place:
            port = old.port
            old.close()
            assert (await place.ask()).body == (await place.ask()).body == JSON
            old.models = [card("other")]
            await old.open(port)
            await place.until(lambda: "wrong_model" in {finding.kind for finding in place.findings})
            before = len(old.script.asked)
            for _ in range(4):
                assert (await place.ask()).body == JSON
            assert len(old.script.asked) == before


class TestLeavingWhileItConnects:
    """B94: encode/httpcore#1093, encode/httpcore#1099, encode/httpx#1461.

    A request cancelled between being given a connection and its being there kept a place in the pool for
    ever; after as many as there are places every request failed, at a healthy engine.
    """

    @on_sockets
    async def test_no_place_is_lost(self) -> None:
        random, engine = Random(94), Engine()
        async with opened([engine], model={"cap": 10}) as place:
            home = engine.url
            with deaf() as port:
                await nowhere(place, port)
                for _ in range(20):
                    clients = [await place.client() for _ in range(20)]
                    for client in clients:
                        client.send(STREAM)
                    await place.until(lambda: place.running == [10] and place.waiting == 10)
                    random.shuffle(clients)
                    for client in clients:
                        client.leave()
                        if random.random() < 0.3:
                            await asyncio.sleep(0)
                    await place.until(lambda: not place.app.journeys)
                    assert (place.running, place.waiting) == ([0], 0)
            assert place.app.pool.open == place.app.pool.idle == 0
            (endpoint,) = place.app.house.gateway.table.by_name.values()
            endpoint.url = home
            assert (await place.ask()).body == JSON
            assert Counter(place.outcomes) == {"client_gone": 400, "completed": 1}

    @pytest.mark.parametrize("turns", range(8))
    @on_sockets
    async def test_whenever_it_leaves_while_a_real_connection_opens(self, turns: int) -> None:
        async with serving() as place:
            for _ in range(10):
                await place.drop_idle()
                client = await place.client()
                client.send(WHOLE)
                for _ in range(turns):
                    await asyncio.sleep(0)
                client.leave()
            await place.until(lambda: not place.app.journeys and not place.app.front.connections)
            assert place.running == [0]
            assert place.app.pool.open == place.app.pool.idle
            assert (await place.ask()).body == JSON
