"""The tables as this version of the program knows them. Whoever changes one writes a migration beside it."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, LargeBinary, MetaData, String, Table, Text

metadata = MetaData()

keys = Table(
    "keys",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("digest", LargeBinary(32), nullable=False, unique=True),
    Column("tenant", String(256), nullable=False),
    Column("models", Text, nullable=False),  # lists and limits are JSON: nobody looks for what is in them
    Column("bands", Text, nullable=False),
    Column("may_set", Text, nullable=False),
    Column("limits", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger),
    Column("revoked_ms", BigInteger),
    Column("note", Text, nullable=False),
)

accounts = Table(
    "accounts",
    metadata,
    Column("holder", String(512), primary_key=True),
    Column("day", String(10), nullable=False),
    Column("month", String(7), nullable=False),
    Column("day_tokens", BigInteger, nullable=False),
    Column("month_tokens", BigInteger, nullable=False),
    Column("day_money", BigInteger, nullable=False),
    Column("month_money", BigInteger, nullable=False),
)
