"""The admin port for real: a thread, a socket, and a gateway's loop that answers, is busy or is gone."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from maitred.admin import app as app_module
from maitred.admin import server as server_module
from maitred.admin.server import HEAD_S, TAKE_S, AdminServer
from maitred.config.kinds import Address
from maitred.config.raw import ConfigError
from maitred.config.secret import EnvSecret, FileSecret
from maitred.config.tree import Admin
from maitred.core.events import AtDoor
from maitred.core.outcome import Outcome
from maitred.observe.exposition import CONTENT_TYPE, render
from tests.admin import place
from tests.admin.place import NOW, PATIENCE_S, FakeDesk, House
from tests.observe.events import tell

TOKEN = "0123456789abcdef"
DRAIN = "/admin/v1/endpoints/org/qwen/127.0.0.1:8001/drain"


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    house = House()
    yield house
    house.close()


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A house whose admin port asks for a token."""
    path = tmp_path_factory.mktemp("admin") / "token"
    path.write_text(f"{TOKEN}\n")
    house = House(Admin(token=FileSecret(path), hosts=("gw.example.com",)))
    yield house
    house.close()


def server(settings: Admin, house: House) -> AdminServer:
    return AdminServer(settings, loop=house.loop, desk=FakeDesk(), render=lambda: iter(()), clock=lambda: NOW)


def test_metrics_are_served(house: House) -> None:
    for number in range(50):  # several pieces
        tell(house.metrics, AtDoor(1.0, "r", Outcome.QUEUE_FULL, None, f"m{number}"))
    status, content_type, body = house.call("/metrics")
    assert (status, content_type) == (200, CONTENT_TYPE)
    assert body == b"".join(render(house.metrics))


def test_metrics_wait_until_what_is_over_is_counted_on_the_gateways_own_loop(house: House) -> None:
    counted_in = []

    def count() -> None:
        tell(house.metrics, AtDoor(1.0, "r", Outcome.QUEUE_FULL, None, "just over"))
        counted_in.append(threading.current_thread())

    house.desk.uncounted = count
    assert b'model="just over"' in house.call("/metrics")[2]
    assert counted_in == [house.thread]


@pytest.mark.parametrize("path", ["/admin/v1/endpoints", "/admin/v1/findings"])
def test_what_is_read_is_read_on_the_gateways_own_loop(house: House, path: str) -> None:
    status, content_type, body = house.call(path)
    assert (status, content_type, len(json.loads(body))) == (200, "application/json", 1)
    assert house.desk.asked_in[-1] is house.thread


@pytest.mark.parametrize("path", [DRAIN, "/admin/v1/reload"])
def test_what_is_done_is_done_on_the_gateways_own_loop(locked: House, path: str) -> None:
    assert locked.call(path, "POST", authorization=f"Bearer {TOKEN}")[0] == 200
    assert locked.desk.asked_in[-1] is locked.thread


def test_the_token_is_asked_for(house: House, locked: House) -> None:
    asked = len(locked.desk.asked_in)
    assert house.code(DRAIN, "POST") == (403, "read_only")
    assert locked.code("/admin/v1/endpoints") == (401, "unauthenticated")
    assert locked.code(DRAIN, "POST", authorization="Bearer fedcba9876543210") == (401, "unauthenticated")
    assert locked.call("/metrics")[0] == locked.call("/livez")[0] == 200
    assert len(locked.desk.asked_in) == asked


def test_names_of_the_setting_are_ours(house: House, locked: House) -> None:
    assert locked.call("/livez", host="gw.example.com")[0] == 200
    assert house.code("/livez", host="gw.example.com") == (421, "host")


def test_errors_of_a_reload_come_through(locked: House) -> None:
    locked.desk.config = ConfigError(["maitred.yaml:1 a: wrong"])
    status, _, body = locked.call("/admin/v1/reload", "POST", authorization=f"Bearer {TOKEN}")
    locked.desk.config = []
    assert (status, json.loads(body)["error"]["errors"]) == (400, ["maitred.yaml:1 a: wrong"])


def test_a_name_may_hold_what_a_path_may_not(locked: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locked.desk.listed[0], "name", "größe #1?/h:1")
    path = "/admin/v1/endpoints/gr%C3%B6%C3%9Fe%20%231%3F/h:1/drain"
    assert locked.call(path, "POST", authorization=f"Bearer {TOKEN}")[0] == 200


def test_unknown_paths_are_json(house: House) -> None:
    assert house.code("/nothing") == (404, "not_found")


def test_a_taken_port_is_one_line_that_names_the_setting(house: House) -> None:
    host, port = house.address
    second = server(Admin(Address(host, port)), house)
    with pytest.raises(
        OSError, match=rf"^admin\.listen: {host}:{port} cannot be had: Address already in use"
    ):
        second.start()
    second.stop()


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "gateway.example"])
def test_beyond_loopback_is_not_listened_at_without_a_token(house: House, host: str) -> None:
    with pytest.raises(OSError, match=r"^admin\.listen: .* is open to other machines and admin\.token"):
        server(Admin(Address(host, 0)), house).start()


def test_beyond_loopback_is_listened_at_with_a_token(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    # 0.0.0.0 would be open to others for a moment, so it is only looked at what would be bound.
    bound: list[tuple[str, int]] = []

    def create_server(address: tuple[str, int], **_options: Any) -> socket.socket:
        bound.append(address)
        raise OSError("enough")

    monkeypatch.setattr(socket, "create_server", create_server)
    monkeypatch.setenv("TOKEN", TOKEN)
    with pytest.raises(OSError, match="enough"):
        server(Admin(Address("0.0.0.0", 9000), token=EnvSecret("TOKEN")), house).start()
    assert bound == [("0.0.0.0", 9000)]


def test_a_token_that_cannot_be_had_is_one_line(house: House) -> None:
    with pytest.raises(OSError, match=r"^admin\.token: the file named there: No such file or directory$"):
        server(Admin(token=FileSecret(Path("/none"))), house).start()


def test_a_busy_a_stopped_and_a_closed_gateway_are_told_apart_from_the_port(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(app_module, "ANSWER_S", 0.05)
    (tmp_path / "token").write_text(TOKEN)
    own = House(Admin(token=FileSecret(tmp_path / "token")))
    held, let_go = threading.Event(), threading.Event()
    key = f"Bearer {TOKEN}"

    def hold() -> None:
        held.set()
        let_go.wait(PATIENCE_S)

    try:
        own.loop.call_soon_threadsafe(hold)
        assert held.wait(PATIENCE_S)
        assert own.call("/admin/v1/endpoints", authorization=key)[0] == 503
        assert own.call(DRAIN, "POST", authorization=key)[0] == 503
        assert own.call("/livez")[0] == own.call("/metrics")[0] == 200
        let_go.set()
        own.stop_loop()
        assert not own.desk.listed[0].held  # what was given up is not done later
        own.loop.close()
        assert own.call("/admin/v1/endpoints", authorization=key)[0] == 503
    finally:
        let_go.set()
        own.close()


GET = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n"


def told(connection: socket.socket, until: bytes) -> bytes:
    """What is said up to these bytes; all of it, up to the end, where they never come."""
    heard = b""
    while until not in heard and (piece := connection.recv(65536)):
        heard += piece
    return heard


def ended(connection: socket.socket) -> bool:
    """Whether the other side ends it, within the time that the socket waits."""
    try:
        return told(connection, b"never said") is not None
    except ConnectionResetError:
        return True


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    """A house with three places."""
    monkeypatch.setattr(server_module, "CONNECTIONS_MAX", 3)
    house = House()
    yield house
    house.close()


@pytest.mark.parametrize("said", [b"", b"GET /livez HT", GET, GET + b"x: " + b"y" * 9000])
def test_who_never_sends_a_whole_head_keeps_nobody_out(brief: House, said: bytes) -> None:
    silent = [socket.create_connection(brief.address, timeout=PATIENCE_S) for _ in range(3)]
    try:
        for one in silent:
            one.sendall(said)
        assert brief.call("/livez")[0] == 503
        brief.pass_time(HEAD_S)
        assert all(map(ended, silent))
        assert brief.call("/livez")[0] == 200
    finally:
        for one in silent:
            one.close()


@pytest.mark.parametrize("more", [b"x", b"GET /livez HT"], ids=["of a body", "of the next head"])
def test_nor_does_who_stops_after_an_answer(brief: House, more: bytes) -> None:
    length = b"content-length: 9\r\n" if more == b"x" else b""
    with socket.create_connection(brief.address, timeout=PATIENCE_S) as client:
        client.sendall(GET + length + b"\r\n")
        assert told(client, b"ok\n").startswith(b"HTTP/1.1 200 ")
        client.sendall(more)  # ends uvicorn's own timeout
        assert brief.call("/livez")[0] == 200  # by now it has come
        brief.pass_time(HEAD_S)
        assert ended(client)


def test_nor_does_who_takes_no_answer(brief: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "render", lambda _metrics: (b"x" * 2**20 for _ in range(64)))
    with ExitStack() as stack:
        for _ in range(3):
            client = stack.enter_context(socket.create_connection(brief.address, timeout=PATIENCE_S))
            client.sendall(GET.replace(b"livez", b"metrics") + b"\r\n")
            assert client.recv(1)
        brief.pass_time(HEAD_S)
        assert brief.call("/livez")[0] == 503
        brief.pass_time(TAKE_S)
        until = time.monotonic() + PATIENCE_S
        while (status := brief.call("/livez")[0]) == 503 and time.monotonic() < until:
            pass
        assert status == 200


def test_an_answer_may_take_longer_than_a_request(brief: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def render(_metrics: object) -> Iterator[bytes]:
        for _ in range(5):
            brief.pass_time(HEAD_S / 2)
            yield b"x"

    monkeypatch.setattr(place, "render", render)
    assert brief.call("/metrics")[2] == b"xxxxx"


def test_who_goes_on_is_served_longer_than_one_wait(brief: House) -> None:
    with socket.create_connection(brief.address, timeout=PATIENCE_S) as client:
        for _second in range(2 * int(HEAD_S)):
            client.sendall(GET + b"\r\n")
            assert told(client, b"ok\n").startswith(b"HTTP/1.1 200 ")
            brief.pass_time(1.0)


def test_stop_closes_the_port_and_ends_the_thread() -> None:
    own = House()
    own.call("/livez")
    own.close()
    assert not any(thread.name == "admin" and thread is own.admin._thread for thread in threading.enumerate())
    with pytest.raises(OSError):
        socket.create_connection(own.address, timeout=1).close()


def test_stop_right_after_start_ends_too() -> None:
    own = House()
    own.close()
    thread: Any = own.admin._thread
    assert not thread.is_alive()
