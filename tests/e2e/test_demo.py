"""`maitred demo` as somebody meets it who has just installed it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.children import MODEL, Gateway, chat, children_of, has_content, post, stream, watched

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def demo(no_leftovers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A demonstration whose engines are ready."""
    with Gateway("demo", cwd=tmp_path_factory.mktemp("demo")) as demo:
        demo.expect(r"^Ready: 2 engines")
        yield demo


def test_it_prints_a_command_that_streams_an_answer(demo: Gateway) -> None:
    command = shlex.split(demo.expect(r"^ +curl .*").group())
    assert command[:2] == ["curl", f"{demo.url}{CHAT}"]
    if shutil.which("curl") is None:
        with stream(demo.port, json.loads(command[command.index("-d") + 1])) as events:
            assert any(map(has_content, events))
        return
    with subprocess.Popen([*command, "-sSN"], stdout=subprocess.PIPE, text=True) as curl:
        assert curl.stdout is not None
        events = (line[6:].rstrip("\n") for line in curl.stdout if line.startswith("data: "))
        assert any(map(has_content, events))
        curl.terminate()  # how much more so small a model has to say is chance


def test_it_says_where_any_client_finds_it(demo: Gateway) -> None:
    base = demo.expect(r"base_url (\S+) ")[1]
    assert base == f"{demo.url}/v1"


def test_a_killed_engine_is_started_again_and_nobody_notices(demo: Gateway) -> None:
    before = children_of(demo.process.pid)
    assert len(before) == 2
    since = len(demo.lines)
    os.kill(before[0], signal.SIGKILL)
    demo.expect(r"maitred\.engine\.\d: the process ended with -9; it starts again in 0\.5 s", since)

    def served_by_both() -> bool:
        """Requests go on, and after a while both engines get them again."""
        rows = demo.endpoints()
        for _ in rows:
            assert post(demo.port, CHAT, chat(tokens=1))[0] == 200
        after = demo.endpoints()
        return all(after[n]["state"] == "ready" and after[n]["seated"] > rows[n]["seated"] for n in rows)

    demo.expect(rf"llama\.cpp serves {MODEL} at", since)
    demo.until(served_by_both)
    after = children_of(demo.process.pid)
    assert len(after) == 2
    assert len(set(after) - set(before)) == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGKILL, -signal.SIGKILL)])
def test_however_it_ends_no_engine_is_left(
    no_leftovers: None, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with Gateway("demo", cwd=tmp_path) as demo:
        demo.expect(r"^Ready: 2 engines")
        engines = children_of(demo.process.pid)
        assert len(engines) == 2, demo.output
        with watched(engines) as gone:
            demo.signal(number)
            assert demo.wait() == code
            assert gone() == 2
