"""A twin that listens, on either network, and what real ones answered."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import structs

from maitred.net.memory import MemoryNetwork
from maitred.net.seams import Network
from maitred.sim.profile import Profile, StepTime
from maitred.twin.kv_events import KvEvents
from maitred.twin.twin import Options, Twin
from tests.net.http import Answer, Client, connected, get, post, turns

DATA = Path(__file__).parents[1] / "data" / "twin"
ENGINES = Path(__file__).parents[1] / "data" / "engines"
MODEL = "smollm2"
CHAT = "/v1/chat/completions"

STEP_S = 0.01
PROFILE = Profile(
    name="small",
    model=MODEL,
    gpu="none",
    step=StepTime(base_s=STEP_S, per_sequence_s=0.0, per_token_s=0.0, prefill_tokens_per_s=1000.0),
    kv_blocks=64,
    block_tokens=32,
    sequences_max=4,
    context_tokens_max=2048,
    adapters_max=2,
    start=(("process", 1.0), ("weights", 2.0)),
)
"""Steps of 10 ms, and a millisecond for each token of a prompt."""


def captured(name: str, folder: Path = DATA) -> Any:
    """The body of a captured answer, decoded."""
    return json.loads((folder / name).read_bytes().partition(b"\n\nHTTP")[2].partition(b"\n\n")[2])


def events(body: bytes) -> list[Any]:
    """The events of a stream, decoded; the name of each is left out, `[DONE]` stays a text."""
    lines = [line.removeprefix("data: ") for line in body.decode().splitlines() if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def shape(value: Any) -> Any:
    """What is there, without what it says: names and types, and of a list its first entry."""
    if isinstance(value, dict):
        return {name: shape(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [shape(entry) for entry in value[:1]]
    return type(value).__name__


def chat(**members: Any) -> bytes:
    """The body of a chat request; by default as the captured ones were."""
    messages = [{"role": "user", "content": "Name three colours."}]
    return json.dumps({"model": MODEL, "messages": messages, **members}).encode()


class Place:
    """What a test has in hand."""

    def __init__(self, twin: Twin, network: Network, address: tuple[str, int]) -> None:
        self.twin = twin
        self.network = network
        self.address = address
        self.url = f"http://{address[0]}:{address[1]}"

    async def client(self) -> Client:
        """A new connection."""
        return await connected(self.network, self.address)

    async def ask(self, request: bytes) -> Answer:
        """One request on a new connection, and its answer."""
        client = await self.client()
        client.send(request)
        answer = await client.answer(request.partition(b" ")[0].decode())
        client.leave()
        return answer

    async def get(self, path: str) -> Answer:
        """What is at a path."""
        return await self.ask(get(path))

    async def post(self, path: str, body: Any = None, *headers: str) -> Answer:
        """Post bytes, or something as JSON."""
        sent = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
        return await self.ask(post(path, sent, *headers))

    async def chat(self, *headers: str, **members: Any) -> Answer:
        """Ask for a chat completion."""
        return await self.post(CHAT, chat(**members), *headers)


@asynccontextmanager
async def serving(
    options: Options | None = None,
    network: Network | None = None,
    events: KvEvents | None = None,
    **profile: Any,
) -> AsyncIterator[Place]:
    """A twin of the small profile, changed; in virtual time unless a network is given. It leaves nothing."""
    loop = asyncio.get_running_loop()
    faults: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _loop, context: faults.append(context))
    clock = loop.time if network is None else time.monotonic
    network = network or MemoryNetwork()
    twin = Twin(
        structs.replace(PROFILE, **profile), network, clock, options, events, wall=lambda: 1.8e9 + clock()
    )
    address = await twin.start("127.0.0.1", 0)
    try:
        yield Place(twin, network, address)
    finally:
        twin.stop()
        await turns()
        assert not faults, faults  # whatever else went wrong because of it
    assert not twin.site.connections
    if isinstance(network, MemoryNetwork):
        assert network.open_transports == 0
