"""The keys: how one is made and known again, and the table of them that is read anew beside the requests.

No request waits for the database. What was read last counts: a known key works while the database is away,
and what cannot be known without it is answered as just that, never as a wrong key.
"""

from __future__ import annotations

import asyncio
import hmac
import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from maitred.config.prices import bounds_money
from maitred.control.known import ALWAYS, Known
from maitred.core.words import Identity
from maitred.observe.findings import Findings
from maitred.store.rows import KeyRow, StoreError

PREFIX = "mk_"
STORE = "store"
"""The place that the finding of an unreachable store names."""
ROWS_AT_ONCE = 1000
REFRESH_S = 5.0
WHOLE_S = 300.0
"""How often all keys are read, whatever the store's mark says: somebody may have changed one by hand."""
READING_S = 5.0
"""What one reading may take before the table counts as old."""


class KeySource(Protocol):
    """Where keys come from; raises StoreError when they do not."""

    async def prepare(self) -> None:
        """See that it can be used."""

    async def mark(self) -> tuple[int | None, ...]:
        """Another one when a key was added, revoked or deleted."""

    async def keys(self) -> Sequence[KeyRow]:
        """All of them."""


def mint() -> tuple[str, str]:
    """A new key's id, and the key: `mk_<id>_<random>`."""
    id_ = secrets.token_hex(6)
    return id_, f"{PREFIX}{id_}_{secrets.token_hex(24)}"


def digest(pepper: bytes, token: bytes) -> bytes:
    """What a key is known by. It cannot be told without the pepper, so a dict may look for it."""
    return hmac.digest(pepper, token, "sha256")


class KeyTable:
    """The keys as they were last read. `refresh_s` is how often they are, and may be changed at any time.

    `run` reads until cancelled; `source` may be set later, and until then nothing is known. `changed` is
    called when the keys are other ones. `clock` is the monotonic one, in seconds. `budgeted`: one in force
    has a budget in money.
    """

    def __init__(
        self,
        findings: Findings,
        clock: Callable[[], float],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.refresh_s = REFRESH_S
        self.source: KeySource | None = None
        self.budgeted = False
        self._by_digest: Mapping[bytes, Known] | None = None
        self._mark: tuple[int | None, ...] | None = None
        self._read_at = clock()
        self._whole_at = -math.inf
        self._prepared = self._failed = False
        self._findings = findings
        self._clock = clock
        self._changed = changed
        self._wanted = asyncio.Event()

    @property
    def current(self) -> bool:
        """Whether a key that is not in the table is no key: it was read, and lately."""
        if self._by_digest is None or self._failed:
            return False
        return self._clock() - self._read_at <= self.refresh_s + READING_S

    @property
    def age_s(self) -> float:
        """How long ago the keys were read; since the start, while they never were. 0 where none are kept."""
        return self._clock() - self._read_at if self.source is not None else 0.0

    def find(self, digest_: bytes) -> Known | None:
        """Whose key has this digest."""
        return None if self._by_digest is None else self._by_digest.get(digest_)

    async def run(self) -> None:
        """Read the keys again and again, until cancelled."""
        while True:
            self._wanted.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self.refresh_s):
                    await self._wanted.wait()
            await self.refresh()

    def hurry(self) -> None:
        """Read them now, whenever it would be time."""
        self._wanted.set()

    async def refresh(self) -> StoreError | None:
        """Read the keys once, if there is where to; what went wrong with it."""
        if self.source is None:
            return None
        try:
            await self._read(self.source)
        except StoreError as error:
            self._failed = True
            what = "known keys go on working, unknown ones are answered with 503"
            self._findings.tell("store_unreachable", STORE, f"{error}; {what}", "see to the database")
            return error
        self._failed = False
        self._findings.settle("store_unreachable", STORE)
        return None

    async def _read(self, source: KeySource) -> None:
        began = self._clock()
        if not self._prepared:
            await source.prepare()
            self._prepared = True
        mark = await source.mark()
        if mark != self._mark or began - self._whole_at >= WHOLE_S:
            before = self._by_digest
            self._by_digest, self.budgeted = await _table(await source.keys())
            self._mark, self._whole_at = mark, began  # of before: what came meanwhile is read the next time
            if self._by_digest != before:
                self._changed()
        self._read_at = began


async def _table(rows: Sequence[KeyRow]) -> tuple[dict[bytes, Known], bool]:
    """The keys in force by their digests, and whether one of them has a budget in money."""
    found: dict[bytes, Known] = {}
    budgeted = False
    for number, row in enumerate(rows):
        if number % ROWS_AT_ONCE == 0:
            await asyncio.sleep(0)
        if row.revoked_ms is None:
            identity = Identity(row.tenant, row.id, row.models, row.bands, row.may_set, row.limits)
            until = ALWAYS if row.expires_ms is None else row.expires_ms / 1000
            found[row.digest] = Known(identity, until)
            budgeted = budgeted or bounds_money(row.limits)
    return found, budgeted
