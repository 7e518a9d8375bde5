"""Decisions under real traffic, recorded and replayed: the same again, and a lie is found."""

from __future__ import annotations

import json
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.children import MAITRED, MODEL, Engine, chat, post, stopped, stream
from tests.e2e.conftest import Serve

CHAT = "/v1/chat/completions"


def replay(path: Path) -> subprocess.CompletedProcess[str]:
    words = [*MAITRED, "replay", str(path)]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def journal(serve: Serve, engines: list[Engine], tmp_path: Path) -> Path:
    """What a gateway recorded of all that can happen to it."""
    path = tmp_path / "decisions.journal"
    models = [{"name": MODEL, "endpoints": [engine.url for engine in engines], "cap": 1}]
    gateway = serve("--journal", str(path), config={"models": models, "drain": {"limit": "0s"}})
    gateway.until(gateway.all_ready)
    with ThreadPoolExecutor(6) as clients:  # more than there are places
        answers = list(clients.map(lambda _: post(gateway.port, CHAT, chat(tokens=20)), range(6)))
    assert {status for status, _, _ in answers} == {200}
    assert post(gateway.port, CHAT, chat() | {"model": "gpt-9"})[0] == 404
    with stream(gateway.port, chat(tokens=1000)) as events:
        for _ in range(40):
            next(events)
    gateway.until(lambda: gateway.metric("requests_total", outcome="client_gone") == 1)
    victim = engines[0]
    with ThreadPoolExecutor(2) as clients:
        with stopped(engines):  # each has one place, and nobody gives it back
            both = [clients.submit(post, gateway.port, CHAT, chat(tokens=1)) for _ in range(2)]
            gateway.until(lambda: gateway.metric("endpoint_in_flight", endpoint=victim.name) == 1)
            victim.kill()
        assert [answer.result()[0] for answer in both] == [200] * 2
    victim.start()
    gateway.until(gateway.all_ready)
    with stream(gateway.port, chat(tokens=1000)) as events:
        next(events)
        gateway.signal(signal.SIGTERM)
        assert gateway.wait() == 0
    return path


def test_a_journal_of_real_traffic_replays_and_a_changed_one_does_not(journal: Path) -> None:
    lines = journal.read_text().splitlines()
    verbs = {json.loads(line)[0] for line in lines[1:]}
    assert verbs == {
        "accept", "release", "sent", "answered", "progress", "leave", "fail", "finish", "update",
    }  # fmt: skip
    said = replay(journal)
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout == f"{len(lines) - 1} decisions replayed, all the same\n"

    number, seated = next((n, line) for n, line in enumerate(lines, 1) if '"go"' in line)
    port = int(seated.partition("127.0.0.1:")[2].partition('"')[0])
    lines[number - 1] = seated.replace(f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}")
    journal.write_text("\n".join(lines) + "\n")
    said = replay(journal)
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr.startswith(f"Error: line {number}: release: recorded ")
    assert "Traceback" not in said.stderr
