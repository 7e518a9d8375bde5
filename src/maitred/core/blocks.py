"""Which endpoint has which blocks in its cache, as the engines themselves tell.

Beside it counts what was just sent somewhere: the engine will have it, and tells so only when it has read it.
Of a prompt an endpoint has the unbroken beginning: what lies behind a missing block is of no use to it.
Nothing is known of an endpoint before it has told everything, and nothing once it is another engine.
"""

from __future__ import annotations

from collections.abc import Container
from heapq import heappop, heappush

from maitred.core.masks import Masks
from maitred.core.words import Endpoint, KvEvents, Leg, Request

SOON_S = 2.0
"""So long after a prompt should have been read its blocks count, though no event has told of them."""
BLOCKS_MAX, SOON_MAX = 1 << 19, 1 << 17
"""Blocks of one endpoint that are kept in mind: told of, and expected. More of them are not believed."""

STRIDE = 64
"""Blocks looked up at once: mostly the same endpoints have all of them."""
APPROXIMATE, PRECISE = "approximate", "precise"


class Told:
    """What one endpoint has: blocks it told of, and those expected `soon`, each until when.

    `lost`: some of what it told was missed, so it may have a little more or less.
    """

    __slots__ = ("bit", "blocks", "incarnation", "lost", "soon")

    def __init__(self, bit: int, incarnation: int) -> None:
        self.bit = bit
        self.incarnation = incarnation
        self.blocks: set[int] = set()
        self.soon: dict[int, float] = {}
        self.lost = False


class Blocks:
    """The blocks of one pool: a mask of endpoints for each key. `told` holds those who tell, by name."""

    __slots__ = ("_due", "_everybody", "_masks", "told")

    def __init__(self) -> None:
        self.told: dict[str, Told] = {}
        self._masks = Masks()
        self._everybody = 0
        self._due: list[tuple[float, int, int, Told, tuple[int, ...]]] = []  # heap, by when expected no more

    def __len__(self) -> int:
        return len(self._masks.by_key)

    def match(self, request: Request, now: float) -> dict[str, int]:
        """Tokens of the prompt that those who tell have, who has the most first; who has none is left out."""
        due = self._due
        while due and due[0][0] <= now:
            *_, told, keys = heappop(due)
            self._give_up(told, keys, now)
        keys, known = request.blocks, self._masks.by_key.get
        left, ends = self._everybody, [(0, 0)]  # who has all so far; up to where the others had it
        for start in range(0, len(keys), STRIDE):
            masks = [*map(known, keys[start : start + STRIDE])]
            if masks.count(left) == len(masks):
                continue
            for at, mask in enumerate(masks, start):
                rest = mask & left if mask else 0
                if rest != left:
                    ends.append((at, left ^ rest))
                    left = rest
            if not left:
                break
        ends.append((len(keys), left))
        cached: dict[str, int] = {}
        for end, those in reversed(ends):
            rest = those if end else 0
            while rest:
                bit = rest & -rest
                cached[self._masks.names[bit]] = end * request.block_tokens
                rest ^= bit
        return cached

    def hear(self, endpoint: Endpoint, events: KvEvents) -> None:
        """An engine has told what changed."""
        if events.cleared:
            self.forget(endpoint.name)
            if events.lost:  # and is not gone by any more
                return
            self._new(endpoint)
        told = self.told.get(endpoint.name)
        if told is None:
            return
        told.lost = told.lost or events.lost
        blocks, soon, masks, bit = told.blocks, told.soon, self._masks.by_key, told.bit
        for key in events.removed:
            if key in blocks:
                blocks.discard(key)
                if key not in soon:
                    self._masks.drop(key, bit)
        for key in events.stored:
            if len(blocks) < BLOCKS_MAX:
                blocks.add(key)
                masks[key] = masks.get(key, 0) | bit
                soon.pop(key, None)

    def sent(self, leg: Leg, now: float) -> None:
        """The prompt of this leg is on its way to an endpoint, which will have it."""
        told, request = self.told.get(leg.endpoint.name), leg.ticket.request
        if told is None or not request.blocks or len(told.soon) > SOON_MAX:
            return
        until = max(now, leg.read_at) + SOON_S
        cached = leg.ticket.cached.get(leg.endpoint.name, 0)
        keys = request.blocks[cached // request.block_tokens :]
        soon, masks, bit = told.soon, self._masks.by_key, told.bit
        for key in keys:
            soon[key] = until
            masks[key] = masks.get(key, 0) | bit
        if keys:
            heappush(self._due, (until, leg.number, told.bit, told, keys))

    def renew(self, endpoint: Endpoint) -> None:
        """Forget what is known of it where it is another engine since it told."""
        told = self.told.get(endpoint.name)
        if told is not None and told.incarnation != endpoint.incarnation:
            self.forget(endpoint.name)

    def keep(self, names: Container[str]) -> None:
        """Forget all others."""
        for name in [name for name in self.told if name not in names]:
            self.forget(name)

    def forget(self, name: str) -> None:
        """Nothing is known of this endpoint."""
        told = self.told.pop(name, None)
        if told is None:
            return
        for key in told.blocks | told.soon.keys():
            self._masks.drop(key, told.bit)
        told.blocks, told.soon = set(), {}
        del self._masks.names[told.bit]
        self._everybody ^= told.bit

    def _new(self, endpoint: Endpoint) -> None:
        bit = self._masks.enter(endpoint.name)
        self._everybody |= bit
        self.told[endpoint.name] = Told(bit, endpoint.incarnation)

    def _give_up(self, told: Told, keys: tuple[int, ...], now: float) -> None:
        """No event has told of these: they are not there, unless they are expected once more."""
        soon, blocks = told.soon, told.blocks
        for key in keys:
            if soon.get(key, now + 1) <= now:
                del soon[key]
                if key not in blocks:
                    self._masks.drop(key, told.bit)
