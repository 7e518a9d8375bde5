"""The commands that talk to a running gateway: what they print, and what they say when they cannot."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from maitred.cli.main import main
from maitred.config.load import environment_names
from maitred.config.raw import ConfigError
from maitred.config.secret import FileSecret
from maitred.config.tree import Admin
from maitred.core.words import Endpoint
from tests.admin.place import FakeDesk, House, endpoint

TOKEN = "canary-0123456789"
NAME = "org/qwen/127.0.0.1:8001"


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("MAITRED_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def token_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("desk") / "token"
    path.write_text(f"{TOKEN}\n")
    return path


@pytest.fixture(scope="module")
def houses(token_file: Path) -> Iterator[tuple[House, House]]:
    """One whose admin port everybody may read, and one that asks for a token."""
    both = House(), House(Admin(token=FileSecret(token_file)))
    yield both
    for house in both:
        house.close()


@pytest.fixture
def open_house(houses: tuple[House, House]) -> House:
    return houses[0]


@pytest.fixture
def house(houses: tuple[House, House]) -> Iterator[House]:
    """The one with a token; what a test does to its desk is undone."""
    desk = houses[1].desk
    yield houses[1]
    fresh = FakeDesk()
    desk.listed, desk.found, desk.config = fresh.listed, fresh.found, fresh.config


def say(*words: str, **environ: str) -> Result:
    said = CliRunner().invoke(main, words, env=environ)
    assert said.exception is None or isinstance(said.exception, SystemExit), said.exception
    assert "canary" not in said.output
    return said


def line_of(said: Result) -> str:
    """The one line of a failure."""
    assert (said.exit_code, said.stdout) == (1, "")
    [line] = said.stderr.splitlines()
    return line.removeprefix("Error: ")


def test_endpoints_are_a_table(house: House, token_file: Path) -> None:
    house.desk.listed[0].why = "refused"
    house.desk.listed.append(Endpoint(name="b/h:1", pool="b", url="http://h:1", held=True, why="x\x1b[2Jy"))
    said = say("endpoints", "--admin", house.url, "--token-file", str(token_file))
    assert said.exit_code == 0
    assert said.stdout.splitlines() == [
        "name                     state           running  waiting  engine       model       why",
        "org/qwen/127.0.0.1:8001  ejected         3        2        vllm 0.11.0  Qwen/Qwen3  refused",
        "b/h:1                    probing (held)  0        -        -            -           x?[2Jy",
    ]


def test_no_endpoints_and_no_findings_are_said(house: House) -> None:
    house.desk.listed, house.desk.found = [], []
    environ = {"MAITRED_ADMIN_URL": house.url, "MAITRED_ADMIN_TOKEN": TOKEN}
    assert say("endpoints", **environ).stdout == "There are no endpoints.\n"
    assert say("findings", **environ).stdout == "Nothing is wrong.\n"


def test_findings_say_when_what_and_what_to_do(open_house: House) -> None:
    said = say("findings", "--admin", open_house.url, TZ="UTC").stdout.splitlines()
    assert said[0].endswith("  wrong_model  http://gpu2:8000")
    assert said[0].startswith("2023-11-1")
    assert said[1:] == ["  serves 'b', not 'a'", "  add served_as: b"]


@pytest.mark.parametrize("name", [NAME, "Größe #1?%/h:1"])
def test_an_endpoint_is_taken_out_and_let_in_again(house: House, name: str) -> None:
    house.desk.listed = [endpoint()]
    house.desk.listed[0].name = name
    environ = {"MAITRED_ADMIN_URL": house.url, "MAITRED_ADMIN_TOKEN": TOKEN}
    assert say("endpoints", "drain", name, **environ).stdout == f"{name} gets no more work\n"
    assert house.desk.listed[0].held
    assert say("endpoints", "undrain", name, **environ).stdout == f"{name} is let in again\n"
    assert not house.desk.listed[0].held


def test_a_reload_says_what_waits_for_a_restart(house: House) -> None:
    environ = {"MAITRED_ADMIN_URL": house.url, "MAITRED_ADMIN_TOKEN": TOKEN}
    assert say("reload", **environ).stdout == "The configuration is in force.\n"
    house.desk.config = ["listen.data"]
    assert say("reload", **environ).stdout == "The configuration is in force.\nlisten.data: after a restart\n"


def test_a_reload_that_fails_says_every_error(house: House) -> None:
    house.desk.config = ConfigError(["maitred.yaml:1 a: wrong", "maitred.yaml:2 b: wrong"])
    said = say("reload", "--admin", house.url, MAITRED_ADMIN_TOKEN=TOKEN)
    assert (said.exit_code, said.stdout) == (1, "")
    assert said.stderr.splitlines() == [
        "maitred.yaml:1 a: wrong",
        "maitred.yaml:2 b: wrong",
        f"Error: the configuration cannot be used; the one before stays in force ({house.url})",
    ]


@pytest.mark.parametrize(
    ("words", "path"), [(["endpoints"], "/admin/v1/endpoints"), (["findings"], "/admin/v1/findings")]
)
def test_json_is_what_the_admin_port_says(open_house: House, words: list[str], path: str) -> None:
    said = say(*words, "--json", "--admin", open_house.url)
    assert json.loads(said.stdout) == json.loads(open_house.call(path)[2])


def test_json_of_what_is_done(house: House) -> None:
    environ = {"MAITRED_ADMIN_URL": house.url, "MAITRED_ADMIN_TOKEN": TOKEN}
    said = say("endpoints", "drain", NAME, "--json", **environ)
    assert json.loads(said.stdout) == {"name": NAME, "held": True}
    assert json.loads(say("reload", "--json", **environ).stdout) == {"restart_needed": []}


def test_who_is_not_let_in_is_told_the_setting(house: House, open_house: House) -> None:
    asked = line_of(say("endpoints", "--admin", house.url))
    assert asked == (
        f"{house.url} asks for a token; give that of its admin.token with --token-file or MAITRED_ADMIN_TOKEN"
    )
    other = line_of(say("endpoints", "--admin", house.url, MAITRED_ADMIN_TOKEN="fedcba9876543210"))
    assert other.startswith(f"{house.url} does not take this token; ")
    refused = line_of(say("reload", "--admin", open_house.url))
    assert refused == f"nothing can be changed here until admin.token is set ({open_house.url})"


def test_the_flag_is_stronger_than_the_environment(house: House, token_file: Path) -> None:
    environ = {"MAITRED_ADMIN_URL": "http://127.0.0.1:1", "MAITRED_ADMIN_TOKEN": "fedcba9876543210"}
    said = say("endpoints", "--admin", house.url, "--token-file", str(token_file), **environ)
    assert said.exit_code == 0


def test_an_endpoint_that_is_not_there(house: House) -> None:
    said = say("endpoints", "drain", "a/h:1", "--admin", house.url, MAITRED_ADMIN_TOKEN=TOKEN)
    assert line_of(said) == f"no endpoint is called 'a/h:1' ({house.url})"


@pytest.mark.parametrize("words", [["endpoints"], ["endpoints", "drain", "a"], ["findings"], ["reload"]])
def test_nobody_there_is_one_line_with_the_way_out(words: list[str]) -> None:
    assert line_of(say(*words, "--admin", "http://127.0.0.1:1")) == (
        "no gateway answers at http://127.0.0.1:1: Connection refused; "
        "--admin or MAITRED_ADMIN_URL says where its admin port is"
    )


@pytest.mark.parametrize(
    ("words", "environ", "error"),
    [
        (
            ["--admin", "127.0.0.1:9000"],
            {},
            "scheme must be http or https; write such as http://127.0.0.1:9000",
        ),
        (["--token-file", "/none"], {}, "--token-file: the file named there: No such file or directory"),
        (
            [],
            {"MAITRED_ADMIN_TOKEN": "short"},
            "MAITRED_ADMIN_TOKEN: the environment variable named there must hold 16",
        ),
    ],
)
def test_what_is_wrong_here_is_one_line(words: list[str], environ: dict[str, str], error: str) -> None:
    assert error in line_of(say("findings", *words, **environ))


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-x\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n[]",
        b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 2\r\n\r\n[]",
        b'HTTP/1.1 500 x\r\ncontent-length: 11\r\n\r\n{"error":1}',
    ],
)
def test_something_else_that_answers_is_told_apart(answer: bytes) -> None:
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                heard.append(connection.recv(65536))
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        said = say("findings", "--admin", url)
        thread.join(60)
    assert line_of(said) == f"what answers at {url} is no admin port of maitred"
    assert b"authorization" not in heard[0].lower()


def test_a_proxy_never_sees_the_token(house: House) -> None:
    environ = {"http_proxy": "http://127.0.0.1:1", "MAITRED_ADMIN_TOKEN": TOKEN}
    assert say("endpoints", "--admin", house.url, **environ).exit_code == 0


@pytest.mark.parametrize("words", [["drain"], ["paint", "a"], ["drain", "a", "b"]])
def test_wrong_usage_is_2(words: list[str]) -> None:
    said = say("endpoints", *words)
    assert said.exit_code == 2
    assert "--help" in said.stderr


def test_the_commands_share_only_the_token_with_the_settings() -> None:
    assert environment_names()["MAITRED_ADMIN_TOKEN"] == "admin.token"
    assert "MAITRED_ADMIN_URL" not in environment_names()
