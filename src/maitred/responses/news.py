"""Who waits for what becomes of a response is woken where it is made here; else he has to look again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class News:
    """By response: those who wait for something to have changed in the store."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}

    def tell(self, response_id: str) -> None:
        """Something has."""
        for event in self._waiting.get(response_id, ()):
            event.set()

    @contextmanager
    def of(self, response_id: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever something has."""
        event = asyncio.Event()
        self._waiting.setdefault(response_id, set()).add(event)
        try:
            yield event
        finally:
            waiting = self._waiting[response_id]
            waiting.discard(event)
            if not waiting:
                del self._waiting[response_id]
