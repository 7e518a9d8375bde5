"""What Alembic runs for each upgrade; `schema.py` hands it an open connection and nothing else."""

from __future__ import annotations

from alembic import context

from maitred.store.schema import VERSION_TABLE
from maitred.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
)
with context.begin_transaction():
    context.run_migrations()
