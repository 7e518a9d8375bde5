"""The access log of real traffic: a line a request, for machines, and nothing of what was said."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from typing import Any

from tests.e2e.children import MODEL, Engine, Gateway, ask, chat, get, has_content, stream
from tests.e2e.conftest import Serve

CANARY = "canary-Zq7"
TOOL = {"type": "function", "function": {"name": CANARY, "parameters": {"type": "object"}}}
SECRETIVE = {"authorization": f"Bearer {CANARY}", "cookie": CANARY, "x-request-id": f"my {CANARY}"}
CONTENT = f"Tell me of {CANARY} and the sea."

REQUESTS: list[tuple[str, str, object]] = [
    ("completed", "chat/completions", chat(CONTENT, tokens=30, tools=[TOOL], user=CANARY)),
    ("completed", "completions", {"model": MODEL, "prompt": CANARY, "max_tokens": 30, "ignore_eos": True}),
    ("engine_refused", "completions", {"model": MODEL, "prompt": f"{CANARY} " * 2000}),
    ("model_not_found", "chat/completions", {**chat(CONTENT), "model": CANARY}),
    ("bad_request", "chat/completions", {**chat(CONTENT), "n": CANARY}),
    ("bad_request", "chat/completions", f'{{"model": {CANARY}'.encode()),
    ("bad_request", "chat/completions", b'{"prompt": "%b\xff"}' % CANARY.encode()),
    ("engine_refused", "embeddings", {"model": MODEL, "input": CANARY}),
    ("path_not_found", "nothing", {"prompt": CANARY}),
]
BROKEN = {"failed_upstream", "failed_truncated"}
"""Whether the end of a killed engine is a reset or a plain end is up to the kernel."""
DISPATCHED = {"completed", "engine_refused", "client_gone", *BROKEN}


def texts(answer: dict[str, Any]) -> Iterator[str]:
    """What a whole answer or an event of a stream says."""
    for choice in answer.get("choices", ()):
        said = choice.get("text") or choice.get("message", choice.get("delta", {})).get("content")
        yield said or ""


def answers_in_one_piece(gateway: Gateway) -> Iterator[str]:
    for _outcome, path, body in REQUESTS:
        with ask(gateway.port, "POST", f"/v1/{path}?key={CANARY}", body, SECRETIVE) as answer:
            yield from texts(json.loads(answer.read()))


def streams_to_every_end(gateway: Gateway, engines: list[Engine]) -> Iterator[str]:
    """One is completed, one is left, one loses its engine."""
    with stream(gateway.port, chat(CONTENT, tokens=30)) as events:
        yield "".join(text for event in events if has_content(event) for text in texts(json.loads(event)))
    with stream(gateway.port, chat(CONTENT, tokens=1000)) as events:
        next(event for event in events if has_content(event))
    gateway.until(lambda: gateway.metric("in_flight") == 0)
    with stream(gateway.port, chat(CONTENT, tokens=1000)) as events:
        next(event for event in events if has_content(event))
        for engine in engines:
            engine.kill()
        assert "error" in json.loads([*events][-1])


def test_every_request_leaves_one_line_and_none_of_its_content(serve: Serve, engines: list[Engine]) -> None:
    urls = [engine.url for engine in engines]
    gateway = serve(*urls, "--log-format", "json", "--log-level", "debug")
    gateway.until(gateway.all_ready)
    said = [*answers_in_one_piece(gateway), *streams_to_every_end(gateway, engines)]
    status = [get(gateway.admin_port, path)[2].decode() for path in ("/metrics", "/admin/v1/endpoints")]
    gateway.signal(signal.SIGTERM)
    assert gateway.wait() == 0

    lines = [line for line in map(json.loads, gateway.lines) if "outcome" in line]  # all are JSON
    *outcomes, last = [line["outcome"] for line in lines]
    assert outcomes == [*(outcome for outcome, _, _ in REQUESTS), "completed", "client_gone"]
    assert last in BROKEN
    assert len({line["id"] for line in lines}) == len(lines)
    names = {engine.name for engine in engines}
    for line in lines:
        assert (line.get("endpoint") in names) is (line["outcome"] in DISPATCHED)
        assert line["path"].startswith("/v1/")
        assert line["method"] == "POST"
        assert line["client"].startswith("127.0.0.1:")
    completed = [line for line in lines if line["outcome"] == "completed"]
    assert [line["output_tokens"] for line in completed] == [30, 30, 30]
    assert all(line["prompt_tokens"] > 0 for line in completed)  # as the engine counts, streams included

    written = "\n".join([gateway.output, *status])
    assert CANARY not in written
    assert len(said) == 3
    for text in said:
        assert len(text) > 10
        assert text not in written
        assert json.dumps(text)[1:-1] not in written
