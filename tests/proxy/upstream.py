"""An engine that can fail in every way: it answers by script, byte for byte, on either network.

A plan is a list of steps, taken one after the other: bytes are written, a number waits so many seconds, an
event waits until it is set, an `End` ends the connection. A plan that runs out leaves the connection open for
the next request, so an empty plan is an engine that hangs.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections import deque
from collections.abc import Sequence
from enum import Enum, auto
from typing import cast

from maitred.net.memory import MemoryTransport
from maitred.net.seams import Listener, Network

MODEL = "m"
CARD = {"id": MODEL, "object": "model", "created": 1, "owned_by": "vllm", "max_model_len": 1 << 24}


class End(Enum):
    """How an engine can leave."""

    CLOSE = auto()
    RESET = auto()


Step = bytes | float | asyncio.Event | End
Plan = Sequence[Step]
SILENCE: Plan = ()


class Asked:
    """One POST as it came. `lost` is set when its connection ends; `busy` while its plan runs."""

    def __init__(self, kitchen: int, connection: int, raw_head: bytes, body: bytes) -> None:
        self.kitchen = kitchen
        self.connection = connection
        self.raw_head = raw_head
        self.body = body
        self.lost = asyncio.Event()
        first, *lines = raw_head.decode("latin-1").split("\r\n")
        self.method, self.target, self.version = first.split(" ")
        self.headers = [(name.lower(), value) for name, _, value in (line.partition(": ") for line in lines)]

    def values(self, name: str) -> list[str]:
        """Every value of a header."""
        return [value for key, value in self.headers if key == name]


class Menu:
    """The plans of the next POSTs, in order, whichever kitchen gets them; the last one is repeated.

    `asked` are the POSTs so far.
    """

    def __init__(self, *plans: Plan) -> None:
        self.plans = deque(plans)
        self.asked: list[Asked] = []
        self._news = asyncio.Event()

    def set(self, *plans: Plan) -> None:
        """From now on serve these."""
        self.plans = deque(plans)

    def next(self) -> Plan:
        """The plan for the POST that has just come."""
        return self.plans.popleft() if len(self.plans) > 1 else self.plans[0]

    def note(self, asked: Asked) -> None:
        """A POST has come."""
        self.asked.append(asked)
        self._news.set()

    async def called(self, count: int = 1) -> Asked:
        """Wait for so many POSTs in all; the last of them."""
        while len(self.asked) < count:
            self._news.clear()
            await self._news.wait()
        return self.asked[count - 1]


class Kitchen:
    """One engine's address. `lives`: its probes are answered; `reads_after_s`: how late it begins to read."""

    def __init__(self, number: int, menu: Menu) -> None:
        self.number = number
        self.menu = menu
        self.lives = True
        self.reads_after_s = 0.0
        self.connections: list[Connection] = []
        self.probes = 0
        self._listener: Listener | None = None

    async def open(self, network: Network, port: int = 0) -> None:
        """Listen."""
        self._network = network
        self._listener = await network.listen(lambda: Connection(self), "127.0.0.1", port)
        self.address = self._listener.address

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://{self.address[0]}:{self.address[1]}"

    @property
    def serving(self) -> list[Connection]:
        """Connections that are open."""
        return [connection for connection in self.connections if not connection.lost]

    def close(self) -> None:
        """Accept no more, and drop everybody."""
        if self._listener is not None:
            self._listener.close()
        for connection in self.serving:
            connection.transport.abort()


class Connection(asyncio.Protocol):
    """One connection of a gateway. `pauses` counts how often the gateway made it wait."""

    def __init__(self, kitchen: Kitchen) -> None:
        self.lost = False
        self.pauses = 0
        self.paused = False
        self.received = bytearray()
        self._kitchen = kitchen
        self._buffer = b""
        self._busy = False
        self._steps: deque[Step] = deque()
        self._asked: list[Asked] = []
        self._wait: asyncio.TimerHandle | asyncio.Task[object] | None = None
        kitchen.connections.append(self)
        self._number = len(kitchen.connections)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        if self._kitchen.reads_after_s:
            self.transport.pause_reading()
            asyncio.get_running_loop().call_later(self._kitchen.reads_after_s, self.transport.resume_reading)

    def data_received(self, data: bytes) -> None:
        self.received += data
        self._buffer += data
        self._read()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self._steps.clear()
        if self._wait is not None:
            self._wait.cancel()
        for asked in self._asked:
            asked.lost.set()

    def pause_writing(self) -> None:
        self.paused = True
        self.pauses += 1

    def resume_writing(self) -> None:
        self.paused = False
        self._go()

    def _read(self) -> None:
        head, over, rest = self._buffer.partition(b"\r\n\r\n")
        if self._busy or not over:
            return
        lengths = [line[16:] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length: ")]
        length = int(lengths[0]) if lengths else 0
        if len(rest) < length:
            return
        self._buffer = rest[length:]
        self._busy = True
        self._steps.extend(self._plan(head, rest[:length]))
        self._go()

    def _plan(self, head: bytes, body: bytes) -> Plan:
        kitchen = self._kitchen
        if head.startswith(b"GET /v1/models "):
            kitchen.probes += 1
            cards = json.dumps({"object": "list", "data": [CARD]}).encode()
            return [whole(cards), End.CLOSE] if kitchen.lives else []
        if head.startswith(b"GET "):  # it tells nothing more of itself
            return [b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", End.CLOSE]
        asked = Asked(kitchen.number, self._number, head, body)
        self._asked.append(asked)
        plan = kitchen.menu.next()
        kitchen.menu.note(asked)
        if not plan:
            self._steps.append(1e9)
        return plan

    def _go(self, *_: object) -> None:
        self._wait = None
        while self._steps and not self.paused and not self.lost:
            step = self._steps.popleft()
            if isinstance(step, bytes):
                self.transport.write(step)
            elif step is End.CLOSE:
                self.transport.close()
            elif step is End.RESET:
                _reset(self.transport)
            elif isinstance(step, float | int):
                self._wait = asyncio.get_running_loop().call_later(step, self._go)
                return
            elif isinstance(step, asyncio.Event):
                self._wait = asyncio.ensure_future(step.wait())
                self._wait.add_done_callback(self._go)
                return
        if not self._steps and self._busy:
            self._busy = False
            self._read()


def _reset(transport: asyncio.Transport) -> None:
    if isinstance(transport, MemoryTransport):
        transport.reset()
        return
    sock = transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


# -- what plans are made of ---------------------------------------------------------------------------


def head(status: int, *headers: str, reason: str = "Whatever") -> bytes:
    """The head of an answer."""
    return "\r\n".join([f"HTTP/1.1 {status} {reason}", *headers, "", ""]).encode()


def whole(body: bytes, *headers: str, status: int = 200) -> bytes:
    """A JSON answer of known length."""
    return head(status, "content-type: application/json", f"content-length: {len(body)}", *headers) + body


def chunk(data: bytes) -> bytes:
    """One chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST = b"0\r\n\r\n"
EVENT_STREAM = "content-type: text/event-stream; charset=utf-8"
STREAM = head(200, EVENT_STREAM, "transfer-encoding: chunked")


def event(choices: str, usage: str = "null", model: str = MODEL) -> bytes:
    """One event of a chat stream, in the form vLLM sends."""
    return (
        f'data: {{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"{model}",'
        f'"choices":[{choices}],"usage":{usage}}}\n\n'
    ).encode()


def word(text: str, model: str = MODEL) -> bytes:
    """An event with content."""
    delta = json.dumps({"content": text}, separators=(",", ":"), ensure_ascii=False)
    return event(f'{{"index":0,"delta":{delta},"finish_reason":null}}', model=model)


ROLE = event('{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}')
FINISH = event('{"index":0,"delta":{},"finish_reason":"stop"}')
USAGE = event("", '{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}')
DONE = b"data: [DONE]\n\n"
ERROR = b'data: {"error":{"message":"the engine is on fire","type":"InternalServerError","code":500}}\n\n'
EVENTS = (ROLE, word("Hello"), word(" world"), FINISH, USAGE, DONE)
SEEN = b"".join((ROLE, word("Hello"), word(" world"), FINISH, DONE))
"""What a client that did not ask for usage sees of `EVENTS`."""


def stream(*events: bytes, end: Plan = (LAST,)) -> list[Step]:
    """A chunked stream, one write and one chunk an event."""
    return [STREAM, *map(chunk, events or EVENTS), *end]


JSON = (
    b'{"id":"chatcmpl-1","object":"chat.completion","model":"m","choices":[],'
    b'"usage":{"prompt_tokens":5,"completion_tokens":2}}'
)
GOOD: Plan = (whole(JSON),)
GOOD_STREAM: Plan = stream()
