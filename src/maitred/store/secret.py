"""A secret that all gateways of a database share: made by the first that asks, and kept."""

from __future__ import annotations

import secrets
from contextlib import suppress

from sqlalchemy import Column, Connection, LargeBinary, String, Table, insert, select, update
from sqlalchemy.exc import IntegrityError

from maitred.store.tables import metadata

SECRET_BYTES = 32
SEALING = "sealing"
PROOF, PROOF_BYTES = "proof", 64 * 1024

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


def prove(connection: Connection) -> None:
    """Write something new, of the size of a turn: of a full disk it shows what no read does."""
    drawn = secrets.token_bytes(PROOF_BYTES)
    if not connection.execute(update(kept).where(kept.c.name == PROOF).values(value=drawn)).rowcount:
        with suppress(IntegrityError), connection.begin_nested():  # another may be quicker
            connection.execute(insert(kept).values(name=PROOF, value=drawn))
