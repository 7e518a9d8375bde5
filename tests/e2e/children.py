"""Real processes for the tests: started, listened to, asked over their ports, and never left behind."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from threading import Condition, Thread
from typing import Any, Self, TypeVar

from prometheus_client.parser import text_string_to_metric_families

from maitred.engines import llamacpp

MODEL = llamacpp.MODEL_ALIAS
SLOTS = 4
MAITRED = (sys.executable, "-m", "maitred")
PATIENCE_S = 60.0
"""How long to wait for what must come; only a failing test ever waits this long."""
PACE_S = 0.02

T = TypeVar("T")


class Child:
    """A process started at once, with all its output in `lines`. Leaving the context ends it."""

    def __init__(self, *argv: str, cwd: Path | None = None) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("MAITRED_")}
        self.lines: list[str] = []
        self._news = Condition()
        self._silent = False
        self.process = subprocess.Popen(
            argv,
            cwd=cwd,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # a Ctrl-C for the tests is none for the child
        )
        self._reader = Thread(target=self._read, name=f"output of {self.process.pid}")
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.wait()

    @property
    def output(self) -> str:
        """All it said so far."""
        return "\n".join(self.lines)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def wait(self, within_s: float = PATIENCE_S) -> int:
        """Wait for its end; the exit code. Then `lines` is complete."""
        code = self.process.wait(within_s)
        self._reader.join(within_s)
        assert not self._reader.is_alive(), "somebody still holds the output open"
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def expect(self, pattern: str, since: int = 0) -> re.Match[str]:
        """Wait for a line, from line `since` on, in which the pattern is found."""

        def found() -> re.Match[str] | None:
            return next((hit for line in self.lines[since:] if (hit := re.search(pattern, line))), None)

        with self._news:
            self._news.wait_for(lambda: self._silent or found(), PATIENCE_S)
            hit = found()
        assert hit is not None, f"no {pattern!r} in:\n{self.output}"
        return hit

    def until(self, question: Callable[[], T], within_s: float = PATIENCE_S, pace_s: float = PACE_S) -> T:
        """Ask, as long as the child lives, until the answer is true; that answer."""
        deadline = time.monotonic() + within_s
        while not (answer := question()):
            assert time.monotonic() < deadline, f"not within {within_s} s; the child said:\n{self.output}"
            try:
                code = self.process.wait(pace_s)
            except subprocess.TimeoutExpired:
                continue
            raise AssertionError(f"the child ended with {code}:\n{self.output}")
        return answer

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._silent = True
            self._news.notify_all()


class Engine:
    """A real embedded engine at one address, which can be killed and started again.

    `name` is what gateways call it that serve its model under the model's own name.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.name = f"{MODEL}/127.0.0.1:{port}"
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.child.__exit__()

    def start(self) -> None:
        """Start it; it loads its model for a moment before it serves."""
        self.child = Child(*llamacpp.argv(self.port, llamacpp.bundled_model(), MODEL, SLOTS))

    def kill(self) -> None:
        """End it the hard way."""
        self.child.signal(signal.SIGKILL)
        self.child.wait()

    def serves(self) -> bool:
        """Whether its model is loaded."""
        try:
            return get(self.port, "/v1/models")[0] == 200
        except OSError:
            return False

    def busy(self) -> int:
        """Slots at work. The question itself wakes the engine: see `test_leaving`."""
        return sum(slot["is_processing"] for slot in json.loads(get(self.port, "/slots")[2]))


@contextmanager
def stopped(engines: Iterable[Engine]) -> Iterator[None]:
    """Within the context they do nothing at all, and who asks them waits; whoever was not killed goes on."""
    for engine in engines:
        engine.child.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for engine in engines:
            engine.child.signal(signal.SIGCONT)


class Gateway(Child):
    """`maitred serve`, or another serving command, on ports that it chose itself."""

    def __init__(self, *words: str, cwd: Path) -> None:
        ports = ("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
        super().__init__(*MAITRED, *words, *ports, cwd=cwd)
        try:
            listening = self.expect(r"serving at http://127\.0\.0\.1:(\d+), .* http://127\.0\.0\.1:(\d+)")
        except AssertionError:
            self.__exit__()
            raise
        self.port, self.admin_port = map(int, listening.groups())
        self.url = f"http://127.0.0.1:{self.port}"

    def ready(self) -> bool:
        """What a load balancer is told."""
        return get(self.port, "/readyz")[0] == 200

    def endpoints(self) -> dict[str, dict[str, Any]]:
        """The rows of /admin/v1/endpoints by name."""
        return {row["name"]: row for row in json.loads(get(self.admin_port, "/admin/v1/endpoints")[2])}

    def all_ready(self, count: int = 2) -> bool:
        """Whether it knows at least so many endpoints and all are ready."""
        states = [row["state"] for row in self.endpoints().values()]
        return len(states) >= count and set(states) == {"ready"}

    def metric(self, name: str, **labels: str) -> float:
        """Sum of the samples of this name (without `maitred_`) with at least these labels."""
        # Metrics are read beside the gateway's loop. An answer may be here before its request is counted,
        # but not before the loop has answered this.
        get(self.admin_port, "/admin/v1/endpoints")
        text = get(self.admin_port, "/metrics")[2].decode()
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == f"maitred_{name}" and labels.items() <= sample.labels.items()
        )


@contextmanager
def ask(
    port: int, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
) -> Iterator[HTTPResponse]:
    """One request on a connection of its own, which ends with the context; `body` is bytes or for JSON."""
    sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request(method, path, sent, {"content-type": "application/json", **(headers or {})})
        with connection.getresponse() as answer:
            yield answer


def get(port: int, path: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of a read. Raises OSError when there is no whole answer."""
    try:
        with ask(port, "GET", path) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except HTTPException as broken:
        raise OSError("no whole answer") from broken


def post(port: int, path: str, body: object) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of a request."""
    with ask(port, "POST", path, body) as answer:
        return answer.status, dict(answer.headers), answer.read()


def chat(content: str = "Tell me a story of a ship.", *, tokens: int = 4, **more: Any) -> dict[str, Any]:
    """The body of a chat request whose answer has exactly this many tokens."""
    messages = [{"role": "user", "content": content}]
    return {"model": MODEL, "messages": messages, "max_tokens": tokens, "ignore_eos": True, **more}


def request_bytes(body: dict[str, Any]) -> bytes:
    """A whole chat request as it goes over the wire."""
    sent = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: tests\r\ncontent-length: {len(sent)}\r\n\r\n"
    return head.encode() + sent


@contextmanager
def stream(port: int, body: dict[str, Any]) -> Iterator[Iterator[str]]:
    """The data of each event of a chat stream, as it comes; leaving the context leaves the stream."""
    with ask(port, "POST", "/v1/chat/completions", {**body, "stream": True}) as answer:
        assert answer.status == 200, answer.read()
        yield (line[6:].decode().rstrip("\n") for line in answer if line.startswith(b"data: "))


def has_content(event: str) -> bool:
    """Whether the data of a chat stream's event carries text."""
    if event == "[DONE]":
        return False
    return any(choice["delta"].get("content") for choice in json.loads(event).get("choices", ()))


def children_of(pid: int) -> list[int]:
    """Process ids of the maitred processes that this one started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status, command = (folder / "status").read_text(), (folder / "cmdline").read_bytes()
        except OSError:  # it ended meanwhile
            continue
        if f"\nPPid:\t{pid}\n" in status and b"\0maitred\0" in command:
            found.append(int(folder.name))
    return sorted(found)


@contextmanager
def watched(pids: list[int]) -> Iterator[Callable[[], int]]:
    """Within the context: wait for these processes to end; how many did. Whoever did not is then killed."""
    handles = [os.pidfd_open(pid) for pid in pids]
    try:
        yield lambda: sum(bool(select.select([handle], [], [], PATIENCE_S)[0]) for handle in handles)
    finally:
        for handle in handles:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            os.close(handle)
