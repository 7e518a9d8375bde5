"""The last decisions that left a receipt, for whoever asks why a request went where it went.

Only requests that were asked about, or drawn as samples, come here. Each is kept as it will be told, as JSON,
so that what all of them take is known and bounded.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta, Raw, Struct

from maitred.core.events import Decided, Hears
from maitred.core.receipt import Receipt

BYTES_MAX = 16 * 1024 * 1024
PAGE_MAX = 200
"""Most decisions told at once."""


class Decision(Struct, frozen=True):
    """One decision as it is told. `ts` is wall time in ms; numbers grow with time."""

    number: int
    ts: int
    id: str
    model: str
    pool: str
    band: str
    receipt: Receipt


class Wanted(Struct, frozen=True, forbid_unknown_fields=True):
    """Which decisions are asked for: "" for any; older than number `before`, at most `limit` of them.

    `model` may be the name the client said, or the model's own.
    """

    id: str = ""
    model: str = ""
    endpoint: str = ""
    before: int | None = None
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX)] = 50


class Page(Struct, frozen=True):
    """Some decisions, the newest first; `before` is where those go on that are older, None at the end."""

    decisions: list[Raw]
    before: int | None


class _Kept(Struct, frozen=True, gc=False):
    number: int
    id: str
    models: tuple[str, str]
    endpoint: str
    told: bytes


class Decisions:
    """Subscriber that keeps the last `keep` of them; `wall` gives seconds since the epoch."""

    def __init__(self, keep: int, wall: Callable[[], float] = time.time) -> None:
        self.hears: Hears = {Decided: self._decided}
        self.keep = keep
        self._wall = wall
        self._kept: deque[_Kept] = deque()
        self._bytes = 0

    def page(self, wanted: Wanted) -> Page:
        """Those that are wanted, the newest first."""
        found: list[Raw] = []
        last = 0
        for each in reversed(self._kept):
            if (
                (wanted.before is not None and each.number >= wanted.before)
                or (wanted.id and each.id != wanted.id)
                or (wanted.model and wanted.model not in each.models)
                or (wanted.endpoint and each.endpoint != wanted.endpoint)
            ):
                continue
            if len(found) == wanted.limit:
                return Page(found, last)
            found.append(Raw(each.told))
            last = each.number
        return Page(found, None)

    def _decided(self, event: Decided) -> None:
        leg, request = event.leg, event.leg.ticket.request
        if leg.receipt is None:
            return
        decision = Decision(
            number=leg.number,
            ts=int(self._wall() * 1000),
            id=request.id,
            model=request.model,
            pool=request.pool,
            band=leg.ticket.band,
            receipt=leg.receipt,
        )
        told = msgspec.json.encode(decision)
        models = (request.model, request.pool)
        self._kept.append(_Kept(leg.number, request.id, models, leg.receipt.endpoint, told))
        self._bytes += len(told)
        while len(self._kept) > self.keep or self._bytes > BYTES_MAX:
            self._bytes -= len(self._kept.popleft().told)
