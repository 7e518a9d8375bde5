"""Keys, as they are read and written on a connection."""

from __future__ import annotations

from msgspec import json
from sqlalchemy import Connection, RowMapping, func, or_, select, update

from maitred.core.limits import UNLIMITED, Limits
from maitred.store.dialects import insertion
from maitred.store.rows import KeyRow, StoreError
from maitred.store.tables import keys

Mark = tuple[int | None, ...]

_K = keys.c
_MARK = select(
    func.count(), func.count(_K.revoked_ms), func.max(_K.created_ms), func.max(_K.revoked_ms)
).select_from(keys)
_ALL = select(keys).order_by(_K.created_ms, _K.id)


def mark(connection: Connection) -> Mark:
    """Changes whenever a key is added, revoked or deleted; cheap to ask."""
    return tuple(connection.execute(_MARK).one())


def every(connection: Connection) -> list[KeyRow]:
    """All keys, revoked ones included, the oldest first."""
    return [_key(row) for row in connection.execute(_ALL).mappings()]


def add(connection: Connection, key: KeyRow) -> None:
    """Keep a new key, unless it is there by a commit that was not heard of. Raises StoreError for another."""
    values = {
        "id": key.id,
        "digest": key.digest,
        "tenant": key.tenant,
        "models": _json(key.models),
        "bands": _json(key.bands),
        "may_set": _json(key.may_set),
        "limits": _json(key.limits),
        "created_ms": key.created_ms,
        "expires_ms": key.expires_ms,
        "revoked_ms": key.revoked_ms,
        "note": key.note,
    }
    connection.execute(insertion(keys, connection.dialect.name).values(values).on_conflict_do_nothing())
    if connection.scalar(select(_K.id).where(_K.id == key.id, _K.digest == key.digest)) is None:
        raise StoreError("this key is there already")


def revoke(connection: Connection, id_: str, at_ms: int) -> bool:
    """Take a key back; False where none of this id is in force, nor was until this very instant."""
    in_force = or_(_K.revoked_ms.is_(None), _K.revoked_ms == at_ms)
    revoked = update(keys).where(_K.id == id_, in_force).values(revoked_ms=at_ms)
    return bool(connection.execute(revoked).rowcount)


def _json(value: object) -> str:
    return json.encode(value).decode()


def _key(row: RowMapping) -> KeyRow:
    return KeyRow(
        id=row["id"],
        digest=bytes(row["digest"]),
        tenant=row["tenant"],
        created_ms=row["created_ms"],
        models=_names(row["models"]),
        bands=_names(row["bands"]),
        may_set=_names(row["may_set"]),
        limits=limits if (limits := _limits_in(row["limits"])) != UNLIMITED else UNLIMITED,  # one for most
        expires_ms=row["expires_ms"],
        revoked_ms=row["revoked_ms"],
        note=row["note"],
    )


_names = json.Decoder(tuple[str, ...]).decode
_limits_in = json.Decoder(Limits).decode
