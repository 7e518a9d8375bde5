"""Which endpoint has which prefix in its cache, as far as can be told from what was sent where.

A prompt is known by chained keys, each of everything up to an end, so that equal keys mean equal beginnings.
Keys of bytes end at BYTE_ENDS, those of tokens after each block; the latter serve where there are no others,
for not every request has its tokens told. An endpoint's keys are forgotten as it forgets its blocks: the
least recently used first, and of one prompt the last first. So who has a key has all before it, and the
longest common beginning is found by halving.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from itertools import accumulate

from maitred.core.words import NOTHING_CACHED, Endpoint, Request, Ticket

BYTE_ENDS: tuple[int, ...] = tuple(accumulate([256] * 16 + [1024] * 28 + [4096] * 24))
"""Ends of the keyed pieces of a prompt, in bytes: finer where prompts are short, and none beyond 128 KiB."""
TOKENS_GUESS = 262_144
"""Tokens in the cache of an endpoint that does not tell."""
MEMORY = 4
"""So many times its cache is kept in mind of an endpoint. What it has lost it will read again where it was,
and
then has it; elsewhere it would take another's place."""
REUSE_GUESS, REUSE_WEIGHT = 0.8, 0.002
"""Part of prompts that caches have: a first guess, and how much one request moves it."""


class Held:
    """What one endpoint holds: keys, each with its tokens, the least recently used first."""

    __slots__ = ("beginnings", "bit", "incarnation", "keys", "tokens")

    def __init__(self, bit: int, incarnation: int) -> None:
        self.bit = bit
        self.incarnation = incarnation
        self.keys: OrderedDict[int, int] = OrderedDict()
        self.beginnings: set[int] = set()  # keys of prompts of which nobody had much
        self.tokens = 0


class Prefixes:
    """The prefixes of one pool: a mask of endpoints for each key, and each endpoint's keys."""

    __slots__ = ("_held", "_masks", "_names", "reuse")

    def __init__(self) -> None:
        self.reuse = REUSE_GUESS
        self._masks: dict[int, int] = {}
        self._held: dict[str, Held] = {}
        self._names: dict[int, str] = {}  # by the number of its bit

    def __len__(self) -> int:
        return len(self._masks)

    def match(self, request: Request) -> Mapping[str, int]:
        """Tokens of the request's prompt that endpoints are thought to have, by their names."""
        keys = request.prefix or request.blocks
        masks = self._masks
        if not keys or keys[0] not in masks:
            return NOTHING_CACHED
        cached: dict[str, int] = {}
        seen, end = 0, len(keys)
        while end:
            low, high = 0, end  # the longest beginning shorter than `end` that another one has
            while low < high:
                middle = (low + high) // 2
                if masks.get(keys[middle], 0) & ~seen:
                    low = middle + 1
                else:
                    high = middle
            if not low:
                break
            mask, end = masks[keys[low - 1]] & ~seen, low - 1
            tokens = self._tokens(request, low)
            seen |= mask
            while mask:
                bit = mask & -mask
                cached[self._names[bit]] = tokens
                mask ^= bit
        return cached

    def seated(self, ticket: Ticket, endpoint: Endpoint) -> None:
        """A ticket got its seat, and the endpoint will have its prompt."""
        prompt = ticket.prompt_tokens
        if prompt:
            self.reuse += REUSE_WEIGHT * ((prompt - ticket.fresh) / prompt - self.reuse)
        if not ticket.home:
            endpoint.cold = endpoint.turn
        capacity = MEMORY * (endpoint.facts.kv_tokens or TOKENS_GUESS)
        self.sent(ticket.request, endpoint, capacity, begins=not ticket.home)

    def sent(self, request: Request, endpoint: Endpoint, capacity: int, *, begins: bool = False) -> None:
        """The endpoint has this prompt now; of `capacity` tokens it forgets what was used least recently."""
        keys = request.prefix or request.blocks
        if not keys:
            return
        held = self._held.get(endpoint.name)
        if held is None or held.incarnation != endpoint.incarnation:
            held = self._new(endpoint)
        bit, masks, known, first = held.bit, self._masks, held.keys, 0
        for end in range(len(keys), 0, -1):
            key = keys[end - 1]
            if key in known:
                known.move_to_end(key)
                continue
            tokens = self._tokens(request, end) - self._tokens(request, end - 1)
            known[key] = tokens
            held.tokens += tokens
            masks[key] = masks.get(key, 0) | bit
            first = key
        if begins and first:
            held.beginnings.add(first)
            endpoint.begun = len(held.beginnings)
        while held.tokens > capacity and known:
            key, tokens = known.popitem(last=False)
            held.tokens -= tokens
            self._drop(key, bit)
            if key in held.beginnings:
                held.beginnings.discard(key)
                endpoint.begun = len(held.beginnings)

    def forget(self, name: str) -> None:
        """An endpoint has lost everything, or has gone."""
        held = self._held.pop(name, None)
        if held is not None:
            del self._names[held.bit]
            for key in held.keys:
                self._drop(key, held.bit)

    def _drop(self, key: int, bit: int) -> None:
        rest = self._masks[key] & ~bit
        if rest:
            self._masks[key] = rest
        else:
            del self._masks[key]

    def _new(self, endpoint: Endpoint) -> Held:
        self.forget(endpoint.name)
        bit = 1
        while bit in self._names:
            bit <<= 1
        self._names[bit] = endpoint.name
        held = self._held[endpoint.name] = Held(bit, endpoint.incarnation)
        endpoint.begun = 0
        return held

    @staticmethod
    def _tokens(request: Request, keys: int) -> int:
        """Tokens of the prompt up to the end of so many keys."""
        if not request.prefix:
            return keys * request.block_tokens
        if not keys:
            return 0
        return min(
            request.prompt_tokens, BYTE_ENDS[keys - 1] * request.prompt_tokens // (request.body_bytes or 1)
        )
