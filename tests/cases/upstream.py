"""An engine that misbehaves by script, on real sockets: piece by piece, at the moment a test chooses.

A plan is a list of steps: bytes are written, an event is waited for, an `End` ends the connection. When a
plan runs out the connection stays open for the next request, so the empty plan is an engine that never
answers. What engines are asked in passing (their models, whether they are ready) is answered apart from it.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

from maitred.net.seams import Listener, Sockets
from tests.proxy.upstream import EVENTS, JSON, LAST, MODEL, STREAM, Asked, End, chunk, whole

Step = bytes | asyncio.Event | End
Plan = Sequence[Step]
SILENCE: Plan = ()
GOOD: Plan = (whole(JSON),)


def card(name: str, **more: Any) -> dict[str, Any]:
    """One entry of an engine's list of models."""
    return {"id": name, "object": "model", "created": 1, "owned_by": "vllm", "max_model_len": 1 << 24, **more}


def adapter(name: str, base: str) -> dict[str, Any]:
    """The entry of a LoRA adapter."""
    return {**card(name), "parent": base, "root": f"/adapters/{name}"}


def stream(*events: bytes, end: Plan = (LAST,)) -> list[Step]:
    """A chunked stream, one write and one chunk an event."""
    return [STREAM, *map(chunk, events or EVENTS), *end]


class Script:
    """The plans of the next requests, in order, whichever engine gets them; the last one is repeated."""

    def __init__(self, *plans: Plan) -> None:
        self.plans = deque(plans)
        self.asked: list[Asked] = []
        self._news = asyncio.Event()

    def set(self, *plans: Plan) -> None:
        """From now on follow these."""
        self.plans = deque(plans)

    def take(self, asked: Asked) -> Plan:
        """A request has come: its plan."""
        self.asked.append(asked)
        self._news.set()
        return self.plans.popleft() if len(self.plans) > 1 else self.plans[0]

    async def called(self, count: int = 1) -> Asked:
        """Wait for so many requests in all; the last of them."""
        while len(self.asked) < count:
            self._news.clear()
            await self._news.wait()
        return self.asked[count - 1]


OPEN: list[Engine] = []
"""Engines that listen, to be closed after each test."""


class Engine:
    """One engine. `models`: what it says it serves; None: it does not answer questions at all.

    `questions` are the paths it was asked apart from requests; `received` is all that came, by connection.
    """

    def __init__(self, *plans: Plan, script: Script | None = None, host: str = "127.0.0.1") -> None:
        self.script = script or Script(*(plans or (GOOD,)))
        self.models: list[dict[str, Any]] | None = [card(MODEL)]
        self.generates = True
        self.questions: list[str] = []
        self.received: list[bytearray] = []
        self.serving: set[_Connection] = set()
        self.number = 0
        self._host = host
        self._listener: Listener | None = None

    async def open(self, port: int = 0) -> None:
        """Listen, unless it does."""
        if self._listener is not None:
            return
        OPEN.append(self)
        self._listener = await Sockets().listen(lambda: _Connection(self), self._host, port)
        self.port = self._listener.address[1]

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://{self._host}:{self.port}"

    def close(self) -> None:
        """Accept no more, and drop everybody, as a process that is killed."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            OPEN.remove(self)
        for connection in list(self.serving):
            connection.transport.abort()

    def answer_to(self, method: str, path: str, body: bytes) -> Plan | None:
        """What is answered apart from the plans; None for a request that follows them."""
        if method == "POST" and not _is_probe(body):
            return None
        self.questions.append(path)
        if self.models is None:
            return SILENCE
        if path == "/v1/models":
            return [whole(json.dumps({"object": "list", "data": self.models}).encode())]
        if method == "GET":
            return [whole(b'{"error":{"message":"not here"}}', status=404)]
        return [whole(JSON)] if self.generates else [whole(b'{"error":{"message":"ill"}}', status=500)]


class _Connection(asyncio.Protocol):
    """One connection of a gateway, which has one request at a time answered by a task of its own."""

    def __init__(self, engine: Engine) -> None:
        self.received = bytearray()
        self._engine = engine
        self._read_to = 0
        self._asked: list[Asked] = []
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        engine.received.append(self.received)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._engine.serving.add(self)

    def data_received(self, data: bytes) -> None:
        self.received += data
        self._read()

    def connection_lost(self, exc: Exception | None) -> None:
        self._engine.serving.discard(self)
        if self._task is not None:
            self._task.cancel()
        for asked in self._asked:
            asked.lost.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _read(self) -> None:
        end = self.received.find(b"\r\n\r\n", self._read_to)
        if end < 0 or self._task is not None:
            return
        raw_head = bytes(self.received[self._read_to : end])
        lengths = [
            line[16:] for line in raw_head.split(b"\r\n") if line.lower().startswith(b"content-length: ")
        ]
        over = end + 4 + (int(lengths[0]) if lengths else 0)
        if len(self.received) < over:
            return
        body, self._read_to = bytes(self.received[end + 4 : over]), over
        asked = Asked(self._engine.number, len(self._engine.received), raw_head, body)
        plan = self._engine.answer_to(asked.method, asked.target, body)
        if plan is None:
            self._asked.append(asked)
            plan = self._engine.script.take(asked)
        self._task = asyncio.create_task(self._answer(plan))

    async def _answer(self, plan: Plan) -> None:
        with suppress(asyncio.CancelledError):
            if not plan:
                await asyncio.Event().wait()
            for step in plan:
                if isinstance(step, bytes):
                    self.transport.write(step)
                    await self._writable.wait()
                    await asyncio.sleep(0)  # each step a write of its own
                elif isinstance(step, asyncio.Event):
                    await step.wait()
                elif step is End.CLOSE:
                    self.transport.close()
                else:
                    reset(self.transport)
            self._task = None
            self._read()


def reset(transport: asyncio.Transport) -> None:
    """End the connection with RST, as the system does for a process that died."""
    sock = transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


def _is_probe(body: bytes) -> bool:
    """Whether a POST asks for one token only, as nobody but a gateway in doubt does."""
    return len(body) < 1024 and b'"max_tokens":1,' in body.replace(b" ", b"").replace(b"}", b",")
