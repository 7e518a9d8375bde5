"""What an engine model tells of its cache, gathered for the core as KV events are."""

from __future__ import annotations

from collections.abc import Sequence

from maitred.core.words import KvEvents
from maitred.sim.job import Job


class Heard:
    """A cache's listener. `cached`: what is there, and at how many ranks. `news`: there is something to tell.

    `incarnation`: of the endpoint of which it was told; `told`: something was.

    Several ranks of an engine count as one cache, as in the gateway: what one of them has is there.
    """

    __slots__ = ("_cleared", "_was", "cached", "incarnation", "news", "told")

    def __init__(self) -> None:
        self.incarnation = -1
        self.news = self.told = False
        self.cached: dict[int, int] = {}
        self._was: dict[int, bool] = {}  # whether it was there when this was last told
        self._cleared = False

    def stored(self, keys: Sequence[int], parent: int | None, job: Job) -> None:  # noqa: ARG002
        """See CacheListener."""
        for key in keys:
            ranks = self.cached[key] = self.cached.get(key, 0) + 1
            if ranks == 1:
                self._was.setdefault(key, False)
                self.news = True

    def removed(self, keys: Sequence[int]) -> None:
        """See CacheListener."""
        for key in keys:
            ranks = self.cached.pop(key) - 1
            if ranks:
                self.cached[key] = ranks
            else:
                self._was.setdefault(key, True)
                self.news = True

    def cleared(self) -> None:
        """See CacheListener."""
        self.restarted()
        self.news = True

    def restarted(self) -> None:
        """Another engine begins; nothing is heard of it before it has stored something."""
        self.cached.clear()
        self.tell_all()

    def tell_all(self) -> None:
        """Have everything told anew, once there is anything."""
        self._was = dict.fromkeys(self.cached, False)
        self._cleared, self.news = True, bool(self.cached)

    def take(self, endpoint: str) -> KvEvents:
        """What has changed since this was last asked."""
        was, cached = self._was, self.cached
        stored = tuple([key for key, there in was.items() if not there and key in cached])
        removed = tuple([key for key, there in was.items() if there and key not in cached])
        cleared, self._cleared, self._was, self.news = self._cleared, False, {}, False
        self.told = True
        return KvEvents(endpoint, stored, removed, cleared)
