"""The version of a database's tables: which one it has, and bringing it to this program's.

Alembic is written for programs that wait, so whoever calls this from a loop does so in a thread.
"""

from __future__ import annotations

from pathlib import Path
from threading import Lock

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

MIGRATIONS = Path(__file__).parent / "migrations"
VERSION_TABLE = "maitred_version"
LOCKS = {"postgresql": "SELECT pg_advisory_xact_lock(0x6D616974)", "sqlite": "BEGIN IMMEDIATE"}
"""Taken first, by each kind of database: two that start at once must not both do it."""

_one_at_a_time = Lock()
"""Migrations name their connection by a variable of Alembic's, of which there is one in a process."""


def newest() -> str:
    """The version that this program is written for."""
    head = ScriptDirectory(str(MIGRATIONS)).get_current_head()
    assert head is not None  # noqa: S101 - the migrations are part of this package
    return head


def current(connection: Connection) -> str | None:
    """The version of this database; None for an empty one."""
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    return context.get_current_revision()


def knows(version: str) -> bool:
    """Whether this program has this version's migration; else the database is of a later program."""
    return any(script.revision == version for script in ScriptDirectory(str(MIGRATIONS)).walk_revisions())


def upgrade(connection: Connection) -> None:
    """Bring the database to the newest version, whole or not at all."""
    with _one_at_a_time:
        connection.exec_driver_sql(LOCKS[connection.dialect.name])
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
