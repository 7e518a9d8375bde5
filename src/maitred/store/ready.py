"""Statements that each turn makes: SQLAlchemy writes their text once.

To look at a statement and its values anew each time takes it longer than SQLite takes to do it. The values go
to the driver as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, CursorResult
from sqlalchemy.sql.elements import CompilerElement

Values = dict[str, Any]


class _Text(NamedTuple):
    """What a driver is told; `constants` are values that the statement has by itself."""

    said: str
    constants: Values


class Ready:
    """One, for any database. Its values need no translation, and neither does what it gives.

    A function makes it where each dialect has its own, from the dialect's name.
    """

    __slots__ = ("_statement", "_texts")

    def __init__(self, statement: CompilerElement | Callable[[str], CompilerElement]) -> None:
        self._statement = statement
        self._texts: dict[str, _Text] = {}

    def do(self, connection: Connection, values: Values) -> CursorResult[Any]:
        """Do it once."""
        text = self._text(connection)
        return connection.exec_driver_sql(text.said, text.constants | values)

    def do_each(self, connection: Connection, rows: Sequence[Values]) -> None:
        """Do it with each of these."""
        if rows:
            text = self._text(connection)
            connection.exec_driver_sql(text.said, [text.constants | row for row in rows])

    def _text(self, connection: Connection) -> _Text:
        dialect = connection.dialect
        text = self._texts.get(dialect.name)
        if text is None:
            made = self._statement
            statement = made if isinstance(made, CompilerElement) else made(dialect.name)
            compiled = statement.compile(dialect=dialect)
            text = self._texts[dialect.name] = _Text(str(compiled), compiled.params)
        return text
