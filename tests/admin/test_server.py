"""The admin port for real: a thread, a socket, and a gateway's loop that answers, is busy or is gone."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from maitred.admin import server as server_module
from maitred.admin.server import AdminServer
from maitred.core.events import AtDoor
from maitred.core.outcome import Outcome
from maitred.core.words import Endpoint
from maitred.observe.exposition import CONTENT_TYPE, render
from maitred.observe.metrics import Metrics

ENDPOINT = Endpoint(name="qwen/127.0.0.1:8001", pool="qwen", url="http://127.0.0.1:8001", running=1)


class House:
    """A gateway's loop in a thread of its own, with an admin server beside it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.asked_in: list[threading.Thread] = []
        self.metrics = Metrics("1")
        self.admin = AdminServer(
            "127.0.0.1",
            0,
            loop=self.loop,
            endpoints=self.endpoints,
            render=lambda: render(self.metrics),
        )
        self.address = self.admin.start()

    def endpoints(self) -> list[Endpoint]:
        self.asked_in.append(threading.current_thread())
        return [ENDPOINT]

    def get(self, path: str) -> tuple[int, str, bytes]:
        """Status, content type and body of one read."""
        host, port = self.address
        try:
            with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=5) as answer:
                return answer.status, answer.headers["content-type"], answer.read()
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, refusal.headers["content-type"], refusal.read()

    def stop_loop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()

    def close(self) -> None:
        self.admin.stop()
        if self.thread.is_alive():
            self.stop_loop()
        self.loop.close()


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    house = House()
    yield house
    house.close()


def test_metrics_are_served(house: House) -> None:
    for number in range(50):  # several pieces
        house.metrics(AtDoor(1.0, "r", Outcome.QUEUE_FULL, None, f"m{number}"))
    status, content_type, body = house.get("/metrics")
    assert (status, content_type) == (200, CONTENT_TYPE)
    assert body == b"".join(render(house.metrics))


def test_endpoints_are_read_on_the_gateways_own_loop(house: House) -> None:
    status, content_type, body = house.get("/admin/v1/endpoints")
    assert (status, content_type) == (200, "application/json")
    [row] = json.loads(body)
    assert (row["name"], row["state"], row["running"]) == ("qwen/127.0.0.1:8001", "probing", 1)
    assert house.asked_in[-1] is house.thread


def test_unknown_paths_are_json(house: House) -> None:
    status, content_type, body = house.get("/nothing")
    assert (status, content_type) == (404, "application/json")
    assert json.loads(body)["error"]["code"] == "not_found"


def test_a_taken_port_is_one_line_that_names_the_setting(house: House) -> None:
    host, port = house.address
    second = AdminServer(host, port, loop=house.loop, endpoints=list, render=lambda: iter(()))
    with pytest.raises(
        OSError, match=rf"^admin\.listen: {host}:{port} cannot be had: Address already in use"
    ):
        second.start()
    second.stop()


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "gateway.example"])
def test_only_loopback_is_listened_at(house: House, host: str) -> None:
    admin = AdminServer(host, 0, loop=house.loop, endpoints=list, render=lambda: iter(()))
    with pytest.raises(OSError, match=r"admin\.listen: .* is not a loopback address"):
        admin.start()


def test_a_busy_a_stopped_and_a_closed_gateway_are_told_apart_from_the_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "ANSWER_S", 0.05)
    own = House()
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        let_go.wait(5)

    try:
        own.loop.call_soon_threadsafe(hold)
        assert held.wait(5)
        assert own.get("/admin/v1/endpoints")[0] == 503
        assert own.get("/livez")[0] == own.get("/metrics")[0] == 200
        let_go.set()
        own.stop_loop()
        own.loop.close()
        assert own.get("/admin/v1/endpoints")[0] == 503
    finally:
        let_go.set()
        own.close()


def test_stop_closes_the_port_and_ends_the_thread() -> None:
    own = House()
    own.get("/livez")
    own.close()
    assert not any(thread.name == "admin" and thread is own.admin._thread for thread in threading.enumerate())
    with pytest.raises(OSError):
        socket.create_connection(own.address, timeout=1).close()


def test_stop_right_after_start_ends_too() -> None:
    own = House()
    own.close()
    thread: Any = own.admin._thread
    assert not thread.is_alive()
