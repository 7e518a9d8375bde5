"""The start of a gateway beside others that start too: it waits, says for what, and needs no second start."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from maitred.config.tree import Config, EndpointsDns, EndpointsFile, Model
from maitred.control import discovery, sources
from maitred.control.probe import Patience
from tests.cases.place import ANYWHERE, Place, admin_port, on_sockets, opened
from tests.cases.upstream import Engine
from tests.net.http import get
from tests.ports import free_port
from tests.proxy.place import WHOLE
from tests.proxy.upstream import JSON

HURRY = Patience(answer_s=0.1, token_s=0.1)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing is looked for often."""
    monkeypatch.setattr(discovery, "PERIOD_S", 0.02)
    monkeypatch.setattr(sources, "PERIOD_S", 0.02)


async def waits(place: Place, kind: str) -> None:
    """It lives, is not ready, refuses properly and says why."""
    assert (await place.ask(get("/livez"))).status == 200
    assert (await place.ask(get("/readyz"))).status == 503
    refused = await place.ask(WHOLE)
    assert (refused.status, refused.outcome) == (503, "no_endpoint")
    assert refused.value(b"x-should-retry") == b"true"
    assert int(refused.value(b"retry-after")) >= 1
    await place.until(lambda: kind in {finding.kind for finding in place.findings})
    async with admin_port(place) as ask:
        findings = (await ask("/admin/v1/findings")).json
        assert [finding["kind"] for finding in findings] == [kind]
        assert findings[0]["what"]
        assert findings[0]["do"]
        metrics = (await ask("/metrics")).body
        assert f'maitred_findings{{kind="{kind}"}} 1.0'.encode() in metrics


async def serves(place: Place) -> None:
    """It serves, and nothing is wrong any more."""
    await place.ready()
    assert (await place.ask(get("/readyz"))).status == 200
    assert (await place.ask()).body == JSON
    await place.until(lambda: not place.findings)


class TestWhatIsNotThereYet:
    """B92: llm-d/llm-d-router#1238, kserve/kserve#5986.

    A helper that came ten seconds late ended the gateway, or kept it from ever being ready. What it needs, it
    waits for, as long as it takes; what it does not need, it does without.
    """

    @on_sockets
    async def test_the_engines(self) -> None:
        engine, port = Engine(), free_port()

        def config(_urls: list[str]) -> Config:
            return Config(listen=ANYWHERE, models=(Model("m", (f"http://127.0.0.1:{port}",)),))

        helper = Engine()
        async with opened([helper], config=config, begin=Place.begin) as place:
            await waits(place, "unreachable")
            await engine.open(port)
            await serves(place)

    @pytest.mark.parametrize("fault", ["hangs", "lists nothing", "makes no token", "another model"])
    @on_sockets
    async def test_an_engine_that_is_not_ready_itself(
        self, fault: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        engine = Engine()
        models = engine.models
        engine.generates = fault != "makes no token"
        if fault != "makes no token":
            engine.models = {"hangs": None, "lists nothing": []}.get(fault, [{"id": "x", "object": "model"}])
        if fault == "hangs":
            monkeypatch.setattr(discovery, "Patience", lambda **_: HURRY)
        async with opened([engine], begin=Place.begin) as place:
            await waits(place, "wrong_model" if fault == "another model" else "unreachable")
            engine.models, engine.generates = models, True
            await serves(place)

    @on_sockets
    async def test_the_file_of_engines(self, tmp_path: Path) -> None:
        file, engine = tmp_path / "later" / "engines.yaml", Engine()

        def config(_urls: list[str]) -> Config:
            return Config(listen=ANYWHERE, models=(Model("m", EndpointsFile(file)),))

        async with opened([engine], config=config, begin=Place.begin) as place:
            await waits(place, "endpoints_file")
            file.parent.mkdir()
            file.write_text(f"[{engine.url}]")
            await serves(place)

    @on_sockets
    async def test_the_name_of_the_engines(self) -> None:
        engine, known = Engine(), list[str]()

        async def resolve(_host: str) -> list[str]:
            if not known:
                raise OSError(-2, "Name or service not known")
            return known

        def config(urls: list[str]) -> Config:
            url = urls[0].replace("127.0.0.1", "engines.test")
            return Config(listen=ANYWHERE, models=(Model("m", EndpointsDns(url, ttl_s=0.05)),))

        async def begin(place: Place) -> None:
            place.app.discovery.sources._resolve = resolve
            await place.begin()

        async with opened([engine], config=config, begin=begin) as place:
            await waits(place, "endpoints_dns")
            known.append("127.0.0.1")
            await serves(place)

    @on_sockets
    async def test_what_an_engine_does_not_tell_is_done_without(self) -> None:
        """No metrics, no version: it is served all the same."""
        engine = Engine()
        async with opened([engine]) as place:
            assert (await place.ask()).body == JSON
            async with admin_port(place) as ask:
                (row,) = (await ask("/admin/v1/endpoints")).json
            assert (row["state"], row["engine_running"], row["kv_tokens"]) == ("ready", None, None)

    @on_sockets
    async def test_who_asked_too_early_may_ask_again(self) -> None:
        """The official client repeats what was refused, and is served once the engine is there."""
        engine, port = Engine(), free_port()

        def config(_urls: list[str]) -> Config:
            return Config(listen=ANYWHERE, models=(Model("m", (f"http://127.0.0.1:{port}",)),))

        async with opened([Engine()], config=config, begin=Place.begin) as place:
            async with place.openai(retries=2) as client:
                asking = asyncio.create_task(
                    client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
                )
                await place.until(lambda: place.outcomes == ["no_endpoint"])
                await engine.open(port)
                assert (await asking).id == "chatcmpl-1"
            assert place.outcomes == ["no_endpoint", "completed"]
