"""Which engines there are: whoever is gone is gone, whatever the news of it, and nobody is there twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from maitred.config.tree import Config, EndpointsFile, Model
from maitred.control import discovery, sources
from maitred.core.words import EndpointState
from tests.cases.place import ANYWHERE, Place, on_sockets, opened
from tests.cases.upstream import GOOD, Engine, Plan, card, stream
from tests.net.http import get, post
from tests.ports import free_port
from tests.proxy.place import CHAT, STREAM, WHOLE, chat
from tests.proxy.upstream import DONE, JSON, LAST, chunk, word

READY, EJECTED = EndpointState.READY, EndpointState.EJECTED


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files and engines are looked at often."""
    monkeypatch.setattr(discovery, "PERIOD_S", 0.05)
    monkeypatch.setattr(sources, "PERIOD_S", 0.05)


def held(rest: asyncio.Event) -> Plan:
    """A stream that goes on when the test says so."""
    return [*stream(word("Hello"), end=()), rest, chunk(DONE), LAST]


def watched(file: Path) -> Callable[[list[str]], Config]:
    """One model, whose engines are listed in this file: all of them at first."""

    def config(urls: list[str]) -> Config:
        write(file, *urls)
        return Config(listen=ANYWHERE, models=(Model("m", EndpointsFile(file)),))

    return config


def write(file: Path, *lines: str) -> None:
    """Replace the file in one step, as whoever cares about readers does."""
    fresh = file.with_suffix(".new")
    fresh.write_text("".join(f"- {line}\n" for line in lines) or "[]\n")
    fresh.replace(file)


class TestGhosts:
    """B65: vllm-project/production-stack#1091, vllm-project/production-stack#1008,
    vllm-project/production-stack#656, sgl-project/sglang#30270.

    A removal missed while a watch was down left a worker for 22 hours; an event without an address cleared
    the wrong one; a probe that hung held up all the news. The whole set is the news, asking one engine holds
    up no other, and one that refuses connections leaves at once whatever anybody says of it.
    """

    @on_sockets
    async def test_the_set_is_what_the_file_says_however_it_got_there(self, tmp_path: Path) -> None:
        file, rest = tmp_path / "engines.yaml", asyncio.Event()
        stays, goes = Engine(), Engine(held(rest))
        async with opened([stays, goes], config=watched(file)) as place:
            busy = await place.client()
            while not goes.script.asked:
                busy.leave()
                stays.script.asked.clear()
                busy = await place.client()
                busy.send(STREAM)
                await place.until(lambda: bool(goes.script.asked or stays.script.asked))
            await busy.heard(b"Hello")
            file.unlink()  # the watch is down: what is known stays in force
            await place.until(lambda: [f.kind for f in place.findings] == ["endpoints_file"])
            assert place.states == [READY, READY]
            write(file, stays.url)  # and the removal happened meanwhile
            await place.until(lambda: not place.findings)
            asked = len(goes.script.asked)
            for _ in range(4):
                assert (await place.ask(WHOLE)).body == JSON
            assert len(goes.script.asked) == asked, "it gets nothing new"
            rest.set()
            assert (await busy.answer()).body == word("Hello") + DONE
            await place.until(lambda: place.urls == {stays.url})

    @pytest.mark.parametrize(
        "news",
        ["http://:8000", "''", "null", "http://", "{url: x", "http://127.0.0.1:1/v1", "ftp://127.0.0.1:1"],
    )
    @on_sockets
    async def test_news_that_cannot_be_read_changes_nothing(self, news: str, tmp_path: Path) -> None:
        file = tmp_path / "engines.yaml"
        async with opened([Engine(), Engine()], config=watched(file)) as place:
            one, two = sorted(place.urls)
            write(file, one, news)
            await place.until(lambda: [f.kind for f in place.findings] == ["endpoints_file"])
            assert str(file) in place.findings[0].what
            assert place.urls == {one, two}
            assert (await place.ask()).body == JSON
            write(file, two)
            await place.until(lambda: place.urls == {two})
            assert place.findings == []

    @on_sockets
    async def test_a_probe_that_hangs_holds_nobody_up(self, tmp_path: Path) -> None:
        file = tmp_path / "engines.yaml"
        hangs, well, late = Engine(), Engine(), Engine()
        hangs.models = None
        await late.open()

        async def begin(place: Place) -> None:
            await place.begin()
            await place.until(lambda: sorted(state.label for state in place.states) == ["probing", "ready"])

        async with opened([hangs, well], config=watched(file), begin=begin) as place:
            write(file, hangs.url, late.url)
            await place.until(lambda: place.urls == {hangs.url, late.url} and READY in place.states)
            assert (await place.ask()).body == JSON
            assert len(late.script.asked) == 1
            assert len(hangs.questions) == 1, "one question at a time"
            write(file)
            await place.until(lambda: not place.states)
            assert (await place.ask(WHOLE)).status == 503
            hangs.close()

    @on_sockets
    async def test_whoever_refuses_leaves_at_once_whatever_the_file_says(self, tmp_path: Path) -> None:
        file = tmp_path / "engines.yaml"
        one, two, port = Engine(), Engine(), free_port()
        await one.open(port)
        async with opened([one, two], config=watched(file)) as place:
            one.close()
            for _ in range(6):
                assert (await place.ask()).body == JSON
            assert sorted(place.states) == [READY, EJECTED]
            assert (await place.ask(get("/readyz"))).status == 200
            two.close()
            assert (await place.ask()).status in (502, 503)
            await place.until(lambda: place.states == [EJECTED, EJECTED])
            assert (await place.ask(get("/readyz"))).status == 503
            assert (await place.ask(get("/livez"))).status == 200
            await one.open(port)
            await place.until(lambda: READY in place.states)
            assert (await place.ask(get("/readyz"))).status == 200
            assert (await place.ask()).body == JSON


def served(model: str, url: str) -> Config:
    """One model at one address."""
    return Config(listen=ANYWHERE, models=(Model(model, (url,)),))


class TestTheSameAddressAgain:
    """B67: vllm-project/router#255, sgl-project/sglang#38523.

    An address that was registered again as another model left the old entry routable, unprobed and counted.
    Addresses are replaced as a whole: nothing of the old entry is found by any name.
    """

    @on_sockets
    async def test_as_another_model(self) -> None:
        engine = Engine()
        async with opened([engine], config=lambda found: served("m", found[0])) as place:
            assert (await place.ask()).body == JSON
            engine.models = [card("b")]
            place.app.apply(served("b", engine.url))
            await place.until(
                lambda: list(place.app.house.gateway.table.by_name) == [f"b/127.0.0.1:{engine.port}"]
            )
            await place.ready()
            assert (await place.ask()).status == 404
            assert (await place.ask(post(CHAT, chat(model="b")))).body == JSON
            listed = (await place.ask(get("/v1/models"))).json["data"]
            assert [entry["id"] for entry in listed] == ["b"]
            assert set(place.app.house.gateway.table.by_pool) == {"b"}

    @on_sockets
    async def test_while_the_old_one_is_at_work(self) -> None:
        """Its stream ends as it would have; its entry is gone with it, and takes no place of the new one."""
        rest = asyncio.Event()
        engine = Engine(held(rest), GOOD)
        async with opened([engine], config=lambda found: served("m", found[0])) as place:
            client = await place.client()
            client.send(STREAM)
            await client.heard(b"Hello")
            engine.models = [card("b")]
            place.app.apply(served("b", engine.url))
            await place.until(lambda: READY in place.states)
            assert (await place.ask()).status == 404
            assert (await place.ask(post(CHAT, chat(model="b")))).body == JSON
            rest.set()
            assert (await client.answer()).body == word("Hello") + DONE
            await place.until(lambda: set(place.app.house.gateway.table.by_pool) == {"b"})
            assert (place.states, place.running) == ([READY], [0])

    @on_sockets
    async def test_back_and_forth_and_away(self) -> None:
        engine, other = Engine(), Engine()
        await other.open()
        engine.models = other.models = [card("m"), card("b")]
        async with opened([engine], config=lambda found: served("m", found[0])) as place:
            table = place.app.house.gateway.table
            for turn in range(30):
                place.app.apply(served("bm"[turn % 2], engine.url))
                assert len(table.by_name) == 1
            await place.ready()
            assert (await place.ask()).body == JSON
            incarnation = next(iter(table.by_name.values())).incarnation
            place.app.apply(served("m", other.url))
            await place.until(lambda: place.urls == {other.url} and place.states == [READY])
            place.app.apply(served("m", engine.url))
            await place.until(lambda: place.urls == {engine.url} and place.states == [READY])
            (endpoint,) = table.by_name.values()
            assert (endpoint.seated, endpoint.running, endpoint.failures) == (0, 0, 0)
            assert (await place.ask()).body == JSON
            assert incarnation >= 0

    @on_sockets
    async def test_another_engine_at_the_address_is_another_incarnation(self) -> None:
        engine, port = Engine(), free_port()
        await engine.open(port)
        async with opened([engine]) as place:
            (endpoint,) = place.app.house.gateway.table.by_name.values()
            before = endpoint.incarnation
            engine.close()
            assert (await place.ask()).status in (502, 503)
            await place.until(lambda: place.states == [EJECTED])
            await engine.open(port)
            await place.until(lambda: place.states == [READY])
            assert endpoint.incarnation == before + 1
            assert (await place.ask()).body == JSON
