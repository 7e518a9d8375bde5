"""Discovery: engines asked until they are ready, and doubted later, in virtual time on scripted engines."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec import structs

from maitred.config.cache import Cache
from maitred.config.flow import ModelLimits
from maitred.config.load import load
from maitred.config.tree import Config, EndpointsDns, EndpointsFile, Health, Model
from maitred.control.discovery import REFRESH_S, SILENT_S, Discovery
from maitred.control.models import Models, Route, TokenLimits
from maitred.core.gateway import Gateway
from maitred.core.outcome import FailureKind, Outcome
from maitred.core.words import (
    Abilities,
    Api,
    Change,
    EndpointState,
    Failure,
    Go,
    Identity,
    Leg,
    Probed,
    Request,
)
from maitred.net import virtual
from maitred.net.client import AnswerHead, Patience
from maitred.net.memory import MemoryNetwork
from maitred.net.pool import Pool
from maitred.net.sweep import Sweep
from maitred.observe.findings import Findings

PROBING, READY, EJECTED, _, GONE = EndpointState
TOLD = TokenLimits(context=4096)


def card(name: str, **more: object) -> dict[str, object]:
    return {"id": name, "object": "model", "owned_by": "vllm", "max_model_len": 4096, **more}


class Engine(asyncio.Protocol):
    """Answers with its list of models, and makes a token when it is asked to, unless it is stuck."""

    def __init__(self, town: Town, port: int, status: int) -> None:
        self.town, self.port, self.status = town, port, status

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        method, path = data.decode().split(" ")[:2]
        town = self.town
        if method == "POST":
            town.tokens.append((self.port, json.loads(data.partition(b"\r\n\r\n")[2])["model"]))
            if self.port not in town.stuck:
                self.answer(200, {"choices": []})
        elif path == "/v1/models":
            town.asked.append(asyncio.get_running_loop().time())
            self.answer(self.status, {"object": "list", "data": town.served[self.port]})
        else:
            self.answer(404, {})

    def answer(self, status: int, body: dict[str, object]) -> None:
        encoded = json.dumps(body).encode()
        head = f"HTTP/1.1 {status} X\r\ncontent-length: {len(encoded)}\r\n\r\n"
        self.transport.write(head.encode() + encoded)


class Network(MemoryNetwork):
    """One on which no connection can be made, for a reason of our own, while it is `ill`."""

    ill: OSError | None = None

    async def connect(self, *args: Any, **more: Any) -> Any:
        if self.ill is not None:
            raise self.ill
        return await super().connect(*args, **more)


class Town:
    """A discovery under way, and the means to open and close engines by port.

    Names in DNS have the address 127.0.0.1; `resolved` tells when they were asked for.
    """

    def __init__(self, config: Config) -> None:
        loop = asyncio.get_running_loop()
        self.network = Network()
        self.gateway = Gateway(config.core_settings(), Abilities(), Random(1))
        self.models = Models()
        self.findings = Findings()
        self.asked: list[float] = []
        self.tokens: list[tuple[int, str]] = []
        self.stuck: set[int] = set()
        self.served: dict[int, list[dict[str, object]]] = {}
        self.listeners: dict[int, Any] = {}
        self.resolved: list[float] = []
        self.probed: list[Probed] = []
        sweep = Sweep(loop.time)
        sweep.start()
        self.pool = Pool(self.network, sweep, Patience())
        table = self.gateway.table
        self.discovery = Discovery(
            config, self.models, table, self.pool, self.update, self.findings, self.resolve
        )
        self.tasks = [asyncio.create_task(self.discovery.run())]

    async def resolve(self, host: str) -> list[str]:
        self.resolved.append(asyncio.get_running_loop().time())
        return ["127.0.0.1"]

    def update(self, change: Change) -> None:
        if isinstance(change, Probed):
            self.probed.append(change)
        self.gateway.update(change, asyncio.get_running_loop().time())

    async def open(self, port: int, *models: dict[str, object], status: int = 200) -> None:
        self.served[port] = list(models)
        self.listeners[port] = await self.network.listen(
            lambda: Engine(self, port, status), "127.0.0.1", port
        )

    def close(self, port: int) -> None:
        self.listeners.pop(port).close()

    def seat(self, pool: str) -> Leg:
        """One request, seated."""
        now = asyncio.get_running_loop().time()
        self.gateway.accept(Request("r", Api.CHAT, pool, pool), Identity(), now)
        (effect,) = self.gateway.release(now)
        assert isinstance(effect, Go)
        return effect.legs[0]

    def fail(self, pool: str, kind: FailureKind) -> None:
        self.gateway.fail(self.seat(pool), Failure(kind), asyncio.get_running_loop().time())

    def states(self) -> dict[str, EndpointState]:
        return {name: endpoint.state for name, endpoint in self.gateway.table.by_name.items()}

    def wrong(self) -> dict[str, str]:
        """The findings: where and what."""
        return {finding.where: finding.what for finding in self.findings.current()}


@asynccontextmanager
async def town(config: Config) -> AsyncIterator[Town]:
    it = Town(config)
    try:
        yield it
    finally:
        for task in it.tasks:
            task.cancel()
        await asyncio.gather(*it.tasks, return_exceptions=True)
        it.pool.close()


def addresses(*ports: int) -> Config:
    return load(None, {"endpoints": [f"http://127.0.0.1:{port}" for port in ports]}, environ={})


def named(name: str, *ports: int, served_as: str = "", aliases: tuple[str, ...] = ()) -> Config:
    urls = tuple(f"http://127.0.0.1:{port}" for port in ports)
    return Config(models=(Model(name=name, endpoints=urls, served_as=served_as, aliases=aliases),))


def in_town(config: Config) -> Callable[[Callable[[Town], Any]], Callable[[], None]]:
    def wrap(test: Callable[[Town], Any]) -> Callable[[], None]:
        def run() -> None:
            async def main() -> None:
                async with town(config) as it:
                    await test(it)

            virtual.run(main())

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return wrap


@in_town(named("q", 1, 2, served_as="Q", aliases=("default",)))
async def test_a_configured_model_is_ready_where_it_is_served(it: Town) -> None:
    await it.open(1, card("Q"))
    await it.open(2, card("other"))
    await asyncio.sleep(0.5)
    assert it.states() == {"q/127.0.0.1:1": READY, "q/127.0.0.1:2": PROBING}
    good, bad = it.gateway.table.by_name.values()
    assert (good.facts.engine, good.facts.model, good.facts.context_tokens) == ("vllm", "Q", 4096)
    assert bad.why == "serves 'other', not 'Q'; add served_as: other"
    assert it.models.find("q") == Route("q", "q", "Q", limits=TOLD)
    assert it.models.find("default") == Route("default", "q", "Q", limits=TOLD)
    assert dict(it.models.entries())["q"]["max_model_len"] == 4096


@in_town(addresses(1, 2, 3))
async def test_models_are_learned_from_addresses(it: Town) -> None:
    assert not it.models.known
    await it.open(1, card("a"))
    await it.open(2, card("a"), card("b"))
    await asyncio.sleep(0.5)
    assert it.states() == {"a/127.0.0.1:1": READY, "a/127.0.0.1:2": READY, "b/127.0.0.1:2": READY}
    assert [name for name, _ in it.models.entries()] == ["a", "b"]
    await it.open(3, card("b"))
    await asyncio.sleep(1)
    assert it.states()["b/127.0.0.1:3"] is READY


@in_town(named("q", 1))
async def test_an_engine_is_asked_each_second_until_it_answers_and_then_rarely(it: Town) -> None:
    await it.open(1, status=503)
    await asyncio.sleep(3.5)
    assert len(it.asked) == 4
    assert it.gateway.table.by_name["q/127.0.0.1:1"].why == "answers GET /v1/models with 503"
    it.close(1)
    await it.open(1, card("q"))
    await asyncio.sleep(9)
    assert it.states() == {"q/127.0.0.1:1": READY}
    assert len(it.asked) == 5
    await asyncio.sleep(2 * REFRESH_S)
    assert len(it.asked) == 7
    assert it.tokens == [(1, "q")]


@in_town(named("q", 1))
async def test_it_is_asked_again_after_a_connect_failure(it: Town) -> None:
    await it.open(1, card("q"))
    await asyncio.sleep(0.5)
    it.fail("q", FailureKind.CONNECT)
    assert it.states() == {"q/127.0.0.1:1": EJECTED}
    await asyncio.sleep(1)
    assert it.states() == {"q/127.0.0.1:1": READY}
    assert it.gateway.table.by_name["q/127.0.0.1:1"].incarnation == 1


@in_town(addresses(1))
async def test_an_engine_that_comes_back_with_another_model_moves(it: Town) -> None:
    await it.open(1, card("a"))
    await asyncio.sleep(0.5)
    (endpoint,) = it.gateway.table.by_name.values()
    it.fail("a", FailureKind.CONNECT)
    it.close(1)
    await it.open(1, card("b"))
    await asyncio.sleep(1)
    assert it.states() == {"b/127.0.0.1:1": READY}
    assert endpoint.state is GONE
    assert [name for name, _ in it.models.entries()] == ["b"]


@in_town(named("q", 1, 2))
async def test_an_engine_that_hangs_delays_nobody(it: Town) -> None:
    it.network.hang("127.0.0.1", 1)
    await asyncio.sleep(0.5)
    await it.open(2, card("q"))
    await asyncio.sleep(1)
    assert it.states() == {"q/127.0.0.1:1": PROBING, "q/127.0.0.1:2": READY}


@pytest.mark.parametrize("config", [named("q", 1), addresses(1)], ids=["model", "address"])
def test_a_complaint_is_logged_once_and_not_at_the_first_try(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with town(config) as it:
            await asyncio.sleep(0.5)
            assert caplog.messages == []
            await asyncio.sleep(5)
            assert len(caplog.messages) == 1
            assert "http://127.0.0.1:1: does not answer" in caplog.messages[0]
            await it.open(1, card("q"))
            await asyncio.sleep(1)
            assert it.gateway.table.by_name["q/127.0.0.1:1"].state is READY
            assert it.wrong() == {}
            assert len(caplog.messages) == 1

    with caplog.at_level(logging.WARNING, "maitred.finding"):
        virtual.run(main())


@in_town(named("q", 1))
async def test_a_complaint_that_reads_otherwise_each_time_is_made_all_the_same(it: Town) -> None:
    await asyncio.sleep(0.5)
    await it.open(1, status=503)
    await asyncio.sleep(1)
    assert it.wrong() == {"http://127.0.0.1:1": "answers GET /v1/models with 503"}


@in_town(named("q", 1, 2))
async def test_of_an_address_that_left_nothing_is_found(it: Town) -> None:
    await it.open(1, card("q"))
    await asyncio.sleep(5)
    assert list(it.wrong()) == ["http://127.0.0.1:2"]
    it.discovery.apply(named("q", 1))
    await asyncio.sleep(1.5)
    assert it.wrong() == {}


@in_town(Config(models=tuple(Model(name=name, endpoints=("http://127.0.0.1:1",)) for name in "abc")))
async def test_each_pool_at_an_address_has_its_own_complaint(it: Town) -> None:
    await asyncio.sleep(5)
    assert list(it.wrong()) == ["http://127.0.0.1:1"]
    await it.open(1, card("a"))
    await asyncio.sleep(5)
    assert it.wrong() == {
        "b/127.0.0.1:1": "serves 'a', not 'b'",
        "c/127.0.0.1:1": "serves 'a', not 'c'",
    }
    it.served[1] = [card("a"), card("b"), card("c")]
    await asyncio.sleep(5)
    assert it.wrong() == {}


# -- readiness and health ---------------------------------------------------------------------------


@in_town(named("q", 1))
async def test_listing_a_model_is_not_being_ready_but_making_a_token_is(it: Town) -> None:
    it.stuck.add(1)
    await it.open(1, card("q"))
    await asyncio.sleep(100)
    assert it.states() == {"q/127.0.0.1:1": PROBING}
    assert "no answer in 30 s" in it.wrong()["http://127.0.0.1:1"]
    it.stuck.clear()
    await asyncio.sleep(35)
    assert it.states() == {"q/127.0.0.1:1": READY}


@in_town(
    Config(
        models=(Model(name="q", endpoints=("http://127.0.0.1:1",)),),
        health=Health(generate=False),
    )
)
async def test_no_token_is_asked_for_where_none_is_wanted(it: Town) -> None:
    await it.open(1, card("q"))
    await asyncio.sleep(0.5)
    assert it.states() == {"q/127.0.0.1:1": READY}
    assert it.tokens == []


@in_town(named("q", 1))
async def test_one_that_keeps_falling_is_asked_less_often(it: Town) -> None:
    await it.open(1, card("q"))
    await asyncio.sleep(0.5)
    it.gateway.table.by_name["q/127.0.0.1:1"].ejections = 3
    it.fail("q", FailureKind.CONNECT)
    it.asked.clear()
    await asyncio.sleep(6)
    assert it.states() == {"q/127.0.0.1:1": EJECTED}
    await asyncio.sleep(3)
    assert it.states() == {"q/127.0.0.1:1": READY}


def owe(it: Town, port: int) -> None:
    """Have an answer outstanding at this engine, over the network."""

    async def ask() -> None:
        connection = await it.pool.connect(f"http://127.0.0.1:{port}")
        body = b'{"model":"q"}'
        head = b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body)
        connection.send(head, (body,), len(body), Nobody())

    it.tasks.append(asyncio.create_task(ask()))


class Nobody:
    """Reader of an answer that never comes."""

    def begin(self, head: AnswerHead, body: bytes, complete: bool) -> None:
        raise AssertionError

    def read(self, body: bytes, complete: bool) -> None:
        raise AssertionError

    def failed(self, kind: FailureKind, detail: str) -> None:
        pass


@in_town(named("q", 1, 2))
async def test_an_engine_that_owes_answers_and_makes_no_token_is_ejected(it: Town) -> None:
    await it.open(1, card("q"))
    await it.open(2, card("q"))
    await asyncio.sleep(0.5)
    it.stuck.add(1)
    owe(it, 1)
    await asyncio.sleep(SILENT_S)
    assert set(it.states().values()) == {READY}
    await asyncio.sleep(REFRESH_S + 35)
    assert it.states() == {"q/127.0.0.1:1": EJECTED, "q/127.0.0.1:2": READY}


@in_town(named("q", 1))
async def test_the_last_one_may_be_busy_for_as_long_as_it_likes(it: Town) -> None:
    await it.open(1, card("q"))
    await asyncio.sleep(0.5)
    it.stuck.add(1)
    owe(it, 1)
    await asyncio.sleep(300)
    assert it.states() == {"q/127.0.0.1:1": READY}


@in_town(named("q", 1, 2))
async def test_one_that_is_silent_but_still_makes_tokens_stays(it: Town) -> None:
    await it.open(1, card("q"))
    await it.open(2, card("q"))
    await asyncio.sleep(0.5)
    it.stuck.add(1)
    owe(it, 1)
    await asyncio.sleep(1)
    it.stuck.clear()
    before = len(it.tokens)
    await asyncio.sleep(SILENT_S + 2 * REFRESH_S)
    assert set(it.states().values()) == {READY}
    assert len(it.tokens) > before


@in_town(named("q", 1, 2))
async def test_a_dead_one_is_found_at_once_when_doubted(it: Town) -> None:
    await it.open(1, card("q"))
    await it.open(2, card("q"))
    await asyncio.sleep(2.5)
    it.close(1)
    it.discovery.doubt("http://127.0.0.1:1")
    await asyncio.sleep(0.1)
    assert it.states() == {"q/127.0.0.1:1": EJECTED, "q/127.0.0.1:2": READY}


@in_town(named("q", 1, 2))
async def test_doubts_without_number_are_one_question_a_second(it: Town) -> None:
    await it.open(1, card("q"))
    await it.open(2, card("q"))
    await asyncio.sleep(2.5)
    it.tokens.clear()
    for _ in range(100):
        it.discovery.doubt("http://127.0.0.1:1")
        await asyncio.sleep(0.05)
    assert 5 <= len(it.tokens) <= 7


@in_town(named("q", 1, 2))
async def test_one_that_was_asked_in_vain_but_owes_nothing_keeps_its_work(it: Town) -> None:
    """It is slow, or too busy to make a token in time; that others are ready is no reason."""
    await it.open(1, card("q"))
    await it.open(2, card("q"))
    await asyncio.sleep(2.5)
    it.stuck.add(1)
    it.discovery.doubt("http://127.0.0.1:1")
    await asyncio.sleep(35)
    assert it.tokens[2:] == [(1, "q")]
    assert set(it.states().values()) == {READY}
    assert all(change.ok for change in it.probed)


@pytest.mark.parametrize(
    "ill", [socket.gaierror(socket.EAI_AGAIN, "no"), OSError(errno.EMFILE, "no")], ids=["resolver", "files"]
)
def test_what_fails_on_our_side_takes_work_from_nobody(ill: OSError) -> None:
    @in_town(named("q", 1, 2))
    async def test(it: Town) -> None:
        await it.open(1, card("q"))
        await it.open(2, card("q"))
        await asyncio.sleep(2.5)
        it.stuck.add(1)
        owe(it, 1)
        await asyncio.sleep(0.1)
        it.stuck.clear()
        it.network.ill = ill
        for _ in range(30):
            it.discovery.doubt("http://127.0.0.1:1")
            it.discovery.doubt("http://127.0.0.1:2")
            await asyncio.sleep(10)
        assert set(it.states().values()) == {READY}
        assert len(it.wrong()) == 2
        it.network.ill = None
        await asyncio.sleep(REFRESH_S + 1)
        assert it.wrong() == {}

    test()


@in_town(named("q", 1, 2))
async def test_one_that_is_cut_off_is_ejected_within_seconds_but_not_at_once(it: Town) -> None:
    await it.open(1, card("q"))
    await it.open(2, card("q"))
    await asyncio.sleep(2.5)
    it.network.hang("127.0.0.1", 1)
    it.discovery.doubt("http://127.0.0.1:1")
    await asyncio.sleep(2.5)
    assert set(it.states().values()) == {READY}
    await asyncio.sleep(2.5)
    assert it.states() == {"q/127.0.0.1:1": EJECTED, "q/127.0.0.1:2": READY}
    assert not it.probed[-1].refused
    it.network.heal("127.0.0.1", 1)
    await asyncio.sleep(4)
    assert set(it.states().values()) == {READY}


@in_town(named("q", 1, 2))
async def test_one_that_is_cut_off_is_found_without_any_doubt(it: Town) -> None:
    await it.open(1, card("q"))
    await it.open(2, card("q"))
    await asyncio.sleep(2.5)
    it.network.hang("127.0.0.1", 1)
    await asyncio.sleep(REFRESH_S + 5)
    assert it.states() == {"q/127.0.0.1:1": EJECTED, "q/127.0.0.1:2": READY}


@in_town(named("q", 1, 2))
async def test_connects_that_are_lost_now_and_then_eject_nobody(it: Town) -> None:
    await it.open(1, card("q"))
    await it.open(2, card("q"))
    await asyncio.sleep(2.5)
    for _ in range(5):
        it.network.hang("127.0.0.1", 1)
        it.discovery.doubt("http://127.0.0.1:1")
        await asyncio.sleep(1)
        it.network.heal("127.0.0.1", 1)
        await asyncio.sleep(5)
    assert set(it.states().values()) == {READY}


@in_town(named("q", 1, 2))
async def test_the_last_one_is_not_ejected_for_being_cut_off_but_for_refusing(it: Town) -> None:
    await it.open(1, card("q"))
    await it.open(2, card("q"))
    await asyncio.sleep(2.5)
    it.network.hang("127.0.0.1", 1)
    it.network.hang("127.0.0.1", 2)
    await asyncio.sleep(100)
    assert sorted(it.states().values()) == [READY, EJECTED]
    it.network.heal("127.0.0.1", 1)
    it.network.heal("127.0.0.1", 2)
    await asyncio.sleep(REFRESH_S + 5)
    assert set(it.states().values()) == {READY}
    for port in (1, 2):
        it.close(port)
        it.discovery.doubt(f"http://127.0.0.1:{port}")
        await asyncio.sleep(0.1)
        assert it.states()[f"q/127.0.0.1:{port}"] is EJECTED
        assert it.probed[-1].refused


@in_town(named("q", 1))
async def test_a_doubt_while_an_answer_is_awaited_is_not_lost(it: Town) -> None:
    await it.open(1, card("q"))
    await asyncio.sleep(2.5)
    it.stuck.add(1)
    it.discovery.doubt("http://127.0.0.1:1")
    await asyncio.sleep(0.1)
    it.stuck.clear()
    asked = len(it.tokens)
    await asyncio.sleep(10)
    it.discovery.doubt("http://127.0.0.1:1")
    await asyncio.sleep(19)
    assert len(it.tokens) == asked
    await asyncio.sleep(2)
    assert len(it.tokens) == asked + 1


@in_town(named("q", 1))
async def test_one_that_fell_while_it_was_looked_at_must_make_a_token(it: Town) -> None:
    await it.open(1, card("q"))
    await asyncio.sleep(2.5)
    it.stuck.add(1)
    it.network.latency_s = 0.5
    await asyncio.sleep(REFRESH_S - 2.25)
    it.fail("q", FailureKind.CONNECT)
    before = len(it.tokens)
    await asyncio.sleep(5)
    assert it.states() == {"q/127.0.0.1:1": EJECTED}
    assert len(it.tokens) == before + 1
    it.stuck.clear()
    await asyncio.sleep(40)
    assert it.states() == {"q/127.0.0.1:1": READY}


def test_a_doubt_has_the_name_resolved_again() -> None:
    source = EndpointsDns(dns="http://engines:1", ttl_s=1000.0)

    @in_town(Config(models=(Model(name="q", endpoints=source),)))
    async def test(it: Town) -> None:
        await it.open(1, card("q"))
        await asyncio.sleep(2.5)
        assert it.states() == {"q/127.0.0.1:1": READY}
        assert len(it.resolved) == 1
        it.discovery.doubt("http://127.0.0.1:1")
        await asyncio.sleep(1)
        assert len(it.resolved) == 2

    test()


def apart(isolate: str) -> Config:
    (model,) = named("q", 1).models
    return Config(models=(structs.replace(model, cache=Cache(isolate=isolate)),))


@in_town(apart("tenant"))
async def test_salts_outlast_a_reload_and_hold_for_adapters(it: Town) -> None:
    def salts() -> list[str | None]:
        routes = [it.models.find(name) for name in ("q", "x")]
        return [None if route.salter is None else route.salter.salt("a") for route in routes if route]

    await it.open(1, card("q"), card("x", parent="q"))
    await asyncio.sleep(1.5)
    before = salts()
    assert len(before) == 2
    assert before[0] == before[1] is not None
    it.discovery.apply(apart("tenant"))
    assert salts() == before
    it.discovery.apply(apart("none"))
    assert salts() == [None, None]


# -- adapters ---------------------------------------------------------------------------------------


@in_town(named("q", 1, 2, served_as="Q"))
async def test_adapters_are_served_where_they_are_loaded_and_followed(it: Town) -> None:
    await it.open(1, card("Q"), card("x", parent="Q"))
    await it.open(2, card("Q"), card("x", parent="Q"), card("y", parent="Q"))
    await asyncio.sleep(0.5)
    assert [name for name, _ in it.models.entries()] == ["q", "x", "y"]
    assert it.models.find("y") == Route("y", "q", adapter="y", limits=TOLD)
    assert dict(it.models.entries())["y"]["parent"] == "q"
    assert [e.facts.adapters for e in it.gateway.table.by_name.values()] == [("x",), ("x", "y")]
    it.served[2] = [card("Q")]
    await asyncio.sleep(REFRESH_S + 1)
    assert [name for name, _ in it.models.entries()] == ["q", "x"]


@in_town(named("q", 1, 2))
async def test_adapters_go_with_the_last_engine_that_had_them(it: Town) -> None:
    await it.open(1, card("q"))
    await it.open(2, card("q"), card("x", parent="q"))
    await asyncio.sleep(0.5)
    leg = it.seat("q")
    while leg.endpoint.name != "q/127.0.0.1:2":
        leg = it.seat("q")
    it.discovery.apply(named("q", 1))
    await asyncio.sleep(2)
    assert it.states()["q/127.0.0.1:2"] is EndpointState.DRAINING
    it.gateway.finish(leg.ticket, Outcome.COMPLETED, None, asyncio.get_running_loop().time())
    await asyncio.sleep(1.1)
    assert [name for name, _ in it.models.entries()] == ["q"]


@in_town(addresses(1, 2))
async def test_requests_may_be_as_long_as_the_engines_say(it: Town) -> None:
    await it.open(1, card("q"))
    await it.open(2, card("q", max_model_len=8192))
    await asyncio.sleep(0.5)
    route = it.models.find("q")
    assert route is not None
    assert route.limits.context == 8192
    it.served[2] = [card("q", max_model_len=2048)]
    await asyncio.sleep(REFRESH_S + 1)
    route = it.models.find("q")
    assert route is not None
    assert route.limits.context == 4096


@pytest.mark.parametrize(
    ("context", "before", "after"), [(None, 0, 4096), (1000, 1000, 1000), (9000, 9000, 4096)]
)
def test_the_configuration_may_allow_less_than_the_engines(
    context: int | None, before: int, after: int
) -> None:
    limits = ModelLimits(context=context, output=40, output_default=10)

    @in_town(Config(models=(structs.replace(named("q", 1).models[0], limits=limits),)))
    async def told(it: Town) -> None:
        assert it.models.find("q") == Route("q", "q", limits=TokenLimits(before, 40, 10))
        await it.open(1, card("q"))
        await asyncio.sleep(0.5)
        assert it.models.find("q") == Route("q", "q", limits=TokenLimits(after, 40, 10))

    told()


# -- other sources, other configurations ------------------------------------------------------------


def test_a_watched_file_replaces_the_whole_set(tmp_path: Path) -> None:
    file = tmp_path / "q.yaml"
    file.write_text("[http://127.0.0.1:1, http://127.0.0.1:2]")
    config = Config(models=(Model(name="q", endpoints=EndpointsFile(file)),))

    async def main() -> None:
        async with town(config) as it:
            for port in (1, 2, 3):
                await it.open(port, card("q"))
            await asyncio.sleep(0.5)
            assert it.states() == {"q/127.0.0.1:1": READY, "q/127.0.0.1:2": READY}
            file.write_text("[http://127.0.0.1:2, htp://127.0.0.1:3]")
            await asyncio.sleep(2.5)
            assert it.states() == {"q/127.0.0.1:1": READY, "q/127.0.0.1:2": READY}
            assert "scheme must be http or https" in it.wrong()["q"]
            file.write_text("[http://127.0.0.1:2, http://127.0.0.1:3]")
            await asyncio.sleep(3.5)
            assert it.states() == {"q/127.0.0.1:2": READY, "q/127.0.0.1:3": READY}
            assert it.wrong() == {}

    virtual.run(main())


@in_town(named("q", 1, 2))
async def test_a_changed_configuration_leaves_alone_what_it_does_not_change(it: Town) -> None:
    for port in (1, 2, 3):
        await it.open(port, card("q"), card("r"))
    await asyncio.sleep(0.5)
    leg = it.seat("q")
    kept = it.gateway.table.by_name["q/127.0.0.1:2"]
    urls = ("http://127.0.0.1:2", "http://127.0.0.1:3")
    models = (Model(name="q", endpoints=urls, aliases=("z",)), Model(name="r", endpoints=urls[:1]))
    it.discovery.apply(Config(models=models))
    await asyncio.sleep(1.5)
    left = {"q/127.0.0.1:1": EndpointState.DRAINING} if leg.endpoint.name == "q/127.0.0.1:1" else {}
    ready = dict.fromkeys(("q/127.0.0.1:2", "q/127.0.0.1:3", "r/127.0.0.1:2"), READY)
    assert it.states() == {**left, **ready}
    assert it.gateway.table.by_name["q/127.0.0.1:2"] is kept
    assert kept.incarnation == 0
    assert [name for name, _ in it.models.entries()] == ["q", "z", "r"]
    it.discovery.apply(addresses(1))
    await asyncio.sleep(1.5)
    assert [name for name, _ in it.models.entries()] == ["q", "r"]
    assert {"q/127.0.0.1:1", "r/127.0.0.1:1"} <= set(it.states())


@in_town(named("q", 1))
async def test_what_is_no_list_of_models_is_said(it: Town) -> None:
    await it.open(1, {"object": "model"})
    await asyncio.sleep(0.5)
    assert it.gateway.table.by_name["q/127.0.0.1:1"].why.startswith("not a list of models: ")


@in_town(named("q", 1, served_as="Q"))
async def test_an_engine_is_asked_at_once_for_the_name_it_is_now_known_by(it: Town) -> None:
    await it.open(1, card("Q"), card("R"))
    await asyncio.sleep(5.5)
    asked = len(it.asked)
    it.discovery.apply(named("q", 1, served_as="Q"))
    await asyncio.sleep(0.1)
    assert len(it.asked) == asked
    it.discovery.apply(named("q", 1, served_as="R"))
    await asyncio.sleep(0.1)
    (endpoint,) = it.gateway.table.by_name.values()
    assert (endpoint.state, endpoint.facts.model) == (READY, "R")
    await asyncio.sleep(2)
    it.discovery.apply(named("q", 1, served_as="S"))
    await asyncio.sleep(0.1)
    assert (endpoint.state, endpoint.why) == (EJECTED, "serves 'Q', not 'S'; add served_as: Q")


@in_town(named("q", 1))
async def test_a_configuration_that_could_not_be_applied_leaves_the_sources_in_force(it: Town) -> None:
    def follow(_name: str, _spec: object) -> None:
        raise ZeroDivisionError

    await it.open(2, card("q"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(it.discovery.sources, "follow", follow)
        with pytest.raises(ZeroDivisionError):
            it.discovery.apply(named("q", 1, 3))
    it.discovery.sources.follow("q", ("http://127.0.0.1:2",))
    await asyncio.sleep(1.5)
    assert it.states() == {"q/127.0.0.1:2": READY}
