"""Processes die in the middle of turns: what is kept is whole, and nothing is built on what is not."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.children import MAITRED, MODEL, SLOTS, Child, Engine, Gateway, ask, get, post, stopped
from tests.e2e.conftest import Serve
from tests.store.postgres import Postgres

RESPONSES, CONVERSATIONS = "/v1/responses", "/v1/conversations"
LONG: dict[str, Any] = {"model": MODEL, "input": "Tell me a story of a ship.", "max_output_tokens": 150}
SHORT: dict[str, Any] = {"model": MODEL, "max_output_tokens": 4}
Start = Callable[[], Gateway]


@pytest.fixture(params=["sqlite", "postgresql"])
def start(request: pytest.FixtureRequest, tmp_path: Path, serve: Serve, engines: list[Engine]) -> Start:
    """Starts a gateway, and another one, on one database; a turn counts as lost after two seconds."""
    store: dict[str, Any] = {"url": f"sqlite:///{tmp_path}/turns.db"}
    if request.param == "postgresql":
        server: Postgres = request.getfixturevalue("server")
        (tmp_path / "url").write_text(server.make(f"of-{tmp_path.name}"))
        store = {"url": {"file": str(tmp_path / "url")}}
    config = {
        "store": {**store, "sweep": "100ms"},
        "models": [{"name": MODEL, "endpoints": [each.url for each in engines], "cap": SLOTS}],
        "responses": {"lease": "2s", "background": {"period": "100ms"}},
    }

    def started() -> Gateway:
        gateway = serve(config=config)
        gateway.until(lambda: gateway.all_ready(2))
        return gateway

    if request.param == "postgresql":
        (tmp_path / "maitred.yaml").write_text(json.dumps({"version": 1, **config}))
        subprocess.run((*MAITRED, "db", "upgrade"), cwd=tmp_path, check=True, capture_output=True)
    return started


@contextmanager
def streaming(gateway: Gateway, **members: Any) -> Iterator[Iterator[dict[str, Any]]]:
    """The events of a streamed turn."""
    with ask(gateway.port, "POST", RESPONSES, {**LONG, "stream": True, **members}) as answer:
        assert answer.status == 200, answer.read()
        lines = (line[6:] for line in answer if line.startswith(b"data: {"))
        yield (json.loads(line) for line in lines)


def begun(events: Iterator[dict[str, Any]]) -> str:
    """The id of a response of which something was said."""
    made: str = next(events)["response"]["id"]
    next(event for event in events if event["type"] == "response.output_text.delta")
    return made


def making(gateway: Gateway) -> float:
    """How many turns that nobody waits for it is making."""
    return gateway.metric("background_making")


def answer(gateway: Gateway, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
    status, _, said = get(gateway.port, path) if body is None else post(gateway.port, path, body)
    return status, json.loads(said)


def test_a_killed_gateway_leaves_no_half_turn_and_its_conversation_goes_on(
    start: Start, engines: list[Engine]
) -> None:
    gateway = start()
    conversation = answer(gateway, CONVERSATIONS, {})[1]["id"]
    first = answer(gateway, RESPONSES, {**SHORT, "input": "Hello.", "conversation": conversation})[1]["id"]
    with streaming(gateway, conversation=conversation) as events:
        lost = begun(events)
        with stopped(engines):
            gateway.signal(signal.SIGKILL)
            gateway.wait()
        assert {event["type"] for event in events} <= {"response.output_text.delta"}

    gateway = start()
    gateway.until(lambda: answer(gateway, f"{RESPONSES}/{lost}")[1]["status"] == "failed")
    assert answer(gateway, f"{RESPONSES}/{lost}")[1]["output"] == []
    status, refused = answer(gateway, RESPONSES, {**SHORT, "input": "And?", "previous_response_id": lost})
    assert (status, refused["error"]["param"]) == (400, "previous_response_id")
    items = answer(gateway, f"{CONVERSATIONS}/{conversation}/items?order=asc")[1]["data"]
    assert [item["role"] for item in items] == ["user", "assistant"]
    for more in ({"conversation": conversation}, {"previous_response_id": first}):
        assert answer(gateway, RESPONSES, {**SHORT, "input": "And?", **more})[0] == 200


@pytest.mark.parametrize("start", ["postgresql"], indirect=True)
def test_a_database_that_dies_under_a_turn_keeps_nothing_of_it(
    start: Start, engines: list[Engine], server: Postgres
) -> None:
    gateway = start()
    first = answer(gateway, RESPONSES, {**SHORT, "input": "Hello."})[1]["id"]
    with streaming(gateway, previous_response_id=first) as events:
        lost = begun(events)
        with stopped(engines):
            server.kill()
        last = list(events)[-1]
    assert last["type"] == "error"
    assert last["code"] == "store_unavailable"

    server.start()
    gateway.until(lambda: answer(gateway, f"{RESPONSES}/{lost}")[0] != 503)
    gateway.until(lambda: answer(gateway, f"{RESPONSES}/{lost}")[1].get("status") in {"failed", None})
    status, refused = answer(gateway, RESPONSES, {**SHORT, "input": "And?", "previous_response_id": lost})
    assert (status, refused["error"]["param"]) in {
        (400, "previous_response_id"),
        (404, "previous_response_id"),
    }
    status, after = answer(gateway, RESPONSES, {**SHORT, "input": "And?", "previous_response_id": first})
    assert status == 200
    items = answer(gateway, f"{RESPONSES}/{after['id']}/input_items")[1]["data"]
    assert len(items) == 1


def test_turns_alternate_between_two_gateways(start: Start) -> None:
    both = start(), start()
    conversation = answer(both[0], CONVERSATIONS, {})[1]["id"]
    previous, tokens = None, 0
    for at in range(6):
        here, there = both[at % 2], both[1 - at % 2]
        status, made = answer(
            here, RESPONSES, {**SHORT, "input": f"Say {at}.", "previous_response_id": previous}
        )
        assert status == 200, made
        assert made["usage"]["input_tokens"] > tokens  # all of it was said again
        previous, tokens = made["id"], made["usage"]["input_tokens"]
        assert answer(there, f"{RESPONSES}/{previous}")[1] == made
        assert answer(here, RESPONSES, {**SHORT, "input": "Hi.", "conversation": conversation})[0] == 200
    pages = [answer(each, f"{CONVERSATIONS}/{conversation}/items?limit=100")[1] for each in both]
    assert len(pages[0]["data"]) == 12
    assert pages[0] == pages[1]


def test_a_job_of_a_killed_gateway_is_made_by_the_other(start: Start) -> None:
    first, second = start(), start()
    status, job = answer(first, RESPONSES, {**LONG, "background": True})
    assert (status, job["status"]) == (200, "queued")
    path = f"{RESPONSES}/{job['id']}"
    second.until(lambda: making(first) + making(second))
    holder, left = (first, second) if making(first) else (second, first)
    holder.signal(signal.SIGKILL)
    holder.wait()
    left.until(lambda: answer(left, path)[1]["status"] in {"completed", "incomplete"})
    made = answer(left, path)[1]
    assert made["usage"]["output_tokens"] <= LONG["max_output_tokens"]
    assert len(made["output"]) == 1


@pytest.mark.slow
def test_a_thousand_turns_leave_the_memory_as_it_was(
    no_leftovers: None, tmp_path: Path, serve: Serve
) -> None:
    twin = (*MAITRED, "twin", "--profile", "h100-llama-3.1-8b", "--model", "m", "--port", "0")
    with Child(*twin) as engine:
        url = engine.expect(r"http://127\.0\.0\.1:\d+")[0]
        store = {"url": f"sqlite:///{tmp_path}/turns.db", "synchronous": "normal"}
        gateway = serve(config={"store": store, "models": [{"name": "m", "endpoints": [url]}]})
        gateway.until(lambda: gateway.all_ready(1))
        chains(gateway.port, 20)
        before = resident_kib(gateway.process.pid)
        chains(gateway.port, 100)
        assert resident_kib(gateway.process.pid) - before < 4096


def chains(port: int, count: int) -> None:
    """Chains of ten turns, 1 KB a turn, some at a time."""
    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(chain, [port] * count):
            pass


def chain(port: int) -> None:
    previous = None
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        for _ in range(10):
            body = {"model": "m", "input": "word " * 200, "max_output_tokens": 1}
            asked = json.dumps({**body, "previous_response_id": previous})
            connection.request("POST", RESPONSES, asked, {"content-type": "application/json"})
            response = connection.getresponse()
            said = json.loads(response.read())
            assert response.status == 200, said
            previous = said["id"]


def resident_kib(pid: int) -> int:
    """The memory that a process holds."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
