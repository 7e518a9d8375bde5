"""The version of a database's tables: which one it has, and bringing it to this program's.

Alembic brings it there. It takes 9 MiB that would stay, and a third of a second, so it is imported only where
there is something to do. Its table of the version and the names of the migrations say whether there is.
"""

from __future__ import annotations

from pathlib import Path
from threading import Lock

from sqlalchemy import Column, Connection, MetaData, String, Table, inspect, select

MIGRATIONS = Path(__file__).parent / "migrations"
VERSIONS = sorted(path.name.partition("_")[0] for path in (MIGRATIONS / "versions").glob("[0-9]*_*.py"))
"""Each migration's file begins with its version."""
VERSION_TABLE = "maitred_version"
VERSION = Table(VERSION_TABLE, MetaData(), Column("version_num", String)).c.version_num
LOCK = "SELECT pg_advisory_xact_lock(0x6D616974)"
"""Taken first: two that start at once must not both do it. Of a file only one transaction writes anyway."""

_one_at_a_time = Lock()
"""Migrations name their connection by a variable of Alembic's, of which there is one in a process."""


def newest() -> str:
    """The version that this program is written for."""
    return VERSIONS[-1]


def current(connection: Connection) -> str | None:
    """The version of this database; None for an empty one."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.scalar(select(VERSION))


def knows(version: str) -> bool:
    """Whether this program has this version's migration; else the database is of a later program."""
    return version in VERSIONS


def upgrade(connection: Connection) -> None:
    """Bring the database to the newest version, whole or not at all. It waits: call it in a thread."""
    from alembic import command  # noqa: PLC0415 - see above
    from alembic.config import Config  # noqa: PLC0415

    with _one_at_a_time:
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(LOCK)
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
