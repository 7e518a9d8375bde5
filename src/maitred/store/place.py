"""Where a database is, what its drivers are told of waiting, and how what goes wrong there is told."""

from __future__ import annotations

from typing import Any, Self

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from maitred.store.rows import StoreError

CONNECT_S = 3
STATEMENT_S = 5
CONNECTIONS = 6
VANISHED = {
    "keepalives_idle": 3,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 9_000,
}
"""A server whose machine is gone says nothing. Else the system would wait for it for a quarter of an hour."""
REASON_CHARS_MAX = 200

DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
"""Schemes that may be written, each with its driver."""
NOT_KEPT = (None, "", ":memory:")
WRONG = (SQLAlchemyError, OSError, StoreError)
"""What a database that cannot be used shows itself by."""


class Place:
    """One database. `full`: what is committed to a file is on the disk.

    `connections` is how many to a PostgreSQL are kept for conversations. `limits` are for the driver; they
    are shorter than what a call may take, so that what is given up there leaves nothing behind.
    """

    def __init__(self, url: URL, connections: int, statement_s: float, *, full: bool) -> None:
        self.url = url.set(drivername=DRIVERS[url.drivername])
        self.connections = connections
        self.full = full
        self.is_file = url.drivername == "sqlite"
        self.limits = _limits(self.is_file, statement_s)

    @classmethod
    def at(cls, url: str, connections: int, statement_s: float | None, *, full: bool) -> Self:
        """The one at `sqlite:///PATH` or `postgresql://…`. Raises StoreError.

        `statement_s` is the most that one statement may take, STATEMENT_S unless given.
        """
        try:
            parsed = make_url(url)
        except (ArgumentError, ValueError):
            parsed = None
        if parsed is None or parsed.drivername not in DRIVERS or parsed.database in NOT_KEPT:
            raise StoreError(
                "it is no URL of a database; write sqlite:///PATH or postgresql://USER:PASSWORD@HOST/NAME"
            )
        return cls(parsed, connections, STATEMENT_S if statement_s is None else statement_s, full=full)

    def __str__(self) -> str:
        """As people are told of it, without the password."""
        if self.is_file:
            return f"sqlite:///{self.url.database}"
        return f"postgresql at {self.url.host or 'a socket'}"

    def wrong(self, error: Exception) -> StoreError:
        """What is said of something that went wrong with it."""
        return error if isinstance(error, StoreError) else StoreError(f"{self}: {self._reason(error)}")

    def _reason(self, error: Exception) -> str:
        """One line of what the driver says; some say the URL, and so the password."""
        said = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
        if self.url.password:
            said = said.replace(self.url.password, "…")
        return said[:REASON_CHARS_MAX] or type(error).__name__


def _limits(is_file: bool, statement_s: float) -> dict[str, Any]:
    if is_file:
        return {"timeout": statement_s}
    return {
        "connect_timeout": CONNECT_S,
        "options": f"-c statement_timeout={statement_s * 1000:.0f}",
        **VANISHED,
    }
