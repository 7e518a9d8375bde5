"""The embedded engine for real: it answers, frees what a client left, and goes when it should."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPResponse
from typing import Any

import pytest

from maitred.engines.dialect import read_models
from maitred.engines.llamacpp import bundled_model
from tests.ports import free_port

SLOTS = 2
CONTEXT = 2048
LONG = 1900
"""Tokens of an answer that takes an engine some 15 seconds."""
PATIENCE_S = 60.0
CHILD = f"""
import sys
from pathlib import Path
from maitred.engines.llamacpp_server import run
run("127.0.0.1", int(sys.argv[1]), Path(sys.argv[2]), "smollm2-135m", {SLOTS}, {CONTEXT}, 1, int(sys.argv[3]))
"""
PARENT = """
import os, subprocess, sys
words = [word.replace("PARENT", str(os.getpid())) for word in sys.argv[1:]]
child = subprocess.Popen(words)
print(child.pid, flush=True)
child.wait()
"""


def command(port: int, parent: object = None) -> list[str]:
    return [sys.executable, "-c", CHILD, str(port), str(bundled_model()), str(parent or os.getpid())]


@contextmanager
def ask(port: int, method: str, path: str, body: object = None) -> Iterator[HTTPResponse]:
    with closing(HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)) as connection:
        origin = {"Origin": "http://page.example"}  # as a browser says it
        connection.request(method, path, body if body is None else json.dumps(body), origin)
        with connection.getresponse() as answer:
            yield answer


def chat(**options: Any) -> dict[str, Any]:
    message = {"role": "user", "content": "Tell me a long story about a ship."}
    return {"model": "smollm2-135m", "messages": [message], "temperature": 0, **options}


STORY = chat(max_tokens=LONG, ignore_eos=True, stream=True)


def status(port: int) -> int:
    try:
        with ask(port, "GET", "/v1/models") as answer:
            return answer.status
    except ConnectionRefusedError:
        return 0


@contextmanager
def engine(port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A child that serves; asked again and again as long as it lives, until its model is loaded."""
    with subprocess.Popen(command(port), stderr=subprocess.PIPE) as child:
        try:
            while status(port) != 200:
                with pytest.raises(subprocess.TimeoutExpired):  # it must not end by itself
                    child.wait(0.02)
            yield child
        finally:
            child.kill()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    port = free_port()
    with engine(port):
        yield port


def busy_slots(port: int) -> int:
    with ask(port, "GET", "/slots") as answer:
        return sum(slot["is_processing"] for slot in json.load(answer))


def predicted(port: int) -> int:
    """Tokens generated since the start."""
    with ask(port, "GET", "/metrics") as answer:
        samples = dict(line.split() for line in answer.read().decode().splitlines() if line[0] != "#")
    return int(samples["llamacpp:tokens_predicted_total"])


def test_it_says_what_it_serves(port: int) -> None:
    with ask(port, "GET", "/v1/models") as answer:
        (card,) = read_models(answer.read())
    assert (card.id, card.engine, card.context_tokens) == ("smollm2-135m", "llamacpp", CONTEXT)


def test_it_answers_and_counts(port: int) -> None:
    before = predicted(port)
    with ask(port, "POST", "/v1/chat/completions", chat(max_tokens=4)) as answer:
        said = json.load(answer)
    assert said["choices"][0]["message"]["content"]
    assert said["usage"]["completion_tokens"] == 4
    assert predicted(port) - before == 4


def test_no_web_page_may_read_its_answers(port: int) -> None:
    with ask(port, "GET", "/v1/models") as answer:
        assert answer.headers["Access-Control-Allow-Origin"] == ""


def test_a_stream_that_is_left_frees_its_slot(port: int) -> None:
    before = predicted(port)
    with ask(port, "POST", "/v1/chat/completions", STORY) as answer:
        assert answer.readline().startswith(b"data: ")
        assert busy_slots(port) == 1
    while busy_slots(port):
        pass
    assert predicted(port) - before < LONG / 2


def test_it_ends_at_once_when_told_to_even_in_the_middle_of_an_answer() -> None:
    port = free_port()
    with engine(port) as child:
        with ask(port, "POST", "/v1/chat/completions", STORY) as answer:
            assert answer.readline().startswith(b"data: ")
            child.send_signal(signal.SIGTERM)
            assert child.wait(10) == 0
        assert child.stderr is not None
        assert child.stderr.read() == b"llama.cpp serves smollm2-135m at http://127.0.0.1:%d\n" % port
    assert status(port) == 0


@pytest.mark.parametrize("serving", [False, True])
def test_it_does_not_outlive_its_parent(serving: bool) -> None:
    """Be it killed at once or later."""
    port = free_port()
    argv = [sys.executable, "-c", PARENT, *command(port, "PARENT")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        gone = os.pidfd_open(pid)
        try:
            while serving and status(port) != 200:
                assert not select.select([gone], [], [], 0.02)[0]
            parent.kill()
            assert select.select([gone], [], [], PATIENCE_S)[0]
        finally:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(gone, signal.SIGKILL)
            os.close(gone)


def test_a_taken_port_is_an_error_that_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        child = subprocess.run(
            command(taken.getsockname()[1]), capture_output=True, timeout=PATIENCE_S, check=False
        )
    assert child.returncode == 1
    assert any(line.startswith(b"llama.cpp could not serve") for line in child.stderr.splitlines())
