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

from tests.e2e.children import MODEL, Gateway, chat, children_of, has_content, post, watched

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def demo(no_leftovers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A demonstration whose engines are ready."""
    with Gateway("demo", cwd=tmp_path_factory.mktemp("demo")) as demo:
        demo.expect(r"^Ready: 2 engines")
        yield demo


def test_it_prints_a_command_that_streams_an_answer(demo: Gateway) -> None:
    printed = demo.expect(r"^ +curl .*").group()
    command = shlex.split(printed)
    assert command[0] == "curl"
    assert (shutil.which("curl"), command[1]) == (shutil.which("curl"), f"{demo.url}{CHAT}")
    said = subprocess.run([*command, "-sS"], capture_output=True, text=True, timeout=60, check=True).stdout
    *events, done = [line.removeprefix("data: ") for line in said.splitlines() if line]
    assert done == "[DONE]"
    assert any(map(has_content, events))


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


def test_ctrl_c_ends_it_all(demo: Gateway) -> None:
    pids = children_of(demo.process.pid)
    with watched(pids) as gone:
        demo.signal(signal.SIGINT)
        assert demo.wait() == 0
        assert len(pids) == 2
        assert gone()


def test_it_does_not_leave_engines_behind_when_it_is_killed(no_leftovers: None, tmp_path: Path) -> None:
    with Gateway("demo", "--engines", "1", cwd=tmp_path) as demo:
        demo.expect(r"^Ready: 1 engine")
        pids = children_of(demo.process.pid)
        with watched(pids) as gone:
            demo.signal(signal.SIGKILL)
            assert len(pids) == 1
            assert gone()
