"""Connections that are kept and do nothing: what each costs, and that none is forgotten."""

from __future__ import annotations

import asyncio
import gc
import resource
import sys
import tracemalloc
from pathlib import Path

import pytest
import uvloop

from maitred.net import memory
from maitred.net.burst import Burst
from maitred.net.seams import Sockets
from maitred.net.server import HttpLimits, ServerConnection
from maitred.net.sweep import Sweep
from maitred.net.virtual import run
from tests.net.http import connected, get, turns
from tests.net.site import ECHO, Site, door

BYTES_MAX = 1.75 * 1024
"""Of Python's memory, for a connection that was served and is kept, beside its transport."""
ON_SOCKETS = 10_000
RSS_BYTES_MAX = 16 * 1024
"""Of everything in this process, its transport included."""


class Quiet(asyncio.Protocol):
    """A client that only asks once: nothing of its own shall count."""

    __slots__ = ("transport",)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        assert isinstance(transport, memory.MemoryTransport)
        transport.write(get(ECHO))


@pytest.mark.parametrize("count", [20_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_idle_connections_take_little_memory(count: int) -> None:
    async def main() -> None:
        async with door(keep_alive_s=60.0) as at:
            tracemalloc.start()
            for _ in range(count):
                await at.network.connect(Quiet, *at.address)
            await turns()
            gc.collect()
            by_file = tracemalloc.take_snapshot().statistics("filename")
            tracemalloc.stop()
            assert len(at.site.served) == count
            assert all(connection.idle for connection in at.site.connections)
            assert sum(map(ours, by_file)) / count < BYTES_MAX
            client = await at.client()
            client.send(get(ECHO))
            assert (await client.answer()).status == 200
            await asyncio.sleep(61)
            assert not at.site.connections

    run(main())


def ours(file: tracemalloc.Statistic) -> int:
    """Bytes of this file's, unless it belongs to the test or its network."""
    path = Path(file.traceback[0].filename)
    return file.size if path.parent == Path(memory.__file__).parent and path.name != "memory.py" else 0


CROWD = """
import socket, struct, sys
port, count = int(sys.argv[1]), int(sys.argv[2])
request, leaves_no_trace = sys.argv[3].encode(), struct.pack("ii", 1, 0)
held = []
for _ in range(count):
    held.append(socket.create_connection(("127.0.0.1", port)))
    held[-1].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, leaves_no_trace)
    held[-1].sendall(request)
print(sum(s.recv(12) == b"HTTP/1.1 200" for s in held), flush=True)
sys.stdin.read()
"""


def test_ten_thousand_idle_connections_on_sockets() -> None:
    needed = ON_SOCKETS + 1000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"only {hard} files may be open, and {needed} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))

    async def main() -> None:
        site, sweep, network = Site(), Sweep(asyncio.get_running_loop().time), Sockets()
        bounds = HttpLimits()
        burst = Burst()
        listener = await network.listen(lambda: ServerConnection(site, sweep, burst, bounds), "127.0.0.1", 0)
        sweep.start()
        before = resident_bytes()
        crowd = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CROWD, str(listener.address[1]), str(ON_SOCKETS), get(ECHO).decode(),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert crowd.stdin is not None
        assert crowd.stdout is not None
        try:
            assert int(await crowd.stdout.readline()) == ON_SOCKETS
            assert len(site.connections) == len(sweep) == ON_SOCKETS
            assert (resident_bytes() - before) / ON_SOCKETS < RSS_BYTES_MAX
            client = await connected(network, listener.address)
            client.send(get(ECHO))
            assert (await client.answer()).status == 200
            client.leave()
        finally:
            crowd.stdin.close()
            await crowd.wait()
        while site.connections:
            await asyncio.sleep(0.01)
        assert len(sweep) == 0
        sweep.stop()
        listener.close()

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await main()

    try:
        uvloop.run(bounded())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def resident_bytes() -> int:
    """Memory of this process."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * resource.getpagesize()
