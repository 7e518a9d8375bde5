"""A fleet of twins, as a configuration has it: one process for each endpoint, and its faults in time."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable
from urllib.parse import urlsplit

from maitred.config.simulate import Fault
from maitred.config.tree import Config
from maitred.control.processes import Supervisor
from maitred.net.client import Patience
from maitred.net.fetch import fetch
from maitred.net.pool import ConnectFailed, Pool
from maitred.net.seams import Sockets
from maitred.net.sweep import Sweep
from maitred.sim.node import Node
from maitred.sim.simulate import SimulationError, nodes_of

log = logging.getLogger("maitred.twins")

ANSWER_S = 5.0
WORDS = {"crash": "crash", "hang": "hang", "slow": "slow={factor}", "mute": "metrics-stop"}
"""What a twin calls the faults that it can have."""


def argv(node: Node) -> list[str]:
    """The command line of one twin. Raises SimulationError where it could not listen."""
    parts = urlsplit(node.url)
    if parts.scheme != "http" or parts.hostname not in {"127.0.0.1", "localhost", "::1"} or not parts.port:
        raise SimulationError(f"a twin cannot stand at {node.url}; write http://127.0.0.1:PORT")
    place = ("--host", parts.hostname, "--port", str(parts.port))
    return [
        sys.executable,
        "-m",
        "maitred",
        "twin",
        "--profile",
        node.profile.name,
        *place,
        "--model",
        node.pool,
    ]


def run(config: Config, say: Callable[[str], None]) -> None:
    """Keep the twins of this configuration until a signal. Raises SimulationError."""
    nodes = nodes_of(config)
    lines = {node.url: argv(node) for node in nodes}
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    asyncio.run(_keep(lines, config.simulate.faults, say))


async def _keep(lines: dict[str, list[str]], faults: tuple[Fault, ...], say: Callable[[str], None]) -> None:
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, over.set)
    supervisor = Supervisor()
    for url, line in lines.items():
        supervisor.start(urlsplit(url).netloc, line)
    say(f"{len(lines)} twins: {', '.join(lines)}; Ctrl-C ends them")
    sweep = Sweep(loop.time)
    sweep.start()
    pool = Pool(Sockets(), sweep, Patience())
    try:
        async with asyncio.TaskGroup() as group:
            plagues = [group.create_task(_strike(pool, fault)) for fault in faults]
            await over.wait()
            for plague in plagues:
                plague.cancel()
    finally:
        pool.close()
        sweep.stop()
        await supervisor.stop()


async def _strike(pool: Pool, fault: Fault) -> None:
    """Let one fault happen, and end, at its time."""
    if fault.fault not in WORDS:
        log.warning("%s at %s: only a simulation can do that; left out", fault.fault, fault.endpoint)
        return
    await asyncio.sleep(fault.at_s)
    await _call(pool, fault.endpoint, WORDS[fault.fault].format(factor=fault.factor))
    if fault.for_s:
        await asyncio.sleep(fault.for_s)
        await _call(pool, fault.endpoint, "recover")


async def _call(pool: Pool, url: str, words: str) -> None:
    try:
        status, _ = await fetch(pool, url, f"/twin/{words}", ANSWER_S, json=b"{}")
        log.info("%s: %s (%d)", url, words, status)
    except ConnectFailed as failed:
        log.warning("%s: %s: %s", url, words, failed)
