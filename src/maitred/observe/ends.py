"""What is over, told in batches: a request that is counted and logged among others costs half as much.

Nobody needs a request's numbers or its line at the moment it ends, so its end is only noted then. It is told
when there are many, ten times a second, before an endpoint moves (its numbers go with it), and whenever
somebody is about to look.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from maitred.core.events import AtDoor, Ended, EndpointMoved, Hears

BATCH = 128
"""So many are told at once: few enough not to be felt by a stream."""

Over: TypeAlias = AtDoor | Ended


class Ends:
    """Subscriber that notes what is over and tells all of it to each of `listeners`, in order and once."""

    def __init__(self, *listeners: Callable[[Sequence[Over]], None]) -> None:
        self.hears: Hears = {AtDoor: self._note, Ended: self._note, EndpointMoved: self._moved}
        self._listeners = listeners
        self._noted: list[Over] = []

    def tell(self) -> None:
        """Tell what was noted and is not yet told; on the thread that notes."""
        noted = self._noted
        if noted:
            self._noted = []
            for listen in self._listeners:
                listen(noted)

    def _note(self, event: Over) -> None:
        noted = self._noted
        noted.append(event)
        if len(noted) >= BATCH:
            self.tell()

    def _moved(self, _event: EndpointMoved) -> None:
        self.tell()
