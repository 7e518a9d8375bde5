"""A fleet of twins, as a configuration has it: one process for each endpoint, and its faults in time."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from urllib.parse import urlsplit

from maitred.config.simulate import Fault
from maitred.config.tree import Config
from maitred.control.processes import Supervisor
from maitred.net.client import Patience
from maitred.net.fetch import fetch
from maitred.net.pool import ConnectFailed, Pool
from maitred.net.seams import Network, Sockets
from maitred.net.sweep import Sweep
from maitred.sim.node import Node
from maitred.sim.simulate import SimulationError, nodes_of

log = logging.getLogger("maitred.twins")

ANSWER_S = 5.0
LOOK_S = 0.1
WORDS = {"crash": "crash", "hang": "hang", "slow": "slow={factor}", "mute": "metrics-stop"}
"""What a twin calls the faults that it can have."""


def argv(node: Node, profile: str) -> list[str]:
    """The command line of one twin of this profile. Raises SimulationError where it could not listen."""
    parts = urlsplit(node.url)
    if parts.scheme != "http" or parts.hostname not in {"127.0.0.1", "localhost", "::1"} or not parts.port:
        raise SimulationError(f"a twin cannot stand at {node.url}; write http://127.0.0.1:PORT")
    place = ["--host", parts.hostname, "--port", str(parts.port)]
    return [sys.executable, "-m", "maitred", "twin", "--profile", profile, "--model", node.pool, *place]


def run(config: Config, say: Callable[[str], None]) -> None:
    """Keep the twins of this configuration until a signal. Raises SimulationError."""
    simulated = config.simulate
    profiles = {engine.endpoint: engine.profile for engine in simulated.engines}
    lines = {
        node.url: argv(node, profiles.get(node.url) or simulated.profile or "") for node in nodes_of(config)
    }
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    asyncio.run(_keep(lines, simulated.faults, say))


async def _keep(lines: dict[str, list[str]], faults: Iterable[Fault], say: Callable[[str], None]) -> None:
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, over.set)
    network = Sockets()
    for url in lines:
        await _check_free(network, url)
    supervisor = Supervisor()
    for url, line in lines.items():
        supervisor.start(urlsplit(url).netloc, line)
    sweep = Sweep(loop.time)
    sweep.start()
    pool = Pool(network, sweep, Patience())
    try:
        async with asyncio.TaskGroup() as group:
            play = group.create_task(_play(pool, lines, faults, say))
            await over.wait()
            play.cancel()
    finally:
        pool.close()
        sweep.stop()
        await supervisor.stop()


async def _check_free(network: Network, url: str) -> None:
    """Raise SimulationError where a twin could not listen: its process would be started for ever."""
    parts = urlsplit(url)
    try:
        listener = await network.listen(asyncio.Protocol, parts.hostname or "", parts.port or 0)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise SimulationError(
            f"a twin cannot listen at {url}: {why}; end what stands there, or write another endpoint"
        ) from error
    listener.close()


async def _play(pool: Pool, urls: Iterable[str], faults: Iterable[Fault], say: Callable[[str], None]) -> None:
    """Once all twins answer, let the faults happen at their times from then."""
    await asyncio.gather(*(_answers(pool, url) for url in urls))
    say(f"twins at {', '.join(urls)}; Ctrl-C ends them")
    ills = Ills(pool)
    await asyncio.gather(*(ills.strike(fault) for fault in faults))


async def _answers(pool: Pool, url: str) -> None:
    """Wait until a twin is there."""
    status = 0
    while status != 200:
        with suppress(ConnectFailed):
            status, _ = await fetch(pool, url, "/health", ANSWER_S)
        await asyncio.sleep(LOOK_S)


class Ills:
    """What is wrong with each twin, in its own words: faults add up, and end one by one."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._words: dict[str, list[str]] = {}  # by URL

    async def strike(self, fault: Fault) -> None:
        """Let one fault happen, and end, at its time from now; as in the simulator, a crash ends a hang."""
        if fault.fault not in WORDS:
            log.warning("%s at %s: only a simulation can do that; left out", fault.fault, fault.endpoint)
            return
        word, words = (
            WORDS[fault.fault].format(factor=fault.factor),
            self._words.setdefault(fault.endpoint, []),
        )
        await asyncio.sleep(fault.at_s)
        if fault.fault == "crash":
            await self._crash(fault.endpoint)
            return
        words.append(word)
        await self._tell(fault.endpoint, words)
        if fault.for_s is None:
            return
        await asyncio.sleep(fault.for_s)
        if fault.fault == "hang":
            await self._crash(fault.endpoint)
        else:
            words.remove(word)
            await self._tell(fault.endpoint, words)

    async def _crash(self, url: str) -> None:
        """Another process begins, which does not hang."""
        words = self._words[url]
        words[:] = [word for word in words if word != "hang"]
        await self._tell(url, [*words, "crash"])

    async def _tell(self, url: str, words: list[str]) -> None:
        """Tell a twin all that is wrong with it from now on."""
        said = ",".join(words) or "recover"
        try:
            status, _ = await fetch(self._pool, url, f"/twin/{said}", ANSWER_S, json=b"{}")
            log.info("%s: %s (%d)", url, said, status)
        except ConnectFailed as failed:
            log.warning("%s: %s: %s", url, said, failed)
