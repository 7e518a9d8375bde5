"""A secret that all gateways of a database share: made by the first that asks, and kept."""

from __future__ import annotations

import secrets

from sqlalchemy import Column, Connection, LargeBinary, String, Table, insert, select
from sqlalchemy.exc import IntegrityError

from maitred.store.tables import metadata

SECRET_BYTES = 32
SEALING = "sealing"

kept = Table(
    "secrets",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", LargeBinary(SECRET_BYTES), nullable=False),
)


def secret(connection: Connection) -> bytes:
    """The secret by which texts are sealed that clients keep."""
    asked = select(kept.c.value).where(kept.c.name == SEALING)
    if (known := connection.scalar(asked)) is not None:
        return bytes(known)
    drawn = secrets.token_bytes(SECRET_BYTES)
    try:
        with connection.begin_nested():
            connection.execute(insert(kept).values(name=SEALING, value=drawn))
    except IntegrityError:  # another gateway was quicker
        return bytes(connection.scalar(asked) or b"")
    return drawn
