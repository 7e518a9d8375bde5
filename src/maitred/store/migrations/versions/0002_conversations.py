"""Conversations, their items, responses, the jobs and streams of the background, and what seals texts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the six tables."""
    _conversations()
    _responses()
    _items()
    _background()
    op.create_table(
        "secrets",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("value", sa.LargeBinary(32), nullable=False),
    )


def _conversations() -> None:
    op.create_table(
        "conversations",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("tenant", sa.String(256), nullable=False),
        sa.Column("turn", sa.String(64)),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("expires_ms", sa.BigInteger, nullable=False, index=True),
        sa.Column("metadata", sa.Text, nullable=False),
    )


def _responses() -> None:
    op.create_table(
        "responses",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("tenant", sa.String(256), nullable=False),
        sa.Column("model", sa.String(256), nullable=False),
        sa.Column("root_id", sa.String(64), nullable=False),
        sa.Column("previous_id", sa.String(64)),
        sa.Column("conversation_id", sa.String(64)),
        sa.Column("conversation_seq", sa.BigInteger),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("reason", sa.String(16)),
        sa.Column("background", sa.Boolean, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("expires_ms", sa.BigInteger, nullable=False, index=True),
        sa.Column("maker", sa.String(32)),
        sa.Column("lease_ms", sa.BigInteger),
        sa.Column("idempotency_key", sa.String(256)),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("item_count", sa.Integer, nullable=False),
        sa.Column("item_bytes", sa.BigInteger, nullable=False),
        sa.Column("snapshot", sa.Text, nullable=False),
    )
    op.create_index("ix_responses_root", "responses", ["root_id", "expires_ms"])
    _known_index("ix_responses_lease", "responses", ["lease_ms"])
    _known_index("ix_responses_key", "responses", ["tenant", "idempotency_key"], unique=True)


def _items() -> None:
    op.create_table(
        "items",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("tenant", sa.String(256), nullable=False),
        sa.Column("response_id", sa.String(64)),
        sa.Column("conversation_id", sa.String(64)),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("output", sa.Boolean, nullable=False),
        sa.Column("bytes", sa.Integer, nullable=False),
        sa.Column("data", sa.Text, nullable=False),
    )
    _known_index("ix_items_response", "items", ["response_id", "seq"])
    _known_index("ix_items_conversation", "items", ["conversation_id", "seq"], unique=True)


def _background() -> None:
    op.create_table(
        "jobs",
        sa.Column("response_id", sa.String(64), primary_key=True),
        sa.Column("tenant", sa.String(256), nullable=False),
        sa.Column("band", sa.String(256), nullable=False),
        sa.Column("waiting", sa.Boolean, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("expires_ms", sa.BigInteger, nullable=False),
        sa.Column("request", sa.Text, nullable=False),
    )
    found_by = ["band", "tenant", "created_ms", "response_id", "waiting", "expires_ms"]
    op.create_index("ix_jobs_next", "jobs", found_by)
    op.create_index("ix_jobs_expires", "jobs", ["expires_ms"])
    op.create_table(
        "events",
        sa.Column("response_id", sa.String(64), primary_key=True),
        sa.Column("last", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("first", sa.BigInteger, nullable=False),
        sa.Column("tenant", sa.String(256), nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False, index=True),
        sa.Column("data", sa.Text, nullable=False),
    )


def _known_index(name: str, table: str, columns: list[str], *, unique: bool = False) -> None:
    """An index of the rows that have something in the column that it is for."""
    sought = columns[-1] if unique and table == "responses" else columns[0]
    known = sa.text(f"{sought} IS NOT NULL")
    op.create_index(name, table, columns, unique=unique, sqlite_where=known, postgresql_where=known)
