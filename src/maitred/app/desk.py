"""What an operator may ask of a running gateway: see endpoints and findings, hold one, change settings.

Everything here runs on the gateway's own loop; the admin port and SIGHUP come here alike.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from maitred.app.gateway import GatewayApp
from maitred.config.raw import ConfigError
from maitred.config.tree import Config
from maitred.core.words import Endpoint, Held
from maitred.observe.decisions import Page, Wanted
from maitred.observe.findings import Finding
from maitred.observe.kv_events import KvFigures

log = logging.getLogger("maitred")

Aside = Callable[[Callable[[], Config]], Awaitable[Config]]


class Desk:
    """The operator's side of a gateway. `load` reads the configuration anew, as the start did.

    That may take a while, so it is done `aside`, in a thread unless said otherwise.
    """

    def __init__(self, app: GatewayApp, load: Callable[[], Config], aside: Aside = asyncio.to_thread) -> None:
        self._app = app
        self._load = load
        self._aside = aside
        self._reloading = asyncio.Lock()

    async def endpoints(self) -> Iterable[Endpoint]:
        """All endpoints."""
        return self._app.house.gateway.table.by_name.values()

    async def kv_events(self) -> Mapping[str, KvFigures]:
        """What is known of endpoints' KV events, by name."""
        return {known.endpoint: known for known in self._app.kv_events.figures()}

    async def findings(self) -> Sequence[Finding]:
        """What is wrong now."""
        return self._app.findings.current()

    async def count(self) -> None:
        """Have everything counted that is over."""
        self._app.ends.tell()

    async def decisions(self, wanted: Wanted) -> Page:
        """The last decisions that were kept."""
        return self._app.decisions.page(wanted)

    async def hold(self, name: str, held: bool) -> bool:
        """Drain an endpoint, or let it in again; False where there is none of that name."""
        if name not in self._app.house.gateway.table.by_name:
            return False
        self._app.house.update(Held(name, held))
        return True

    async def reload(self) -> list[str]:
        """Have the configuration as it is now; what of it waits for a restart. Raises ConfigError.

        What cannot be used changes nothing: the configuration before stays in force, whole.
        """
        findings = self._app.findings
        async with self._reloading:
            try:
                config = await self._aside(self._load)
                needs_restart = self._app.apply(config)
            except ConfigError as error:
                self._app.metrics.reloads["failed"] += 1
                do = "put it right and reload; the one before is in force"
                findings.tell("reload_failed", "configuration", "; ".join(error.errors), do)
                raise
        self._app.metrics.reloads["ok"] += 1
        findings.settle("reload_failed", "configuration")
        changed = "changed, and not yet in force"
        findings.review(
            ("restart_needed",), [("restart_needed", path, changed, "restart") for path in needs_restart]
        )
        log.info("configuration reloaded")
        return needs_restart

    async def reload_quietly(self) -> None:
        """Reload for somebody who cannot be answered: a finding tells what is wrong."""
        with suppress(ConfigError):
            await self.reload()
