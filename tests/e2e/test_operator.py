"""An operator at work on a gateway under load: reloads, a broken file, an endpoint taken out, findings."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.children import MAITRED, MODEL, Engine, Gateway, chat, get, post

CHAT = "/v1/chat/completions"
TOKEN = "a-token-for-the-tests"


def command(gateway: Gateway, *words: str) -> tuple[int, str]:
    """Exit code and output of one of the operator's commands."""
    environ = {**os.environ, "MAITRED_ADMIN_TOKEN": TOKEN}
    done = subprocess.run(
        (*MAITRED, *words, "--admin", f"http://127.0.0.1:{gateway.admin_port}"),
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout


def rows(gateway: Gateway) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads(command(gateway, "endpoints", "--json")[1])}


def serves(gateway: Gateway, name: str) -> bool:
    return name in get(gateway.port, "/v1/models")[2].decode()


def test_no_request_is_lost_while_the_operator_is_at_work(engines: list[Engine], tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    path = tmp_path / "maitred.yaml"
    urls = [engine.url for engine in engines]

    def write(*addresses: str, **more: object) -> None:
        model = {"name": MODEL, "endpoints": list(addresses), **more}
        admin = {"token": {"file": str(tmp_path / "token")}}
        health = {"slow_start": "0s"}
        path.write_text(yaml.safe_dump({"version": 1, "admin": admin, "health": health, "models": [model]}))

    write(*urls)
    with Gateway("serve", "-c", str(path), cwd=tmp_path) as gateway, ThreadPoolExecutor(4) as clients:
        gateway.until(lambda: get(gateway.port, "/readyz")[0] == 200)
        gateway.until(lambda: [row["state"] for row in rows(gateway).values()] == ["ready"] * 2)
        answers = [clients.submit(post, gateway.port, CHAT, chat(tokens=4)) for _ in range(60)]
        for turn in range(4):  # the set shrinks and grows, the limits change
            write(*urls[: 1 + turn % 2], cap=2 + turn, aliases=[f"name-{turn}"])
            gateway.process.send_signal(signal.SIGHUP)
            gateway.until(partial(serves, gateway, f"name-{turn}"))
        assert command(gateway, "endpoints", "drain", engines[0].name)[0] == 0
        assert rows(gateway)[engines[0].name]["held"]
        answers += [clients.submit(post, gateway.port, CHAT, chat(tokens=2)) for _ in range(10)]
        path.write_text("version: 1\nmodels: 7\n")
        code, said = command(gateway, "reload")
        assert code == 1
        assert "maitred.yaml:2" in said
        assert "maitred.yaml:2" in command(gateway, "findings")[1]
        write(*urls)
        assert command(gateway, "reload")[0] == 0
        assert "reload_failed" not in command(gateway, "findings", "--json")[1]
        assert command(gateway, "endpoints", "undrain", engines[0].name)[0] == 0
        gateway.until(lambda: [row["state"] for row in rows(gateway).values()] == ["ready"] * 2)
        assert {answer.result()[0] for answer in answers} == {200}
        assert gateway.metric("reloads_total", result="ok") == 5
        assert gateway.metric("reloads_total", result="failed") == 1
        done = partial(gateway.metric, "requests_total", api="chat", outcome="completed")
        gateway.until(lambda: done() == len(answers))  # it has a token, and so does not wait for the loop


def test_without_a_token_the_port_may_be_read_and_not_written(engines: list[Engine], tmp_path: Path) -> None:
    with Gateway("serve", engines[0].url, cwd=tmp_path) as gateway:
        gateway.until(gateway.ready)
        assert command(gateway, "endpoints")[0] == 0
        code, said = command(gateway, "reload")
        assert code == 1
        assert "admin.token" in said
