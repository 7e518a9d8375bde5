"""Names: what clients may say is what the engines really have, and nothing falls back to something else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import openai
import pytest

from maitred.config.tree import Config, Model
from maitred.control import discovery
from tests.cases.place import ANYWHERE, Place, on_sockets, opened
from tests.cases.upstream import GOOD, Engine, adapter, card, stream
from tests.net.http import get, post
from tests.proxy.place import CHAT, chat
from tests.proxy.upstream import JSON

SAY: Any = [{"role": "user", "content": "hi"}]


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines that are well are looked at often."""
    monkeypatch.setattr(discovery, "PERIOD_S", 0.05)
    monkeypatch.setattr(discovery, "REFRESH_S", 0.1)


def fleet() -> list[Engine]:
    """Two engines of one model, each with an adapter of its own and one that both have."""
    one, two = Engine(), Engine()
    one.models = [card("base"), adapter("lora-a", "base"), adapter("lora-both", "base")]
    two.models = [card("base"), adapter("lora-b", "base"), adapter("lora-both", "base")]
    return [one, two]


def named(**options: Any) -> Callable[[list[str]], Config]:
    """A configuration that serves `base` under this name."""
    return lambda urls: Config(listen=ANYWHERE, models=(Model(endpoints=tuple(urls), **options),))


CONFIGS: dict[str, Callable[[list[str]], Config]] = {
    "named": named(name="base", aliases=("default",)),
    "renamed": named(name="mine", aliases=("default",), served_as="base"),
    "learned": lambda urls: Config(listen=ANYWHERE, endpoints=tuple(urls)),
}
OWN = {"named": ["base", "default"], "renamed": ["mine", "default"], "learned": ["base"]}
ADAPTERS = ["lora-a", "lora-b", "lora-both"]


async def listed(place: Place) -> list[str]:
    """What /v1/models names."""
    return [entry["id"] for entry in (await place.ask(get("/v1/models"))).json["data"]]


async def lists(place: Place, names: list[str]) -> None:
    """Wait until exactly these are listed."""
    while sorted(await listed(place)) != sorted(names):
        await asyncio.sleep(0.01)


class TestTheUnion:
    """B77: vllm-project/router#81, vllm-project/production-stack#331, gpustack/gpustack#2622.

    Only one worker's list was shown, adapters were unknown or silently another model. Here the list is the
    union, a name goes only where it is loaded, and what is loaded nowhere is 404.
    """

    @pytest.mark.parametrize("kind", CONFIGS)
    @on_sockets
    async def test_each_name_is_listed_once(self, kind: str) -> None:
        async with opened(fleet(), config=CONFIGS[kind]) as place:
            await lists(place, OWN[kind] + ADAPTERS)
            entries = (await place.ask(get("/v1/models"))).json["data"]
            parents = {entry["id"]: entry.get("parent") for entry in entries}
            assert all(parents[name] for name in ADAPTERS)
            one = await place.ask(get("/v1/models/lora-b"))
            assert (one.status, one.json["id"]) == (200, "lora-b")
            async with place.openai() as client:
                assert {model.id async for model in client.models.list()} == set(parents)

    @pytest.mark.parametrize("kind", CONFIGS)
    @pytest.mark.parametrize("name", [*ADAPTERS, "own"])
    @on_sockets
    async def test_each_goes_only_where_it_is(self, kind: str, name: str) -> None:
        engines = fleet()
        async with opened(engines, config=CONFIGS[kind]) as place:
            await lists(place, OWN[kind] + ADAPTERS)
            said = OWN[kind][0] if name == "own" else name
            for _ in range(6):
                assert (await place.ask(post(CHAT, chat(model=said)))).status == 200
            counts = [len(engine.script.asked) for engine in engines]
            assert counts == {"lora-a": [6, 0], "lora-b": [0, 6]}.get(name, [3, 3])
            expected = "base" if name == "own" else name
            asked = [asked for engine in engines for asked in engine.script.asked]
            assert {json.loads(one.body)["model"] for one in asked} == {expected}
            assert {line["model"] for line in place.lines if line.get("api")} <= {said, OWN[kind][0]}

    @pytest.mark.parametrize("name", ["lora-c", "base-2", "Base", "", "base/../base", "lora-a ", "m" * 5000])
    @pytest.mark.parametrize("kind", CONFIGS)
    @on_sockets
    async def test_what_nobody_has_is_not_found(self, kind: str, name: str) -> None:
        engines = fleet()
        async with opened(engines, config=CONFIGS[kind]) as place:
            await lists(place, OWN[kind] + ADAPTERS)
            async with place.openai() as client:
                with pytest.raises(openai.APIStatusError) as failed:
                    await client.chat.completions.create(model=name, messages=SAY)
            assert failed.value.status_code == (404 if name else 400)
            assert failed.value.param == "model"
            assert (failed.value.code == "model_not_found") == bool(name)
            assert all(engine.script.asked == [] for engine in engines)

    @pytest.mark.parametrize("kind", CONFIGS)
    @on_sockets
    async def test_an_adapter_that_is_unloaded_is_gone_and_one_that_is_loaded_is_there(
        self, kind: str
    ) -> None:
        one, two = engines = fleet()
        async with opened(engines, config=CONFIGS[kind]) as place:
            await lists(place, OWN[kind] + ADAPTERS)
            two.models = [card("base"), adapter("lora-new", "base"), adapter("lora-both", "base")]
            await lists(place, [*OWN[kind], "lora-a", "lora-both", "lora-new"])
            gone = await place.ask(post(CHAT, chat(model="lora-b")))
            assert (gone.status, gone.json["error"]["code"]) == (404, "model_not_found")
            assert (await place.ask(post(CHAT, chat(model="lora-new")))).body == JSON
            assert (len(one.script.asked), len(two.script.asked)) == (0, 1)
            one.models = [card("base")]
            two.models = [card("base")]
            await lists(place, OWN[kind])
            assert (await place.ask(post(CHAT, chat(model="lora-both")))).status == 404
            await place.ready(2)

    @on_sockets
    async def test_a_stream_of_an_adapter_keeps_its_name(self) -> None:
        engines = fleet()
        for engine in engines:
            engine.script.set(stream())
        async with opened(engines, config=CONFIGS["renamed"]) as place:
            await lists(place, OWN["renamed"] + ADAPTERS)
            answer = await place.ask(post(CHAT, chat(model="lora-a", stream=True)))
            assert answer.status == 200
            assert b'"model":"m"' in answer.body

    @on_sockets
    async def test_an_engine_with_another_model_gets_nothing(self) -> None:
        """It answers, but as another one than the configuration says: it is not given this one's work."""
        right, wrong = Engine(GOOD), Engine(GOOD)
        right.models, wrong.models = [card("base")], [card("other")]

        async def begin(place: Place) -> None:
            await place.begin()
            await place.until(lambda: sorted(state.label for state in place.states) == ["probing", "ready"])

        async with opened([right, wrong], config=CONFIGS["named"], begin=begin) as place:
            for _ in range(4):
                assert (await place.ask(post(CHAT, chat(model="base")))).status == 200
            assert (len(right.script.asked), len(wrong.script.asked)) == (4, 0)
            assert await listed(place) == ["base", "default"]
            await place.until(lambda: [f.kind for f in place.findings] == ["wrong_model"])
            wrong.models = [card("base")]
            await place.ready(2)
            await place.until(lambda: not place.findings)
