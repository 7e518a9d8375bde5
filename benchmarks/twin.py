"""CPU a twin spends on requests and on the events of streams, over real sockets; prints one line for each.

    .venv/bin/python benchmarks/twin.py

The twin is a process of its own whose CPU time is read from the kernel; this one asks, and reads what comes.
`paced`: every event is a write of its own, as in life. `flat out`: the engine is faster than the loop, which
tells several tokens at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from pathlib import Path

import uvloop

from maitred.net.seams import Sockets
from maitred.sim.profile import Profile, StepTime
from maitred.twin.twin import Twin

REQUESTS, CONNECTIONS = 4000, 8
STREAMS, TOKENS = 64, 600
PACED_S, FLAT_OUT_S = 0.004, 0.00001
PROMPT = "The quick brown fox jumps over the lazy dog. " * 45
TICKS = os.sysconf("SC_CLK_TCK")


async def serve(step_s: float) -> None:
    """Be the twin until killed; prints its port."""
    profile = Profile("bench", "m", "none", StepTime(step_s, 0.0, 0.0, 1e12), kv_blocks=100_000)
    twin = Twin(profile, Sockets(), time.monotonic)
    _, port = await twin.start("127.0.0.1", 0)
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


def request(output_tokens: int, *, stream: bool) -> bytes:
    """A chat request with a prompt of 2 KB."""
    message = {"role": "user", "content": PROMPT}
    asked = {"messages": [message], "max_tokens": output_tokens, "ignore_eos": True, "stream": stream}
    body = json.dumps({"model": "m", **asked}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    return b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body)


async def ask(port: int, times: int, output_tokens: int, ends: bytes, *, stream: bool) -> None:
    """Ask so often on one connection, reading each answer to these last bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    for _ in range(times):
        writer.write(request(output_tokens, stream=stream))
        await reader.readuntil(ends)
    writer.close()


def cpu_s(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


async def measure(name: str, step_s: float, times: int, output_tokens: int, connections: int) -> None:
    """Start a twin, load it, and print what each request or event cost."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, __file__, str(step_s), stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    try:
        port = int(await child.stdout.readline())
        stream = output_tokens > 1
        ends = b"[DONE]\n\n\r\n0\r\n\r\n" if stream else b'"metrics":null}'
        await ask(port, 1, 1, b'"metrics":null}', stream=False)
        before, began = cpu_s(child.pid), time.monotonic()
        asks = (ask(port, times, output_tokens, ends, stream=stream) for _ in range(connections))
        await asyncio.gather(*asks)
        spent_s, took_s = cpu_s(child.pid) - before, time.monotonic() - began
    finally:
        child.kill()
        await child.wait()
    count = times * connections * output_tokens
    print(f"{name:28} {spent_s / count * 1e6:6.1f} us   ({count} in {took_s:.1f} s, CPU {spent_s:.2f} s)")


async def main() -> None:
    """Measure all three."""
    await measure("request of 2 KB, one token", FLAT_OUT_S, REQUESTS // CONNECTIONS, 1, CONNECTIONS)
    await measure("event of a stream, paced", PACED_S, 1, TOKENS, STREAMS)
    await measure("event of a stream, flat out", FLAT_OUT_S, 4, TOKENS, STREAMS)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    uvloop.run(serve(float(sys.argv[1])) if len(sys.argv) > 1 else main())
