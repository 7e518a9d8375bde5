"""What engines say of their load may be wrong, old or missing: what we gave them ourselves is known."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from maitred.app.gateway import GatewayApp
from maitred.config.kinds import Address
from maitred.config.tree import Config, Listen, Model, Scrape
from maitred.core.outcome import Outcome
from maitred.core.saturation import SATURATION, STALE_S
from maitred.core.words import EndpointState, Facts, Load, Observed, Stop
from maitred.observe.exposition import render
from tests.control.engines import HANG, Answer, Engine, Street, models, street
from tests.core.hall import Hall, limited
from tests.net.http import connected, post
from tests.proxy.place import CHAT, chat, in_virtual_time
from tests.proxy.upstream import JSON

IDLE, BUSY = Load(0, 0, kv_use=0.01), Load(99, 99, kv_use=0.99)


def say(hall: Hall, load: Load, *hosts: str) -> None:
    """Have these engines say so, now."""
    for host in hosts:
        hall.gateway.update(Observed(f"p/{host}:1", load), hall.now)


class TestAWrongSignal:
    """B29: ai-dynamo/dynamo#7753, ai-dynamo/dynamo#5796, ai-dynamo/dynamo#9688.

    Two reporters wrote one figure, an engine always told none, and busy ones were chosen until all were.
    """

    @pytest.mark.parametrize("policy", SATURATION)
    def test_two_reporters_that_contradict_each_other_pass_no_cap(self, policy: str) -> None:
        hall = Hall(limited(cap=4, saturation=policy))
        hall.open(p="a")
        for _ in range(8):
            hall.accept()
            for load in (BUSY, IDLE):
                say(hall, load, "a")
                hall.release()
                assert hall.running()["p/a:1"] <= 4
        assert hall.running() == {"p/a:1": 4}
        assert hall.waiting() == 4

    @pytest.mark.parametrize("policy", sorted(SATURATION.keys() - {"utilization"}))
    def test_nor_do_they_stop_anything_where_the_ledger_decides(self, policy: str) -> None:
        hall = Hall(limited(cap=4, saturation=policy))
        hall.address(p="a")
        hall.probe("p/a:1", facts=Facts(kv_tokens=1_000_000))
        say(hall, BUSY, "a")
        assert [hall.seat().endpoint.name for _ in range(4)] == ["p/a:1"] * 4

    @pytest.mark.parametrize("policy", SATURATION)
    def test_one_that_always_tells_nothing_to_do_gets_no_more_than_others(self, policy: str) -> None:
        hall = Hall(limited(cap=16, saturation=policy))
        hall.open(p="abcd")
        for _ in range(40):
            say(hall, IDLE, "a")
            hall.seat()
        assert set(hall.running().values()) == {10}

    def test_while_one_is_not_busy_it_is_chosen_and_nobody_refused(self) -> None:
        hall = Hall(limited(cap=16, saturation="utilization", queue_wait_s=10.0))
        hall.open(p="abcd")
        say(hall, BUSY, *"abc")
        say(hall, IDLE, "d")
        assert {hall.seat().endpoint.name for _ in range(10)} == {"p/d:1"}
        say(hall, BUSY, "d")
        late = hall.accept()
        assert hall.release() == []
        hall.now += 10.0
        [stop] = hall.release()
        assert isinstance(stop, Stop)
        assert (stop.ticket, stop.outcome) == (late, Outcome.QUEUE_DEADLINE)


BROKEN: dict[str, Answer] = {
    "500": (500, b"{}"),
    "no answer": HANG,
    "garbage": (200, b"\x00\xff<html>"),
    "a family dropped": (200, b"vllm:num_requests_running 3\n"),
    "no numbers": (200, b"vllm:num_requests_running NaN\nvllm:num_requests_waiting -1\n"),
}


def told(waiting: int = 0) -> Answer:
    """Metrics as vLLM has them."""
    return 200, b"vllm:num_requests_running 1\nvllm:num_requests_waiting %d\n" % waiting


class Town:
    """A gateway before engines whose metrics can be broken."""

    def __init__(self, street: Street, engines: list[Engine], app: GatewayApp, address: Any) -> None:
        self.engines = engines
        self.app = app
        self._street = street
        self._address = address

    async def ask(self) -> int:
        """One request; its status."""
        client = await connected(self._street.network, self._address)
        client.send(post(CHAT, chat()))
        answer = await client.answer()
        client.leave()
        return answer.status

    def served(self) -> Counter[int]:
        """How many requests each engine had."""
        return Counter({n: engine.paths().count(CHAT) for n, engine in enumerate(self.engines)})


@asynccontextmanager
async def town(count: int, takes_s: float = 0.0, waiting: int = 0, **model: Any) -> AsyncIterator[Town]:
    """So many engines, asked for their metrics each second."""
    loop = asyncio.get_running_loop()
    async with street() as it:
        answers = {
            "/v1/models": models("m"),
            "/v1/completions": (200, b'{"choices": []}'),
            CHAT: (200, JSON),
            "/metrics": told(waiting),
        }
        ports = range(1, count + 1)
        engines = [await it.open(port, {**answers}, takes_s) for port in ports]
        served = Model("m", tuple(f"http://127.0.0.1:{port}" for port in ports), **model)
        listen, scrape = Listen(Address("127.0.0.1", 0)), Scrape(period_s=1.0)
        app = GatewayApp(Config(listen=listen, models=(served,), scrape=scrape), it.network, loop.time)
        address = await app.start()
        await asyncio.sleep(5)
        endpoints = app.house.gateway.table.by_name.values()
        assert {endpoint.state for endpoint in endpoints} == {EndpointState.READY}
        yield Town(it, engines, app, address)
        await app.stop()


class TestMetricsThatCannotBeRead:
    """B30: llm-d/llm-d-router#2165, smg-project/smg#1683, vllm-project/aibrix#2569,
    kubernetes-sigs/gateway-api-inference-extension#365.

    The last word of an engine was believed for ever: all went to one that had been idle, or nothing moved.
    """

    @pytest.mark.parametrize("broken", BROKEN)
    @in_virtual_time(200)
    async def test_its_last_word_that_it_is_full_is_forgotten(self, broken: str) -> None:
        async with town(1, waiting=99, saturation="utilization") as it:
            it.engines[0].answers["/metrics"] = BROKEN[broken]
            begin = asyncio.get_running_loop().time()
            assert await it.ask() == 200
            assert STALE_S - 3 < asyncio.get_running_loop().time() - begin <= STALE_S + 0.1

    @pytest.mark.parametrize("policy", ["auto", "utilization"])
    @pytest.mark.parametrize("broken", BROKEN)
    @in_virtual_time(200)
    async def test_its_last_word_that_it_is_idle_draws_nobody(self, broken: str, policy: str) -> None:
        async with town(2, takes_s=0.5, saturation=policy) as it:
            silent, well = it.engines
            silent.answers["/metrics"] = BROKEN[broken]
            for _ in range(3):
                before = it.served()
                assert await asyncio.gather(*(it.ask() for _ in range(20))) == [200] * 20
                assert it.served() - before == {0: 10, 1: 10}
                await asyncio.sleep(10)
            (finding,) = [each for each in it.app.findings.current() if each.kind == "metrics_stale"]
            assert finding.where == "http://127.0.0.1:1"
            text = b"".join(render(it.app.metrics)).decode()
            ages = {
                line.split('"')[1]: float(line.rpartition(" ")[2])
                for line in text.splitlines()
                if line.startswith("maitred_engine_metrics_age_seconds{")
            }
            assert ages["m/127.0.0.1:1"] > 20 > 3 > ages["m/127.0.0.1:2"]
            assert well.paths().count("/metrics") > 25 > silent.paths().count("/metrics")
