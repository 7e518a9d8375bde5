"""Whose blocks are in one engine's cache, by our own keys, from what it says of its blocks.

An engine's hashes mean nothing to anybody else: they are made with a seed and a function of its own. So our
key of a block is made anew from its tokens and the key of the block before it, just as a request's are
(`prefix.py`), and the engine's hash is remembered to know which block it speaks of later.

An engine may have several caches: a rank of its own for each part of a data-parallel engine, a place for each
tier (GPU, CPU). A block is there as long as it is at one place at least. Of layers that look back only so far
nothing is believed as soon as others are heard of: those keep all of a prompt, and are the last to let go.
"""

from __future__ import annotations

from itertools import islice, repeat

from msgspec import Struct

from maitred.wire.kv_events import Batch, Cleared, Hash, Removed, Stored
from maitred.wire.prefix import TOKEN_BYTES, block_key, root

BLOCKS_MAX = 1 << 19
"""Blocks known at one place of one rank: 8.4 million tokens in blocks of 16."""
PLACES_MAX = 16
DROPPED = 16
"""The part of a full place that is dropped to make room, the oldest first: one in so many."""


class Delta(Struct, frozen=True, gc=False):
    """What has changed: keys that came and keys that went, after everything was lost where `cleared`."""

    stored: tuple[int, ...] = ()
    removed: tuple[int, ...] = ()
    cleared: bool = False


class Rank:
    """One cache of an engine: our keys by its hashes, at each place (tier, group of layers)."""

    __slots__ = ("passed_over", "places")

    def __init__(self) -> None:
        self.places: dict[tuple[str, int], dict[Hash, int]] = {}
        self.passed_over: set[int] = set()

    def find(self, block: Hash) -> int | None:
        """Our key of a block, wherever it is."""
        for place in self.places.values():
            if (key := place.get(block)) is not None:
                return key
        return None


class Rekey:
    """The blocks of one endpoint of a pool, as far as its events tell.

    `block_tokens` is the size of its blocks, 0 as long as it has told of none. `orphans` counts blocks that
    came while the one before them was not known, `strangers` those that left and were not known, `odd` those
    of another size than the others or at too many places, `dropped` those forgotten as there were too many.
    """

    __slots__ = (
        "_blocks_max",
        "_cleared",
        "_counts",
        "_pool",
        "_ranks",
        "_was",
        "_whole",
        "block_tokens",
        "dropped",
        "odd",
        "orphans",
        "strangers",
    )

    def __init__(self, pool: str, blocks_max: int = BLOCKS_MAX) -> None:
        self._pool = pool
        self._blocks_max = blocks_max
        self._ranks: dict[int, Rank] = {}
        self._counts: dict[int, int] = {}  # places that have the block of a key
        self._was: dict[int, bool] = {}  # whether it was there when changes were last taken
        self._cleared = False
        self._whole = False
        self.block_tokens = 0
        self.orphans = self.strangers = self.odd = self.dropped = 0

    def __len__(self) -> int:
        """How many keys are there."""
        return len(self._counts)

    def forget(self) -> None:
        """It is another engine, or may be one: nothing that was known of it holds."""
        self._ranks.clear()
        self._whole = False
        self.block_tokens = 0
        self._empty()

    def clear(self, rank: int) -> None:
        """One cache was emptied."""
        if (cache := self._ranks.pop(rank, None)) is not None:
            for place in cache.places.values():
                for key in place.values():
                    self._drop(key)
        if not self._counts:
            self._empty()

    def apply(self, batch: Batch, rank: int) -> None:
        """Take in what one cache has told."""
        for event in batch.events:
            if isinstance(event, Cleared):
                self.clear(rank)
                continue
            cache = self._ranks.get(rank) or self._ranks.setdefault(rank, Rank())
            if isinstance(event, Removed):
                self._removed(cache, event)
            elif self._counts_for(cache, event):
                self._stored(cache, event)

    def take(self) -> Delta | None:
        """What has changed since this was last asked; None if nothing."""
        was, counts = self._was, self._counts
        stored = tuple([key for key, there in was.items() if not there and key in counts])
        removed = tuple([key for key, there in was.items() if there and key not in counts])
        cleared, self._cleared, self._was = self._cleared, False, {}
        return Delta(stored, removed, cleared) if stored or removed or cleared else None

    def _counts_for(self, cache: Rank, event: Stored) -> bool:
        """Whether to believe in blocks of these layers, in this size."""
        if not event.windowed and not self._whole:
            if self._counts:
                self.forget()
            self._whole = True
        if event.windowed and self._whole:
            cache.passed_over.add(event.group)
            return False
        if event.tokens and not self.block_tokens:
            self.block_tokens = event.block_tokens
        if event.tokens and event.block_tokens != self.block_tokens:
            self.odd += len(event.hashes)
            return False
        return True

    def _stored(self, cache: Rank, event: Stored) -> None:
        place = cache.places.get((event.medium, event.group))
        if place is None:
            if len(cache.places) == PLACES_MAX:
                self.odd += len(event.hashes)
                return
            place = cache.places[event.medium, event.group] = {}
        if not event.tokens:  # blocks that are known from elsewhere
            for name in event.hashes:
                if (known := cache.find(name)) is None:
                    self.orphans += 1
                else:
                    self._put(place, name, known)
            return
        key = root(self._pool, event.adapter) if event.parent is None else cache.find(event.parent)
        if key is None:
            self.orphans += len(event.hashes)
            return
        size = event.block_tokens * TOKEN_BYTES
        view = memoryview(event.tokens).cast("B")
        extras = event.extras or repeat(b"")
        for at, name, extra in zip(range(0, len(view), size), event.hashes, extras, strict=False):
            key = block_key(key, view[at : at + size], extra)
            self._put(place, name, key)

    def _put(self, place: dict[Hash, int], name: Hash, key: int) -> None:
        before = place.get(name)
        if before == key:
            return
        if before is not None:
            self._drop(before)
        elif len(place) >= self._blocks_max:
            for oldest in list(islice(place, max(1, len(place) // DROPPED))):
                self._drop(place.pop(oldest))
                self.dropped += 1
        place[name] = key
        count = self._counts.get(key, 0)
        self._counts[key] = count + 1
        if not count:
            self._was.setdefault(key, False)

    def _removed(self, cache: Rank, event: Removed) -> None:
        if event.group in cache.passed_over:
            return
        place = cache.places.get((event.medium, event.group), {})
        for name in event.hashes:
            if (key := place.pop(name, None)) is None:
                self.strangers += 1
            else:
                self._drop(key)

    def _drop(self, key: int) -> None:
        """One place fewer has it."""
        count = self._counts.pop(key) - 1
        if count:
            self._counts[key] = count
        else:
            self._was.setdefault(key, True)

    def _empty(self) -> None:
        self._counts.clear()
        self._was.clear()
        self._cleared = True
