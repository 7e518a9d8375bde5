"""The application's log in both styles, and the moves of endpoints in it."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from maitred.core.events import AtDoor, EndpointMoved
from maitred.core.outcome import Outcome
from maitred.core.words import EndpointState
from maitred.observe.logs import MoveLog, setup
from maitred.observe.sink import Sink
from tests.observe.events import endpoint


@pytest.fixture
def own_root() -> Iterator[None]:
    """The root logger without pytest's handlers, which `setup` would close."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    root.handlers = []
    yield
    root.handlers = handlers
    root.setLevel(level)


@pytest.fixture
def log(own_root: None, tmp_path: Path) -> Iterator[tuple[Path, Sink]]:
    """A file, and the sink that ends in it."""
    path = tmp_path / "log"
    with path.open("wb") as file:
        yield path, Sink(file.fileno())


def test_a_record_for_people_is_one_line(log: tuple[Path, Sink]) -> None:
    path, sink = log
    setup("human", "info", sink)
    logging.getLogger("maitred.app").info("listening at %s\nFAKE\x1b[2J", "127.0.0.1:8000")
    logging.getLogger("maitred.app").debug("unseen")
    expected = (
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO    maitred\.app: "
        r"listening at 127\.0\.0\.1:8000\\nFAKE\\x1b\[2J\n"
    )
    assert re.fullmatch(expected, path.read_text())


def test_a_record_as_json_is_one_line_with_its_traceback(log: tuple[Path, Sink]) -> None:
    path, sink = log
    setup("json", "warning", sink)
    try:
        raise ValueError("odd")
    except ValueError:
        logging.getLogger("maitred.app").exception("a bug in %s", "journey")
    logging.getLogger("maitred.app").info("unseen")
    [text] = path.read_text().splitlines()
    line = msgspec.json.decode(text)
    assert (line["level"], line["logger"], line["message"]) == ("error", "maitred.app", "a bug in journey")
    assert line["exception"].endswith("ValueError: odd")
    assert line["ts"] > 1_700_000_000_000


def test_libraries_tell_of_what_is_wrong_only(log: tuple[Path, Sink]) -> None:
    path, sink = log
    setup("human", "debug", sink)
    for name in ("alembic.runtime.migration", "psycopg.pool", "sqlalchemy.engine"):
        logging.getLogger(name).info("INSERT INTO keys")
        logging.getLogger(name).warning("odd")
    assert [line.split(" ", 2)[2] for line in path.read_text().splitlines()] == [
        "WARNING alembic.runtime.migration: odd",
        "WARNING psycopg.pool: odd",
        "WARNING sqlalchemy.engine: odd",
    ]


def test_moves_are_logged_and_being_ejected_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    probing, ready, ejected = EndpointState.PROBING, EndpointState.READY, EndpointState.EJECTED
    log, one = MoveLog(), endpoint()
    log(EndpointMoved(1.0, one, probing, ready, ""))
    log(EndpointMoved(2.0, one, ready, ejected, "connection refused"))
    log(AtDoor(3.0, "r", Outcome.BAD_REQUEST))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "endpoint qwen/127.0.0.1:8001 ready"),
        ("WARNING", "endpoint qwen/127.0.0.1:8001 ejected: connection refused"),
    ]
