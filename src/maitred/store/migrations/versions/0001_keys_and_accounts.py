"""Keys and accounts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make both tables."""
    op.create_table(
        "keys",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("digest", sa.LargeBinary(32), nullable=False, unique=True),
        sa.Column("tenant", sa.String(256), nullable=False),
        sa.Column("models", sa.Text, nullable=False),
        sa.Column("bands", sa.Text, nullable=False),
        sa.Column("may_set", sa.Text, nullable=False),
        sa.Column("limits", sa.Text, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("expires_ms", sa.BigInteger),
        sa.Column("revoked_ms", sa.BigInteger),
        sa.Column("note", sa.Text, nullable=False),
    )
    op.create_table(
        "accounts",
        sa.Column("holder", sa.String(512), primary_key=True),
        sa.Column("day", sa.String(10), nullable=False),
        sa.Column("month", sa.String(7), nullable=False),
        sa.Column("day_tokens", sa.BigInteger, nullable=False),
        sa.Column("month_tokens", sa.BigInteger, nullable=False),
        sa.Column("day_money", sa.BigInteger, nullable=False),
        sa.Column("month_money", sa.BigInteger, nullable=False),
    )
