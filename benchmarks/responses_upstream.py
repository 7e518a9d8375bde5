"""An engine that answers at once, in both tongues (/v1/chat/completions, /v1/responses), whole and streamed.

    .venv/bin/python benchmarks/responses_upstream.py PORT

What a gateway adds to a turn is then nearly all there is to see. Every answer has ids of its own, as an
engine's have.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from typing import Any, cast

import uvloop

TEXT = "The ship sails at noon, and the harbour is quiet until then."
MODEL = "bench"
_count = itertools.count(1)


def chat(*, stream: bool) -> bytes:
    """A chat completion."""
    number = next(_count)
    base = {"id": f"chatcmpl-{number}", "created": 1_790_000_000, "model": MODEL}
    usage = {"prompt_tokens": 30, "completion_tokens": 14, "total_tokens": 44}
    if not stream:
        message = {"role": "assistant", "content": TEXT}
        choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": "stop"}
        return json.dumps({**base, "object": "chat.completion", "choices": [choice], "usage": usage}).encode()
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}, {"content": TEXT}]
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
    ]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    chunks.append({"choices": [], "usage": usage})
    events = (json.dumps({**base, "object": "chat.completion.chunk", **chunk}) for chunk in chunks)
    return "".join(f"data: {event}\n\n" for event in (*events, "[DONE]")).encode()


def response(*, stream: bool) -> bytes:
    """A response of the Responses API."""
    number = next(_count)
    part = {"type": "output_text", "text": TEXT, "annotations": []}
    item = {"id": f"msg_{number}", "type": "message", "role": "assistant", "status": "completed"}
    whole: dict[str, Any] = {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1_790_000_000,
        "model": MODEL,
        "status": "completed",
        "output": [{**item, "content": [part]}],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 30,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 14,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 44,
        },
    }
    if not stream:
        return json.dumps(whole).encode()
    begun = {"response": {**whole, "status": "in_progress", "output": [], "usage": None}}
    where = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    empty = {**part, "text": ""}
    events: list[tuple[str, dict[str, Any]]] = [
        ("response.created", begun),
        ("response.in_progress", begun),
        (
            "response.output_item.added",
            {"output_index": 0, "item": {**item, "status": "in_progress", "content": []}},
        ),
        ("response.content_part.added", {**where, "part": empty}),
        ("response.output_text.delta", {**where, "delta": TEXT}),
        ("response.output_text.done", {**where, "text": TEXT}),
        ("response.content_part.done", {**where, "part": part}),
        ("response.output_item.done", {"output_index": 0, "item": whole["output"][0]}),
        ("response.completed", {"response": whole}),
    ]
    said = (
        f"event: {kind}\ndata: {json.dumps({'type': kind, 'sequence_number': at, **data})}\n\n"
        for at, (kind, data) in enumerate(events)
    )
    return "".join(said).encode()


class Engine(asyncio.Protocol):
    """One connection. Requests come one after the other."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin with nothing."""
        self._transport, self._got = cast("asyncio.Transport", transport), b""

    def data_received(self, data: bytes) -> None:
        """Answer what is complete."""
        self._got += data
        head, blank, rest = self._got.partition(b"\r\n\r\n")
        if not blank:
            return
        lines = head.lower().split(b"\r\n")
        length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
        if len(rest) < length:
            return
        self._got = rest[length:]
        self._answer(head.split(b" ", 2)[1], rest[:length])

    def _answer(self, path: bytes, body: bytes) -> None:
        stream = bool(body) and json.loads(body).get("stream") is True
        kind = b"text/event-stream" if stream else b"application/json"
        if path == b"/v1/chat/completions":
            answer = chat(stream=stream)
        elif path == b"/v1/responses":
            answer = response(stream=stream)
        else:
            answer = json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]}).encode()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n" % (kind, len(answer))
        self._transport.write(head + answer)


async def serve(port: int) -> None:
    """Be the engine until killed."""
    await asyncio.get_running_loop().create_server(Engine, "127.0.0.1", port)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
