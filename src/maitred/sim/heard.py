"""What an engine model tells of its cache, gathered for the core as KV events are."""

from __future__ import annotations

from collections.abc import Sequence

from maitred.core.words import KvEvents
from maitred.sim.job import Job


class Heard:
    """A cache's listener. `news`: there is something to tell. `incarnation`: of the endpoint it was told to.

    Several ranks of an engine count as one cache, as in the gateway: what one of them has is there.
    """

    __slots__ = ("_cached", "_cleared", "_was", "incarnation", "news")

    def __init__(self) -> None:
        self.incarnation = -1
        self.news = False
        self._cached: dict[int, int] = {}  # how many ranks have it
        self._was: dict[int, bool] = {}  # whether it was there when this was last told
        self._cleared = False

    def stored(self, keys: Sequence[int], parent: int | None, job: Job) -> None:  # noqa: ARG002
        """See CacheListener."""
        for key in keys:
            ranks = self._cached[key] = self._cached.get(key, 0) + 1
            if ranks == 1:
                self._was.setdefault(key, False)
                self.news = True

    def removed(self, keys: Sequence[int]) -> None:
        """See CacheListener."""
        for key in keys:
            ranks = self._cached.pop(key) - 1
            if ranks:
                self._cached[key] = ranks
            else:
                self._was.setdefault(key, True)
                self.news = True

    def cleared(self) -> None:
        """See CacheListener."""
        self.restarted()
        self.news = True

    def restarted(self) -> None:
        """Another engine begins; nothing is heard of it before it has stored something."""
        self._cached.clear()
        self.tell_all()

    def tell_all(self) -> None:
        """Have everything told anew, once there is anything."""
        self._was = dict.fromkeys(self._cached, False)
        self._cleared, self.news = True, bool(self._cached)

    def take(self, endpoint: str) -> KvEvents:
        """What has changed since this was last asked."""
        was, cached = self._was, self._cached
        stored = tuple([key for key, there in was.items() if not there and key in cached])
        removed = tuple([key for key, there in was.items() if there and key not in cached])
        cleared, self._cleared, self._was, self.news = self._cleared, False, {}, False
        return KvEvents(endpoint, stored, removed, cleared)
