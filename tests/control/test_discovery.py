"""Discovery: engines asked each second until they answer, in virtual time against scripted engines."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from maitred.config.load import load
from maitred.config.tree import Config, Model
from maitred.control.discovery import Discovery
from maitred.control.models import Models, Route
from maitred.core.gateway import Gateway
from maitred.core.outcome import FailureKind
from maitred.core.words import Abilities, Api, Change, EndpointState, Failure, Identity, Request
from maitred.net import virtual
from maitred.net.client import Patience
from maitred.net.memory import MemoryNetwork
from maitred.net.pool import Pool
from maitred.net.sweep import Sweep

PROBING, READY, EJECTED, _, GONE = EndpointState


def card(name: str, **more: object) -> dict[str, object]:
    return {"id": name, "object": "model", "owned_by": "vllm", "max_model_len": 4096, **more}


class Engine(asyncio.Protocol):
    """Answers every request with its list of models, and counts the questions."""

    def __init__(self, status: int, models: list[dict[str, object]], asked: list[float]) -> None:
        self.status, self.models, self.asked = status, models, asked

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        assert data.startswith(b"GET /v1/models HTTP/1.1\r\n")
        self.asked.append(asyncio.get_running_loop().time())
        body = json.dumps({"object": "list", "data": self.models}).encode()
        head = f"HTTP/1.1 {self.status} X\r\ncontent-length: {len(body)}\r\n\r\n"
        self.transport.write(head.encode() + body)


class Town:
    """A discovery under way, and the means to open and close engines by port."""

    def __init__(self, config: Config) -> None:
        loop = asyncio.get_running_loop()
        self.network = MemoryNetwork()
        self.gateway = Gateway(config.core_settings(), Abilities(), Random(1))
        self.models = Models()
        self.asked: list[float] = []
        self.listeners: dict[int, Any] = {}
        sweep = Sweep(loop.time)
        sweep.start()
        self.pool = Pool(self.network, sweep, Patience())
        self.discovery = Discovery(config, self.models, self.gateway.table, self.pool, self.update)
        self.tasks = [asyncio.create_task(self.discovery.run())]

    def update(self, change: Change) -> None:
        self.gateway.update(change, asyncio.get_running_loop().time())

    async def open(self, port: int, *models: dict[str, object], status: int = 200) -> None:
        def engine() -> Engine:
            return Engine(status, list(models), self.asked)

        self.listeners[port] = await self.network.listen(engine, "127.0.0.1", port)

    def close(self, port: int) -> None:
        self.listeners.pop(port).close()

    def states(self) -> dict[str, EndpointState]:
        return {name: endpoint.state for name, endpoint in self.gateway.table.by_name.items()}


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
    assert it.models.find("q") == Route("q", "q", "Q")
    assert it.models.find("default") == Route("default", "q", "Q")
    assert dict(it.models.entries())["q"]["max_model_len"] == 4096


@in_town(addresses(1, 2, 3))
async def test_models_are_learned_from_addresses(it: Town) -> None:
    assert not it.models.known
    await it.open(1, card("a"))
    await it.open(2, card("a"), card("b"), card("lora", parent="a"))
    await asyncio.sleep(0.5)
    assert it.states() == {"a/127.0.0.1:1": READY, "a/127.0.0.1:2": READY, "b/127.0.0.1:2": READY}
    assert [name for name, _ in it.models.entries()] == ["a", "b"]
    await it.open(3, card("b"))
    await asyncio.sleep(1)
    assert it.states()["b/127.0.0.1:3"] is READY


@in_town(named("q", 1))
async def test_an_engine_is_asked_each_second_until_it_answers_and_then_left_in_peace(it: Town) -> None:
    await it.open(1, status=503)
    await asyncio.sleep(3.5)
    assert len(it.asked) == 4
    assert it.gateway.table.by_name["q/127.0.0.1:1"].why == "answers GET /v1/models with 503"
    it.close(1)
    await it.open(1, card("q"))
    await asyncio.sleep(10)
    assert it.states() == {"q/127.0.0.1:1": READY}
    assert len(it.asked) == 5


@in_town(named("q", 1))
async def test_it_is_asked_again_after_a_connect_failure(it: Town) -> None:
    await it.open(1, card("q"))
    await asyncio.sleep(0.5)
    it.gateway.accept(Request("r", Api.CHAT, "q", "q"), Identity(), 0.0)
    (effect,) = it.gateway.release(0.0)
    (leg,) = effect.legs  # type: ignore[union-attr]
    it.gateway.fail(leg, Failure(FailureKind.CONNECT), 0.0)
    assert it.states() == {"q/127.0.0.1:1": EJECTED}
    await asyncio.sleep(1)
    assert it.states() == {"q/127.0.0.1:1": READY}
    assert it.gateway.table.by_name["q/127.0.0.1:1"].incarnation == 1


@in_town(addresses(1))
async def test_an_engine_that_comes_back_with_another_model_moves(it: Town) -> None:
    await it.open(1, card("a"))
    await asyncio.sleep(0.5)
    (endpoint,) = it.gateway.table.by_name.values()
    it.gateway.accept(Request("r", Api.CHAT, "a", "a"), Identity(), 0.0)
    (effect,) = it.gateway.release(0.0)
    it.gateway.fail(effect.legs[0], Failure(FailureKind.CONNECT), 0.0)  # type: ignore[union-attr]
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
            assert "http://127.0.0.1:1 does not answer" in caplog.messages[0]
            await it.open(1, card("q"))
            await asyncio.sleep(1)
            assert it.gateway.table.by_name["q/127.0.0.1:1"].state is READY
            assert len(caplog.messages) == 1

    with caplog.at_level(logging.WARNING, "maitred.discovery"):
        virtual.run(main())


@pytest.mark.parametrize("names", [("a", "b", "c"), ("b", "c", "a")])
def test_a_complaint_about_one_of_several_pools_at_an_address_is_logged_once(
    names: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        url = ("http://127.0.0.1:1",)
        async with town(Config(models=tuple(Model(name=name, endpoints=url) for name in names))) as it:
            await asyncio.sleep(5)
            assert [message.split(";")[0] for message in caplog.messages] == [
                "http://127.0.0.1:1 does not answer (Connect call failed ('127.0.0.1', 1))"
            ]
            caplog.clear()
            await it.open(1, card("a"))
            await asyncio.sleep(5)
            assert sorted(message.split(";")[0] for message in caplog.messages) == [
                "http://127.0.0.1:1 serves 'a', not 'b'",
                "http://127.0.0.1:1 serves 'a', not 'c'",
            ]
            caplog.clear()
            it.close(1)
            await asyncio.sleep(5)
            assert len(caplog.messages) == 1

    with caplog.at_level(logging.WARNING, "maitred.discovery"):
        virtual.run(main())


@in_town(named("q", 1))
async def test_what_is_no_list_of_models_is_said(it: Town) -> None:
    await it.open(1, {"object": "model"})
    await asyncio.sleep(0.5)
    assert it.gateway.table.by_name["q/127.0.0.1:1"].why.startswith("not a list of models: ")
