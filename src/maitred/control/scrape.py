"""Reading engines' metrics: how much each has running and waiting, whoever sent it there.

Each address is read once a period on its own clock, so that a thousand are never read at once. An address
that cannot be read is asked ever less often; what was read of it grows old, and its age tells.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from maitred.core.endpoints import CLOCK_S, EndpointTable
from maitred.core.words import Endpoint, EndpointState, Observed
from maitred.engines.metrics import METRICS_ON, METRICS_PATH, read_load, read_start
from maitred.net.fetch import fetch
from maitred.net.pool import ConnectFailed, Pool
from maitred.observe.findings import Findings

PERIOD_S = 5.0
TIMEOUT_S = 2.0
BACKOFF_S_MAX = 60.0
JITTER = 0.1
AT_ONCE_MAX = 8
STALE_AFTER = 3
"""Failures in a row that make a finding; fewer are an engine that was busy."""

Target = tuple[str, str]
"""What is watched: an address, and the kind of engine there."""

_SCRAPED = (EndpointState.READY, EndpointState.EJECTED)


class Scraper:
    """Tells the core what the metrics of its ready and ejected endpoints say.

    `update` gets an Observed for each endpoint at an address that was read; `restarted` gets the address of
    an engine whose process is another one than before. `period_s` and `timeout_s` may be changed at any time
    and hold for the next reading.
    """

    def __init__(
        self,
        pool: Pool,
        table: EndpointTable,
        update: Callable[[Observed], None],
        restarted: Callable[[str], None],
        findings: Findings,
        rng: Random,
        period_s: float = PERIOD_S,
        timeout_s: float = TIMEOUT_S,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._pool = pool
        self._table = table
        self._update = update
        self._restarted = restarted
        self._findings = findings
        self._rng = rng
        self.period_s = period_s
        self.timeout_s = timeout_s
        self._sleep = sleep
        self._places = asyncio.Semaphore(AT_ONCE_MAX)
        self._at: dict[Target, list[Endpoint]] = {}
        self._watches: dict[Target, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Read, until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._follow_table(group)
                await self._sleep(self.period_s)

    def _follow_table(self, group: asyncio.TaskGroup) -> None:
        """Have one watch for each address and kind of engine there is, and none for any other."""
        self._at = {}
        for endpoint in self._table.by_name.values():
            if endpoint.state in _SCRAPED:
                self._at.setdefault((endpoint.url, endpoint.facts.engine), []).append(endpoint)
        for target in [target for target in self._watches if target not in self._at]:
            self._watches.pop(target).cancel()
            self._findings.settle("metrics_stale", target[0])
        for target in self._at:
            if target not in self._watches:
                self._watches[target] = group.create_task(self._watch(target))

    async def _watch(self, target: Target) -> None:
        """Read one address again and again; one of unknown kind only if it goes well at first."""
        url, engine = target
        proven = bool(engine)
        failures = 0
        wait_s = self.period_s
        started_at: float | None = None
        await self._sleep(self.period_s * self._rng.random())
        while True:
            try:
                body = await self._read(url, METRICS_PATH[engine])
                load = read_load(engine, body)
            except (ConnectFailed, ValueError) as error:
                if not proven:
                    return
                failures += 1
                wait_s = min(2 * wait_s, BACKOFF_S_MAX)
                self._complain(target, error, failures)
            else:
                proven, failures = True, 0
                wait_s = self.period_s
                self._findings.settle("metrics_stale", url)
                started_at = self._compare(target, started_at, read_start(body))
                for endpoint in self._at[target]:
                    self._update(Observed(endpoint.name, load))
            await self._sleep(wait_s * self._rng.uniform(1 - JITTER, 1 + JITTER))

    async def _read(self, url: str, path: str) -> bytes:
        async with self._places:
            status, body = await fetch(self._pool, url, path, self.timeout_s)
        if status != 200:
            raise ValueError(f"GET {path} is answered with {status}")
        return body

    def _compare(self, target: Target, known: float | None, started_at: float | None) -> float | None:
        """The latest start of a process there; tells when it is later than what was known.

        Only later ones count: where several engines share an address, each would seem new each time.
        """
        if known is None:
            known = self._at[target][0].facts.started_at
        if started_at is None or known is None:
            return known if started_at is None else started_at
        if started_at > known + CLOCK_S:
            self._restarted(target[0])
        return max(started_at, known)

    def _complain(self, target: Target, error: Exception, failures: int) -> None:
        """Tell of an engine that is given work; of an ejected one it goes without saying."""
        url, engine = target
        ready = any(endpoint.state is EndpointState.READY for endpoint in self._at[target])
        if failures >= STALE_AFTER and ready:
            do = "see why it does not answer" if isinstance(error, ConnectFailed) else METRICS_ON[engine]
            self._findings.tell("metrics_stale", url, f"its metrics cannot be read ({error})", do)
