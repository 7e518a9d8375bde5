"""The twin's KV events: what enters and leaves the prefix cache, published over ZMQ as vLLM does.

A message has three frames: topic, sequence number (8 bytes, big-endian), and a msgpack array of wall time,
events and rank. Events are maps as in vLLM 0.32, or arrays as up to 0.16. What is published stays in a
bounded buffer, and a replay socket (ROUTER) sends it again from a sequence number on.

Everything is done on the loop: a PUB socket never waits (it drops for subscribers that are too slow), and its
input and output run in a thread of ZMQ's own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import msgspec
import zmq

from maitred.sim.job import Job
from maitred.twin import tokens
from maitred.twin.service import Cached

Form = Literal["map", "array"]

BUFFER_MESSAGES_MAX = 10_000
SEND_MESSAGES_MAX = 100_000
"""vLLM's own bounds of the replay buffer and of what waits for a slow subscriber."""
END_SEQUENCE = b"\xff" * 8
"""The sequence number, -1, of the message that ends a replay."""
MEDIUM = "GPU"


class Source(Protocol):
    """Who knows the texts of jobs."""

    def cached(self, job: Job) -> Cached:
        """That of a job which is not over."""


def binds(endpoint: str) -> bool:
    """Whether a publisher binds there; else it connects, and the subscriber must bind. vLLM's own rule."""
    return "*" in endpoint or "::" in endpoint or endpoint.startswith(("ipc://", "inproc://"))


class KvEvents:
    """Publishes what it hears of an engine's cache, a message for all that happens in one turn of the loop.

    `endpoint` and `replay` are ZMQ's, as `tcp://*:5557`; without `replay` nothing is sent again. `wall` is
    wall time in seconds, `next` the number of the next message. The twin fills in an empty `topic`. Raises
    zmq.ZMQError where an endpoint is taken.
    """

    def __init__(
        self,
        endpoint: str,
        block_tokens: int,
        wall: Callable[[], float],
        replay: str | None = None,
        topic: str = "",
        form: Form = "map",
    ) -> None:
        self.topic = topic
        self._block_tokens = block_tokens
        self._wall = wall
        self._stored = _stored_map if form == "map" else _stored_array
        self._removed = _removed_map if form == "map" else _removed_array
        self._cleared: Any = {"type": "AllBlocksCleared"} if form == "map" else ["AllBlocksCleared"]
        self._events: list[Any] = []
        self._buffer: deque[tuple[int, bytes]] = deque(maxlen=BUFFER_MESSAGES_MAX)
        self.next = 0
        self.source: Source | None = None
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        try:
            self._publisher = self._open(zmq.PUB, endpoint, bind=binds(endpoint))
            self._replay = self._open(zmq.ROUTER, replay, bind=True) if replay else None
        except zmq.ZMQError:
            self._context.destroy(linger=0)
            raise

    def start(self) -> None:
        """Begin to answer replay requests, on the running loop."""
        if self._replay is not None:
            asyncio.get_running_loop().add_reader(self._replay.fileno(), self._serve_replay)
            self._serve_replay()

    def stop(self) -> None:
        """Close everything, started or not; what was not sent is dropped."""
        if self._replay is not None:
            asyncio.get_running_loop().remove_reader(self._replay.fileno())
        self._context.destroy(linger=0)

    def restart(self) -> None:
        """A new process begins: its numbers start at 0, and it knows of no message before."""
        self._events.clear()
        self._buffer.clear()
        self.next = 0

    # -- CacheListener ----------------------------------------------------------------------------

    def stored(self, keys: Sequence[int], parent: int | None, job: Job) -> None:
        """See CacheListener."""
        assert self.source is not None  # noqa: S101 - set before there is an engine
        of = self.source.cached(job)
        first = job.keys.index(keys[0])
        size = self._block_tokens * tokens.TOKEN_BYTES
        ids = tokens.ids(of.text[first * size : (first + len(keys)) * size])
        extra: list[list[str] | None] = [None] * len(keys)
        if of.salt and not first:
            extra[0] = [of.salt]
        self._add(self._stored(list(keys), parent, ids, self._block_tokens, of.adapter or None, extra))

    def removed(self, keys: Sequence[int]) -> None:
        """See CacheListener."""
        for key in keys:
            self._add(self._removed([key]))

    def cleared(self) -> None:
        """See CacheListener."""
        self._add(self._cleared)

    def _add(self, event: Any) -> None:
        if not self._events:
            asyncio.get_running_loop().call_soon(self._publish)
        self._events.append(event)

    def _publish(self) -> None:
        if self._events and not self._publisher.closed:
            payload = msgspec.msgpack.encode([self._wall(), self._events, 0])
            self._publisher.send_multipart([self.topic.encode(), self.next.to_bytes(8), payload], zmq.NOBLOCK)
            self._buffer.append((self.next, payload))
            self.next += 1
            self._events = []

    # -- replay -----------------------------------------------------------------------------------

    def _serve_replay(self) -> None:
        """Answer all that has come: the descriptor tells only of news, not of what is left."""
        socket = self._replay
        while socket is not None and socket.poll(0):
            frames = socket.recv_multipart(zmq.NOBLOCK)
            if len(frames) != 3 or len(frames[2]) != 8:
                continue  # not a request
            topic, first = self.topic.encode(), int.from_bytes(frames[2])
            for number, payload in self._buffer:
                if number >= first:
                    socket.send_multipart([frames[0], b"", topic, number.to_bytes(8), payload])
            socket.send_multipart([frames[0], b"", b"", END_SEQUENCE, b""])

    def _open(self, kind: int, endpoint: str, *, bind: bool) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.SNDHWM, SEND_MESSAGES_MAX)
        if bind:
            socket.bind(endpoint)
        else:
            socket.connect(endpoint)
        return socket


def _stored_map(
    keys: list[int],
    parent: int | None,
    ids: Sequence[int],
    block_tokens: int,
    adapter: str | None,
    extra: list[list[str] | None],
) -> dict[str, Any]:
    return {
        "type": "BlockStored",
        "block_hashes": keys,
        "parent_block_hash": parent,
        "token_ids": ids,
        "block_size": block_tokens,
        "lora_id": None,
        "medium": MEDIUM,
        "lora_name": adapter,
        "extra_keys": extra,
        "group_idx": 0,
        "kv_cache_spec_kind": "full_attention",
    }


def _stored_array(
    keys: list[int],
    parent: int | None,
    ids: Sequence[int],
    block_tokens: int,
    adapter: str | None,
    _extra: list[list[str] | None],
) -> list[Any]:
    return ["BlockStored", keys, parent, ids, block_tokens, None, MEDIUM, adapter]


def _removed_map(keys: list[int]) -> dict[str, Any]:
    return {"type": "BlockRemoved", "block_hashes": keys, "medium": MEDIUM, "group_idx": 0}


def _removed_array(keys: list[int]) -> list[Any]:
    return ["BlockRemoved", keys, MEDIUM]
