"""What the store keeps, as values: free of any database, so that whoever only reads them loads none."""

from __future__ import annotations

from msgspec import Struct

from maitred.core.limits import UNLIMITED, Limits


class KeyRow(Struct, frozen=True):
    """One key. `digest` is all that is kept of the key itself. Times are UTC in ms since 1970.

    `models`, `bands`, `may_set` and `limits` are as in `core.words.Identity`; `expires_ms` and `revoked_ms`
    are None where it never was or will be.
    """

    id: str
    digest: bytes
    tenant: str
    created_ms: int
    models: tuple[str, ...] = ()
    bands: tuple[str, ...] = ()
    may_set: tuple[str, ...] = ()
    limits: Limits = UNLIMITED
    expires_ms: int | None = None
    revoked_ms: int | None = None
    note: str = ""

    def __repr__(self) -> str:
        """Without the digest, by which the key could be looked for."""
        return f"KeyRow({self.id!r}, tenant={self.tenant!r})"


class Account(Struct, frozen=True):
    """What one holder ("tenant support", "key 0a1b") has spent, tokens and micro-units of money.

    `day` ("2026-11-30") and `month` ("2026-11") are those that the figures are of, in UTC.
    """

    holder: str
    day: str
    month: str
    day_tokens: int = 0
    month_tokens: int = 0
    day_money: int = 0
    month_money: int = 0


class StoreError(Exception):
    """The store cannot be used. Its text says why and what to do, and holds no secret."""


class SchemaError(StoreError):
    """The database is not of this program's version; waiting does not help."""
