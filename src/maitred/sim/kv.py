"""The KV cache of one rank: blocks that sequences hold, share and leave behind for those who come later.

A block whose tokens are all known has a key, chained so that equal keys mean equal text up to there. Blocks
with keys are shared and counted. One that nobody uses stays in the cache until its place is needed, the
longest unused first. As in vLLM, a freed chain goes tail first, because its head helps more prompts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

from maitred.sim.job import Job


class CacheListener(Protocol):
    """Who hears of the cache, as an engine's KV events would tell it."""

    def stored(self, keys: Sequence[int], parent: int | None, job: Job) -> None:
        """These blocks, one after the other, are cached now; `parent` is the key before the first."""

    def removed(self, keys: Sequence[int]) -> None:
        """These blocks are no longer cached."""

    def cleared(self) -> None:
        """Nothing is cached any more."""


class BlockTable:
    """What one sequence holds: `blocks` in all, of which `shared` are cached under these keys.

    The first `full` have been offered to the cache. One that another sequence cached first stays private.
    `keys` are the keys of its text as far as they are known.
    """

    __slots__ = ("blocks", "full", "job", "keys", "shared")

    def __init__(self, job: Job, keys: Sequence[int]) -> None:
        self.job = job
        self.keys = keys
        self.blocks = 0
        self.full = 0
        self.shared: list[int] = []


class BlockPool:
    """`blocks` in all. `_users` counts the holders of every cached block, `_idle` are those without any.

    Unlike vLLM, it takes blocks that hold nothing before it takes cached ones.
    """

    __slots__ = ("_blank", "_idle", "_listener", "_users", "blocks")

    def __init__(self, blocks: int, listener: CacheListener | None = None) -> None:
        self.blocks = blocks
        self._blank = blocks
        self._users: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._listener = listener

    @property
    def free(self) -> int:
        """Blocks that nobody holds."""
        return self._blank + len(self._idle)

    def cached(self, keys: Sequence[int], most: int) -> int:
        """How many blocks at the start of a text are cached, counting up to `most`."""
        users = self._users
        hits = 0
        for key in keys[:most]:
            if key not in users:
                break
            hits += 1
        return hits

    def has_room(self, keys: Sequence[int], hits: int, blocks: int) -> bool:
        """Whether a new sequence can have so many blocks, the first `hits` of them from the cache."""
        free = self.free
        if free >= blocks:
            return True
        users = self._users
        return free - sum(not users[key] for key in keys[:hits]) >= blocks - hits

    def share(self, table: BlockTable, hits: int) -> None:
        """Let a new sequence hold the first cached blocks of its text."""
        users, idle = self._users, self._idle
        table.shared = list(table.keys[:hits])
        for key in table.shared:
            count = users[key]
            users[key] = count + 1
            if not count:
                del idle[key]
        table.blocks = table.full = hits

    def grow(self, table: BlockTable, blocks: int) -> None:
        """Give a sequence free blocks until it holds so many; the caller has looked that there are enough."""
        wanted = blocks - table.blocks
        table.blocks = blocks
        evicted = wanted - self._blank
        if evicted <= 0:
            self._blank -= wanted
            return
        self._blank = 0
        keys = [self._idle.popitem(last=False)[0] for _ in range(evicted)]
        for key in keys:
            del self._users[key]
        if self._listener is not None:
            self._listener.removed(keys)

    def publish(self, table: BlockTable, full: int) -> None:
        """So many blocks of a sequence are full: cache those that are not cached yet."""
        fresh = table.keys[table.full : full]
        if not fresh:
            return
        users, shared = self._users, table.shared
        for key in fresh:
            if key not in users:
                users[key] = 1
                shared.append(key)
        if self._listener is not None:
            self._listener.stored(fresh, table.keys[table.full - 1] if table.full else None, table.job)
        table.full += len(fresh)

    def release(self, table: BlockTable) -> None:
        """Take all blocks back from a sequence; those with keys stay cached."""
        users, idle = self._users, self._idle
        self._blank += table.blocks - len(table.shared)
        for key in reversed(table.shared):
            count = users[key] - 1
            users[key] = count
            if not count:
                idle[key] = None
        table.blocks = table.full = 0
        table.shared = []

    def clear(self) -> None:
        """Forget what is cached; nobody may hold a block."""
        self._users.clear()
        self._idle.clear()
        self._blank = self.blocks
        if self._listener is not None:
            self._listener.cleared()
