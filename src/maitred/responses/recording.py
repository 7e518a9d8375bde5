"""What a turn of the background streams: written to the store, for whoever asks for it now or later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from maitred.net.exchange import Flow
from maitred.store.rows import StoreError
from maitred.store.state_rows import EventRow, Lost
from maitred.wire.responses.events import Events

if TYPE_CHECKING:
    from maitred.responses.asked import Asked

GATHER_S = 0.1
"""How long events are gathered, so that a fast stream costs ten writes a second and not a thousand."""


class Recording:
    """An Audience (telling.py). `numbers` counts the events; `stop` ends a turn that nobody wants."""

    __slots__ = (
        "_asked", "_first", "_gathered", "_hurry", "_id", "_numbers", "_stop", "_writing", "_wrong", "said",
        "source",
    )  # fmt: skip

    def __init__(self, asked: Asked, response_id: str, numbers: Events, stop: Callable[[], object]) -> None:
        self.source: Flow | None = None
        self.said = True
        self._asked = asked
        self._id = response_id
        self._numbers = numbers
        self._stop = stop
        self._first = numbers.sequence
        self._gathered: list[bytes] = []
        self._hurry = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None
        self._wrong: StoreError | Lost | None = None

    def begin(self, headers: bytes) -> None:
        """See Audience: nobody reads them."""

    def open(self) -> None:
        """See Audience: the response is in the store already."""

    def say(self, events: bytes) -> None:
        """See Audience."""
        self._gathered.append(events)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())

    def end(self, events: bytes) -> None:
        """See Audience: how it ends is told by what is kept of it."""

    async def close(self) -> None:
        """Wait until all is written. Raises StoreError, Lost."""
        self._hurry.set()
        if self._writing is not None:
            await self._writing
        if self._wrong is not None:
            raise self._wrong

    def drop(self) -> None:
        """Write no more."""
        if self._writing is not None:
            self._writing.cancel()

    async def _write(self) -> None:
        asked, site = self._asked, self._asked.site
        try:
            while self._gathered and self._wrong is None:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._hurry.wait(), GATHER_S)
                chunk = EventRow(self._first, self._numbers.sequence - 1, b"".join(self._gathered))
                self._gathered.clear()
                self._first = chunk.last + 1
                await asked.store.append_events(asked.tenant, self._id, chunk, site.now_ms())
                site.news.tell(self._id)
        except (StoreError, Lost) as wrong:
            self._wrong = wrong
            self._stop()
        self._writing = None
