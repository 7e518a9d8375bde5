"""A budget outlives a gateway that is killed."""

from __future__ import annotations

import json
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.e2e.children import MODEL, Engine, Gateway, chat, post
from tests.e2e.conftest import Serve

CHAT = "/v1/chat/completions"


def spent(book: Path) -> int:
    with closing(sqlite3.connect(book)) as connection:
        rows = connection.execute("SELECT month_tokens FROM accounts WHERE holder = 'guest anonymous'")
        return sum(tokens for (tokens,) in rows)


def started(serve: Serve, engines: list[Engine], book: Path) -> Gateway:
    gateway = serve(
        config={
            "models": [{"name": MODEL, "endpoints": [engine.url for engine in engines]}],
            "default_tenant": {"budget": {"tokens_per_month": 200}},
            "store": {"url": f"sqlite:///{book}"},
            "accounts": {"period": "50ms"},
        }
    )
    gateway.until(gateway.all_ready)
    return gateway


def test_what_was_spent_is_known_after_kill_9(serve: Serve, engines: list[Engine], tmp_path: Path) -> None:
    book = tmp_path / "book.db"
    gateway = started(serve, engines, book)
    used = 0
    while True:
        status, _, body = post(gateway.port, CHAT, chat(tokens=30))
        if status != 200:
            break
        used += json.loads(body)["usage"]["total_tokens"]
    assert (status, json.loads(body)["error"]["code"]) == (429, "insufficient_quota")
    gateway.until(lambda: spent(book) == used)
    gateway.signal(signal.SIGKILL)
    gateway.wait()

    gateway = started(serve, engines, book)
    status, _, body = post(gateway.port, CHAT, chat(tokens=30))
    error = json.loads(body)["error"]
    assert (status, error["code"]) == (429, "insufficient_quota")
    assert f"has {max(0, 200 - used)} tokens left of 200 tokens a month" in error["message"]
