"""What a statement of one database has and that of another has not. Only the one in use is loaded."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from sqlalchemy import Table

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite

    Insertion = sqlite.Insert | postgresql.Insert


def insertion(table: Table, dialect: str) -> Insertion:
    """An insertion that can be told what to do where the row is there already.

    SQLAlchemy has one for each dialect, alike in all that is used here; PostgreSQL's takes two MiB along.
    """
    insert: Insertion = import_module(f"sqlalchemy.dialects.{dialect}").insert(table)
    return insert
