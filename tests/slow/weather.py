"""What goes on around a gateway while it serves: engines that come and go, and operators at work."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import yaml

from tests.e2e.children import Gateway, ask
from tests.slow.engines import Engine

TOKEN = "a-token-for-the-soak-and-nobody-else"
CAPS = (12, 6, 20)
"""Places at each endpoint, changed by every reload."""


class Weather:
    """Everything that changes from outside. Each loop runs until `calm` is set and then leaves all well.

    `folder` holds the configuration and what it names.
    """

    def __init__(self, folder: Path, engines: list[Engine], rng: Random) -> None:
        self.calm = asyncio.Event()
        self.config = folder / "maitred.yaml"
        self.reloads = {"ok": 0, "failed": 0}
        self._list = folder / "engines.yaml"
        self._token = folder / "token"
        self._engines = engines
        self._rng = rng
        self._token.write_text(TOKEN)
        _replace(self._list, yaml.safe_dump(self._urls))
        _replace(self.config, self._settings(CAPS[0]))

    async def outages(self) -> None:
        """One engine after the other is gone for some seconds, and its connections with it."""
        while await self._still(self._rng.uniform(3, 10)):
            engine = self._rng.choice(self._engines)
            engine.close()
            await self._still(self._rng.uniform(1, 4))
            await engine.open()

    async def drains(self, gateway: Gateway) -> None:
        """An operator takes one endpoint out of service for a moment."""
        while await self._still(self._rng.uniform(2, 6)):
            name = f"plain/127.0.0.1:{self._rng.choice(self._engines).port}"
            await asyncio.to_thread(_hold, gateway, name, "drain")
            await self._still(self._rng.uniform(0.5, 3))
            await asyncio.to_thread(_hold, gateway, name, "undrain")

    async def moves(self) -> None:
        """The list of engines of one model grows and shrinks, and is now and then no list at all."""
        while await self._still(self._rng.uniform(2, 5)):
            some = self._rng.sample(self._urls, self._rng.randint(1, len(self._urls)))
            _replace(self._list, self._rng.choice([yaml.safe_dump(some)] * 12 + ["[]", "no list", "- {"]))
        _replace(self._list, yaml.safe_dump(self._urls))

    async def reconfigurations(self, gateway: Gateway) -> None:
        """The configuration changes, is wrong, is right again."""
        turn = 0
        while await self._still(self._rng.uniform(3, 6)):
            turn += 1
            right = bool(turn % 2)
            content = self._settings(CAPS[turn % len(CAPS)]) if right else "version: 1\nmodels: [{cap: 0}]\n"
            await self._reload(gateway, content, "ok" if right else "failed")
        await self._reload(gateway, self._settings(CAPS[0]), "ok")

    @property
    def _urls(self) -> list[str]:
        return [engine.url for engine in self._engines]

    async def _still(self, time_s: float) -> bool:
        """Let some time pass; False as soon as it is to be calm."""
        try:
            async with asyncio.timeout(time_s):
                await self.calm.wait()
        except TimeoutError:
            return True
        return False

    async def _reload(self, gateway: Gateway, content: str, result: str) -> None:
        _replace(self.config, content)
        self.reloads[result] += 1
        gateway.signal(signal.SIGHUP)
        count = self.reloads[result]
        await asyncio.to_thread(
            gateway.until, lambda: gateway.metric("reloads_total", result=result) == count
        )

    def _settings(self, cap: int) -> str:
        """A configuration with short limits, so that whatever hangs is over soon."""
        queue = {"requests": 24, "wait": "1500ms"}
        small = {"name": "small", "aliases": ["alias"], "served_as": "org/small"}
        settings: dict[str, Any] = {
            "version": 1,
            "admin": {"token": {"file": str(self._token)}},
            "log": {"format": "json"},
            "models": [
                {**small, "endpoints": {"file": str(self._list)}, "cap": cap, "queue": queue},
                {"name": "plain", "endpoints": self._urls, "cap": cap, "queue": queue},
            ],
            "http": {
                "body_max": "2MiB",
                "head_max": "16KiB",
                "head_timeout": "2s",
                "body_timeout": "2s",
                "keep_alive": "5s",
                "write_timeout": "2s",
            },
            "upstream": {
                "connect": "1s",
                "first_byte": "3s",
                "idle": "2s",
                "keep_alive": "1s",
                "hold": "300ms",
            },
            "health": {"slow_start": "1s", "probe_timeout": "2s"},
            "scrape": {"period": "2s", "timeout": "1s"},
        }
        return yaml.safe_dump(settings)


@contextmanager
def _asked(gateway: Gateway, method: str, path: str) -> Iterator[Any]:
    with ask(gateway.admin_port, method, path, headers={"authorization": f"Bearer {TOKEN}"}) as answer:
        assert answer.status == 200, (path, answer.status)
        yield json.loads(answer.read())


def endpoints(gateway: Gateway) -> list[dict[str, Any]]:
    """All endpoints, as the gateway sees them."""
    with _asked(gateway, "GET", "/admin/v1/endpoints") as rows:
        return list(rows)


def _hold(gateway: Gateway, name: str, verb: str) -> None:
    with _asked(gateway, "POST", f"/admin/v1/endpoints/{quote(name)}/{verb}"):
        pass


def _replace(file: Path, content: str) -> None:
    """In one step, so that nobody reads a half."""
    fresh = file.with_suffix(".new")
    fresh.write_text(content)
    fresh.replace(file)
