"""Whoever reads the log and stops must not stop the gateway."""

from __future__ import annotations

import os
import re
import select
import subprocess
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

from tests.e2e.children import MAITRED, PATIENCE_S, Engine, chat, get, post

CHAT = "/v1/chat/completions"
LINES = 3000
"""More than any pipe holds."""


def data_port(log: int) -> int:
    """Read the log until it tells the port."""
    said = b""
    while not (hit := re.search(rb"serving at http://127\.0\.0\.1:(\d+),", said)):
        assert select.select([log], [], [], PATIENCE_S)[0], said
        said += os.read(log, 4096)
    return int(hit[1])


def leave_lines(port: int, count: int) -> None:
    """Make requests that each leave a line in the access log."""
    with closing(HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)) as connection:
        for _ in range(count):
            connection.request("GET", "/v1/nothing")
            with connection.getresponse() as answer:
                answer.read()


def test_a_log_that_nobody_reads_stops_nothing(engines: list[Engine], tmp_path: Path) -> None:
    reader, writer = os.pipe()
    words = ["serve", engines[0].url, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
    gateway = subprocess.Popen([*MAITRED, *words], cwd=tmp_path, stderr=writer, start_new_session=True)
    try:
        port = data_port(reader)
        leave_lines(port, LINES)
        assert post(port, CHAT, chat())[0] == 200
        engines[0].kill()
        assert post(port, CHAT, chat())[0] in {
            502,
            503,
        }  # and a warning: the engine is gone, as found now or before
        assert get(port, "/livez")[0] == 200
        gateway.terminate()
        assert gateway.wait(PATIENCE_S) == 0
    finally:
        gateway.kill()
        gateway.wait()
        os.close(reader)
        os.close(writer)
