"""A desk that does what a test wants, and a gateway's loop in a thread with the admin port beside it."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import structs

from maitred.admin.server import AdminServer
from maitred.config.kinds import Address
from maitred.config.raw import ConfigError
from maitred.config.tree import Admin
from maitred.core.words import Endpoint, EndpointState, Facts, Load
from maitred.observe.decisions import Decisions, Page, Wanted
from maitred.observe.exposition import render
from maitred.observe.findings import Finding
from maitred.observe.kv_events import KvFigures
from maitred.observe.metrics import Metrics

NOW = 1000.0
PATIENCE_S = 60.0
"""Only a failing test ever waits this long."""
FINDING = Finding(
    "wrong_model", "http://gpu2:8000", "serves 'b', not 'a'", "add served_as: b", 1_700_000_000_000
)
FACTS = Facts(
    engine="vllm",
    model="Qwen/Qwen3",
    context_tokens=32768,
    version="0.11.0",
    kv_tokens=400_000,
    prefix_caching=True,
    slots=256,
    adapters=("sql",),
)


def endpoint() -> Endpoint:
    """One about which everything is known."""
    return Endpoint(
        name="org/qwen/127.0.0.1:8001",
        pool="org/qwen",
        url="http://127.0.0.1:8001",
        state=EndpointState.EJECTED,
        incarnation=2,
        facts=FACTS,
        why="connection refused",
        running=3,
        seated=40,
        load=Load(running=5, waiting=2, kv_use=0.25),
        observed_at=NOW - 1.25,
    )


class FakeDesk:
    """One endpoint, one finding; `config` is what a reload finds, or what is wrong with it."""

    def __init__(self) -> None:
        self.listed = [endpoint()]
        self.found = [FINDING]
        self.heard: dict[str, KvFigures] = {}
        self.log = Decisions(100, wall=lambda: 1_700_000_000.0)
        self.config: list[str] | ConfigError = []
        self.asked_in: list[threading.Thread] = []
        self.uncounted: Callable[[], None] = lambda: None

    async def endpoints(self) -> Iterable[Endpoint]:
        self.asked_in.append(threading.current_thread())
        return self.listed

    async def kv_events(self) -> Mapping[str, KvFigures]:
        self.asked_in.append(threading.current_thread())
        return self.heard

    async def findings(self) -> Sequence[Finding]:
        self.asked_in.append(threading.current_thread())
        return self.found

    async def decisions(self, wanted: Wanted) -> Page:
        self.asked_in.append(threading.current_thread())
        return self.log.page(wanted)

    async def count(self) -> None:
        self.uncounted()

    async def hold(self, name: str, held: bool) -> bool:
        self.asked_in.append(threading.current_thread())
        found = [one for one in self.listed if one.name == name]
        for one in found:
            one.held = held
        return bool(found)

    async def reload(self) -> list[str]:
        self.asked_in.append(threading.current_thread())
        if isinstance(self.config, ConfigError):
            raise self.config
        return self.config


class House:
    """A gateway's loop in a thread of its own, with the admin port beside it."""

    def __init__(self, settings: Admin | None = None) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.desk = FakeDesk()
        self.metrics = Metrics("1")
        anywhere = structs.replace(settings or Admin(), listen=Address("127.0.0.1", 0))
        self.admin = AdminServer(
            anywhere,
            loop=self.loop,
            desk=self.desk,
            render=lambda: render(self.metrics),
            clock=lambda: NOW,
        )
        self.address = self.admin.start()

    @property
    def url(self) -> str:
        host, port = self.address
        return f"http://{host}:{port}"

    def call(self, path: str, method: str = "GET", **headers: str) -> tuple[int, str, bytes]:
        """Status, content type and body of one answer."""
        request = urllib.request.Request(self.url + path, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, answer.headers["content-type"], answer.read()
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, refusal.headers["content-type"], refusal.read()

    def code(self, path: str, method: str = "GET", **headers: str) -> tuple[int, Any]:
        """Status and error code of a refusal."""
        status, _, body = self.call(path, method, **headers)
        return status, json.loads(body)["error"]["code"]

    def pass_time(self, seconds: float) -> None:
        """Have so many seconds pass at once on the admin port's loop, which has answered somebody."""
        server = self.admin._server
        assert server is not None
        loop = server._loop
        assert loop is not None
        before = loop.time
        loop.call_soon_threadsafe(setattr, loop, "time", lambda: before() + seconds)

    def stop_loop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()

    def close(self) -> None:
        self.admin.stop()
        if self.thread.is_alive():
            self.stop_loop()
        self.loop.close()
