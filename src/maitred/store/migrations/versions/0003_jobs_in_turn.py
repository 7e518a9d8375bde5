"""The index by which jobs are taken: those that wait and those that run apart, and each tenant's in a row."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Put it in the place of one that had to be read whole."""
    op.drop_index("ix_jobs_next", "jobs")
    op.create_index("ix_jobs_next", "jobs", ["band", "waiting", "tenant", "expires_ms", "response_id"])
