"""A configuration that changes under load: whole or not at all, and nobody's request is lost by it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from maitred.app.desk import Desk
from maitred.config.load import load
from maitred.config.raw import ConfigError
from maitred.config.tree import Config
from maitred.control import discovery
from tests.cases.place import Place, admin_port, on_sockets, opened
from tests.cases.upstream import GOOD, Engine, Plan, Script, stream
from tests.net.http import Answer
from tests.proxy.place import STREAM, WHOLE
from tests.proxy.upstream import DONE, JSON, LAST, SEEN, Asked, chunk, word

TIMES = 200
BROKEN = [
    "version: 1\nmodels: [\n",
    "version: 1\nmodels:\n  - {name: m, endpoints: [http://127.0.0.1:1], cap: many}\n",
    "version: 1\nmodels: []\n",
    "version: 1\nmodels:\n  - {name: m, endpoints: [htp://127.0.0.1:1]}\n",
    "",
    "\x00",
    "version: 1\nunknown: 1\nendpoints: [http://127.0.0.1:1]\n",
]


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines that are new are asked soon."""
    monkeypatch.setattr(discovery, "PERIOD_S", 0.02)


class Either(Script):
    """A stream for who asks for one, else a whole answer."""

    def take(self, asked: Asked) -> Plan:
        """See Script."""
        super().take(asked)
        return stream() if b'"stream"' in asked.body else GOOD


class Files:
    """The configuration file. A: both engines, B: the first one only."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "maitred.yaml"
        self.a = self.b = ""

    def config(self, urls: list[str]) -> Config:
        """Make both of these addresses; A is in force."""
        self.a = self._text(urls)
        self.b = self._text(urls[:1])
        return self.load(self.a)

    def load(self, text: str | None = None) -> Config:
        """Read the file, which holds this from now on."""
        if text is not None:
            self.path.write_text(text)
        return load(self.path, environ={})

    def _text(self, urls: list[str]) -> str:
        listed = ", ".join(urls)
        return (
            f"version: 1\nlisten: {{data: '127.0.0.1:0'}}\nmodels:\n  - {{name: m, endpoints: [{listed}]}}\n"
        )


async def busy(place: Place, until: asyncio.Event, requests: tuple[bytes, ...]) -> list[Answer]:
    """One client that asks again and again on one connection."""
    client, answers = await place.client(), list[Answer]()
    while not until.is_set():
        client.send(requests[len(answers) % len(requests)])
        answers.append(await client.answer())
    return answers


class TestReloading:
    """B71: vllm-project/production-stack#659, vllm-project/production-stack#680,
    vllm-project/production-stack#863.

    After a broken file a watcher took no good one any more, took half of it, or went on probing what was no
    longer there. A file is taken as a whole or not at all, and the next good one is taken as if nothing was.
    """

    @on_sockets
    async def test_two_hundred_times_under_load_and_nobody_is_lost(self, tmp_path: Path) -> None:
        files = Files(tmp_path)
        engines = [Engine(script=Either(GOOD)), Engine(script=Either(GOOD))]
        async with opened(engines, config=files.config) as place:
            desk, over = Desk(place.app, files.load), asyncio.Event()
            clients = [asyncio.create_task(busy(place, over, (WHOLE, STREAM))) for _ in range(6)]
            for turn in range(TIMES):
                for text in (files.a, BROKEN[turn % len(BROKEN)], files.a, files.b):
                    files.path.write_text(text)
                    before = place.app.config
                    if text in (files.a, files.b):
                        assert await desk.reload() == []
                    else:
                        with pytest.raises(ConfigError):
                            await desk.reload()
                        assert place.app.config is before
                    await asyncio.sleep(0)
            over.set()
            seen = [answer for task in clients for answer in await task]
            assert len(seen) > TIMES
            assert {answer.status for answer in seen} == {200}
            assert {answer.body for answer in seen} == {JSON, SEEN}
            assert set(place.outcomes) == {"completed"}
            assert place.app.house.gateway.settings.version == 3 * TIMES
            assert place.urls == {engines[0].url}

    @pytest.mark.parametrize("broken", BROKEN, ids=range(len(BROKEN)))
    @on_sockets
    async def test_a_broken_file_is_said_everywhere_and_forgotten_with_the_next(
        self, broken: str, tmp_path: Path
    ) -> None:
        files = Files(tmp_path)
        async with opened([Engine(), Engine()], config=files.config) as place:
            desk = Desk(place.app, files.load)
            states, version = place.states, place.app.house.gateway.settings.version
            files.path.write_text(broken)
            await desk.reload_quietly()
            (finding,) = place.findings
            assert finding.kind == "reload_failed"
            assert (place.states, place.app.house.gateway.settings.version) == (states, version)
            assert (await place.ask()).body == JSON
            async with admin_port(place) as ask:
                metrics = (await ask("/metrics")).body
                assert b'maitred_reloads_total{result="failed"} 1.0' in metrics
            files.path.write_text(files.b)
            await desk.reload_quietly()
            assert place.findings == []
            await place.until(lambda: len(place.states) == 1)
            assert place.app.metrics.reloads == {"ok": 1, "failed": 1}

    @on_sockets
    async def test_a_file_that_is_half_right_is_not_taken_at_all(self, tmp_path: Path) -> None:
        files = Files(tmp_path)
        async with opened([Engine(), Engine()], config=files.config) as place:
            desk, before = Desk(place.app, files.load), place.app.config
            files.path.write_text(
                files.b.replace("name: m", "name: other") + "http: {body_max: 1KiB, nonsense: 1}\n"
            )
            with pytest.raises(ConfigError, match="nonsense"):
                await desk.reload()
            assert place.app.config is before
            assert (await place.ask()).body == JSON

    @on_sockets
    async def test_an_engine_taken_out_finishes_its_work_and_is_asked_no_more(self, tmp_path: Path) -> None:
        files, rest = Files(tmp_path), asyncio.Event()
        plan: Plan = [*stream(word("Hello"), end=()), rest, chunk(DONE), LAST]
        stays, goes, never = Engine(GOOD), Engine(plan), Engine()
        stays.models = None  # so that the stream goes to the other one

        async def begin(place: Place) -> None:
            await place.begin()
            await place.until(lambda: sorted(state.label for state in place.states) == ["probing", "ready"])

        await never.open()
        never.models = []
        async with opened([stays, goes], config=files.config, begin=begin) as place:
            desk = Desk(place.app, files.load)
            client = await place.client()
            client.send(STREAM)
            await client.heard(b"Hello")
            stays.models = goes.models
            for connection in list(stays.serving):  # its question is asked again
                connection.transport.abort()
            await place.until(lambda: [state.label for state in place.states] == ["ready", "ready"])
            files.path.write_text(files.b.replace(stays.url, f"{stays.url}, {never.url}"))
            assert await desk.reload() == []
            assert (await place.ask(WHOLE)).body == JSON
            rest.set()
            assert (await client.answer()).body == word("Hello") + DONE
            await place.until(lambda: goes.url not in place.urls)
            asked, others = len(goes.questions), len(never.questions)
            await place.until(lambda: len(never.questions) >= others + 3)
            assert len(goes.questions) == asked
            assert (len(goes.script.asked), len(stays.script.asked)) == (1, 1)

    @on_sockets
    async def test_what_waits_for_a_restart_is_named(self, tmp_path: Path) -> None:
        files = Files(tmp_path)
        async with opened([Engine()], config=files.config) as place:
            desk = Desk(place.app, files.load)
            files.path.write_text(files.a.replace("127.0.0.1:0", "127.0.0.1:1") + "log: {format: json}\n")
            assert await desk.reload() == ["listen.data", "log.format"]
            assert {(finding.kind, finding.where) for finding in place.findings} == {
                ("restart_needed", "listen.data"),
                ("restart_needed", "log.format"),
            }
            files.path.write_text(files.a)
            await desk.reload()
            assert (await place.ask()).body == JSON

    @on_sockets
    async def test_new_limits_hold_at_once(self, tmp_path: Path) -> None:
        files = Files(tmp_path)
        async with opened([Engine(), Engine()], config=files.config) as place:
            desk = Desk(place.app, files.load)
            files.path.write_text(files.a + "http: {body_max: 16B}\n")
            await desk.reload()
            assert (await place.ask()).status == 413
            files.path.write_text(files.a)
            await desk.reload()
            assert (await place.ask()).body == JSON
