"""What a process of the gateway does before it serves."""

from __future__ import annotations

import logging
import os
import platform
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from maitred.app.run import run
from maitred.config.tree import Config
from maitred.net.seams import Sockets

FILES = resource.RLIMIT_NOFILE


@pytest.fixture
def unlistenable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A start that comes to nothing for want of an address; what it did to the process is undone."""

    async def listen(*_: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(Sockets, "listen", listen)
    root, limit = logging.getLogger(), resource.getrlimit(FILES)
    handlers, level, root.handlers = root.handlers, root.level, []
    yield
    root.handlers = handlers
    root.setLevel(level)
    resource.setrlimit(FILES, limit)


@pytest.mark.usefixtures("unlistenable")
def test_a_host_that_nobody_knows_is_said_in_the_words_of_who_was_asked() -> None:
    assert run(Config(), Config) == (
        "cannot listen at 127.0.0.1:8000: Name or service not known; choose another with --listen"
    )


@pytest.mark.usefixtures("unlistenable")
def test_it_takes_all_the_open_files_that_there_are() -> None:
    _, hard = resource.getrlimit(FILES)
    resource.setrlimit(FILES, (hard // 2, hard))
    run(Config(), Config)
    assert resource.getrlimit(FILES) == (hard, hard)


@pytest.mark.usefixtures("unlistenable")
def test_it_goes_on_where_it_may_not_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    with monkeypatch.context() as patched:
        patched.setattr(resource, "setrlimit", refuse)
        assert "Name or service not known" in (run(Config(), Config) or "")


SERVING = """
import os, signal, sys
from contextlib import asynccontextmanager
from maitred.app.run import run
from maitred.config.auth import Auth, Store
from maitred.config.secret import EnvSecret
from maitred.config.tree import Admin, Config, Listen
from maitred.config.kinds import Address

@asynccontextmanager
async def told(app, base):
    print(app.identities.keys.current, *{"sqlalchemy", *sys.argv[2:]} & sys.modules.keys())
    os.kill(os.getpid(), signal.SIGTERM)
    yield

port = Address("127.0.0.1", 0)
auth = Auth(keys="store", pepper=EnvSecret("PEPPER"))
config = Config(listen=Listen(port), admin=Admin(port), auth=auth, store=Store(f"sqlite:///{sys.argv[1]}"))
print(run(config, lambda: config, told))
"""


def test_who_keeps_keys_in_a_file_pays_for_no_more_than_that(tmp_path: Path) -> None:
    """The rest takes 19 MiB: the ORM, another database, and what brings tables to their version."""
    rest = (
        "sqlalchemy.orm",
        "sqlalchemy.ext.asyncio",
        "sqlalchemy.dialects.postgresql",
        "psycopg",
        "alembic",
    )
    said = [sys.executable, "-c", SERVING, str(tmp_path / "m.db"), *rest]
    environ = os.environ | {"PEPPER": "a-pepper-of-the-tests"}
    for _ in range(2):  # the first makes the tables
        done = subprocess.run(said, capture_output=True, text=True, check=True, env=environ)
    assert done.stdout == "True sqlalchemy\nNone\n"


FAULTS = """
import resource
from maitred.app.run import keep_heap

def bodies():
    return [b"x" * 1_000_000 for _ in range(4)]

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        bodies()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

bodies()
print(faults())
keep_heap()
bodies()
print(faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other libraries have rules of their own")
def test_memory_of_large_bodies_is_not_fetched_anew_for_each() -> None:
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert after * 10 < before
