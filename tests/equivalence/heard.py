"""KV events and token ids in these tests: twins tell without ZMQ, and both shells know the same keys.

What the simulator leaves out stays out: that an engine is listened to only from the next second on, and asked
for what it told before.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit
from zlib import crc32

from msgspec import structs

from maitred.control.kv_sockets import Sockets
from maitred.core.mix import mix
from maitred.core.words import Request
from maitred.door.read import Order
from maitred.door.source import Source
from maitred.sim.arrival import Arrival
from maitred.sim.keys import Keys
from maitred.twin import tokens
from maitred.twin.kv_events import KvEvents
from maitred.wire.prefix import blocks_of, root
from tests.equivalence.trace import MODEL, PROFILE, body

TURNS = 4
"""So many turns of the loop, and events are heard after all else of an instant, as in the simulator."""


class PromptKeys(Keys):
    """The keys of arrivals: those by which the door knows their prompts, and others for their answers.

    A twin says the same whenever it is asked the same.
    """

    def of(self, arrival: Arrival, block_tokens: int) -> list[int]:
        asked = ids(body(arrival))
        prompt, answer = blocks_of(root(MODEL), asked, block_tokens), crc32(asked)
        blocks = (arrival.prompt_tokens + arrival.output_tokens) // block_tokens
        return [*prompt, *(mix(answer, number) for number in range(len(prompt), blocks))]


def ids(written: bytes) -> bytes:
    """Those of a request, as its engine has them."""
    return tokens.conversation((said["role"], said["content"]) for said in json.loads(written)["messages"])


class Ids(Source):
    """Tells the ids of a request at once."""

    def __init__(self) -> None:
        pass

    async def __call__(self, order: Order) -> bytes:
        return ids(b"".join(order.parts))


def told(request: Request, written: bytes, *, sized: bool) -> Request:
    """What the door makes of a request with the ids of its prompt, the size of blocks being known or not."""
    packed = ids(written)
    block_tokens = PROFILE.block_tokens if sized else 0
    blocks = blocks_of(root(MODEL), packed, block_tokens) if sized else ()
    return structs.replace(
        request,
        prompt_tokens=tokens.count(packed),
        prompt_exact=True,
        blocks=blocks,
        block_tokens=block_tokens,
    )


class Wire:
    """One publisher's socket, and the subscription to it."""

    closed = False

    def __init__(self) -> None:
        self.close()

    def close(self) -> None:
        """Nobody listens."""
        self.heard: Callable[[list[bytes]], None] = lambda _frames: None
        self.settle: Callable[[], None] = lambda: None

    def send_multipart(self, frames: list[bytes], _flags: int) -> None:
        self._pass(frames, TURNS)

    def _pass(self, frames: list[bytes], turns: int) -> None:
        if turns:
            asyncio.get_running_loop().call_soon(self._pass, frames, turns - 1)
        else:
            self.heard(frames)
            self.settle()


class Wires(Sockets):
    """In place of ZMQ. Each engine publishes at one port of its host, and tells nothing again."""

    def __init__(self) -> None:
        self._by_host: dict[str, Wire] = {}

    def at(self, host: str) -> Wire:
        return self._by_host.setdefault(host, Wire())

    def subscribe(
        self,
        address: str,
        heard: Callable[[list[bytes]], None],
        settle: Callable[[], None],
        *,
        bind: bool = False,
    ) -> Any:
        wire = self.at(urlsplit(address).hostname or "")
        wire.heard, wire.settle = heard, settle
        return wire

    def close(self) -> None:
        """There is nothing to close."""


class Publisher(KvEvents):
    """A twin's events, on such a wire."""

    def __init__(self, wire: Wire, wall: Callable[[], float]) -> None:
        self._wire = wire
        super().__init__("tcp://*:5557", PROFILE.block_tokens, wall)

    def _open(self, kind: int, endpoint: str, *, bind: bool) -> Any:
        return self._wire
