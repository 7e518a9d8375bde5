"""Which endpoint has which prefix in its cache, as far as can be told from what was sent where.

A prompt is known by chained keys, each of everything up to an end, so that equal keys mean equal beginnings.
Keys of bytes end at BYTE_ENDS, those of tokens after each block; the latter serve where there are no others,
for not every request has its tokens told. What an endpoint was not sent for long is forgotten, of one prompt
the end first. So who has a key has all before it, and the longest common beginning is found by halving.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from itertools import accumulate

from maitred.core.masks import Masks
from maitred.core.recipe import Recipe
from maitred.core.words import NOTHING_CACHED, Endpoint, Request, Ticket

BYTE_ENDS: tuple[int, ...] = tuple(accumulate([512] * 8 + [1024] * 28 + [4096] * 24))
"""Ends of the keyed pieces of a prompt, in bytes: finer where prompts are short, and none beyond 128 KiB."""
BYTES_PER_TOKEN, MEDIA_BYTES_PER_TOKEN = 4, 16
"""Of text, about; and a body that has more for each token of its prompt is no text."""
TOKENS_GUESS = 262_144
"""Tokens in the cache of an endpoint that does not tell."""
MEMORY: dict[str | Recipe, float] = {"default": 2, "smg-cache-aware": 14}
MEMORY_ELSE = 1.5
"""So many times its cache is kept in mind of an endpoint at most, and half of that at least, by the policy.

`default`: what an endpoint has lost it will read again where it was, and then has it; elsewhere it would take
another's place. `smg-cache-aware`: as its original, 2**24 characters of each worker, 14 times the cache of
Qwen3-32B on two H100. All others go by what a cache holds, as llm-d does: that is in the middle of this.
"""
REUSE_GUESS, REUSE_WEIGHT = 0.8, 0.002
"""Part of prompts that caches have: a first guess, and how much one request moves it."""


FADES = 8
"""With each prompt so many keys are forgotten, and twice as many as it has, while there are any to forget."""


class Held:
    """What one endpoint holds: keys, each with its tokens, in generations.

    What it was sent lately is `young`, of so many `tokens`; what was young and has not been sent since is
    `old`, and what was old `fades`, a little with each prompt. So a prompt that comes again costs one look.
    """

    __slots__ = ("beginnings", "bit", "fades", "incarnation", "old", "tokens", "young")

    def __init__(self, bit: int, incarnation: int) -> None:
        self.bit = bit
        self.incarnation = incarnation
        self.young: dict[int, int] = {}
        self.old: dict[int, int] = {}
        self.fades: dict[int, int] = {}
        self.beginnings: set[int] = set()  # keys of prompts of which nobody had much
        self.tokens = 0


class Prefixes:
    """The prefixes of one pool: a mask of endpoints for each key, and each endpoint's keys.

    `memory`: how many times its cache is kept in mind of an endpoint.
    """

    __slots__ = ("_held", "_masks", "memory", "reuse")

    def __init__(self) -> None:
        self.memory = MEMORY_ELSE
        self.reuse = REUSE_GUESS
        self._masks = Masks()
        self._held: dict[str, Held] = {}

    def __len__(self) -> int:
        return len(self._masks.by_key)

    def match(self, request: Request, prompt_tokens: int = 0) -> Mapping[str, int]:
        """Tokens of the prompt that endpoints are thought to have, by their names, the most first.

        `prompt_tokens`: a better guess than the request's own.
        """
        keys = request.prefix or request.blocks
        masks, names = self._masks.by_key, self._masks.names
        others = masks.get(keys[0], 0) if keys else 0  # who has any of it and was not told of yet
        if not others:
            return NOTHING_CACHED
        cached: dict[str, int] = {}
        end = len(keys)
        mask = masks.get(keys[-1], 0)  # of a prompt that came before
        while True:
            if not mask:
                low, high = 1, end  # the longest beginning, no longer than `end`, that one of the others has
                while low < high:
                    middle = (low + high) // 2
                    if masks.get(keys[middle], 0) & others:
                        low = middle + 1
                    else:
                        high = middle
                mask, end = masks[keys[low - 1]] & others, low
            tokens = _tokens(request, end, prompt_tokens)
            others ^= mask
            while mask:
                bit = mask & -mask
                cached[names[bit]] = tokens
                mask ^= bit
            if not others:
                return cached
            end -= 1

    def seated(self, ticket: Ticket, endpoint: Endpoint) -> None:
        """A ticket got its seat, and the endpoint will have its prompt."""
        prompt = ticket.prompt_tokens
        if prompt:
            self.reuse += REUSE_WEIGHT * ((prompt - ticket.fresh) / prompt - self.reuse)
        if not ticket.home:
            endpoint.cold = endpoint.turn
        self.gave(ticket, endpoint)

    def gave(self, ticket: Ticket, endpoint: Endpoint) -> None:
        """The endpoint will have the prompt of this ticket, whoever was meant to."""
        capacity = self.memory * (endpoint.facts.kv_tokens or TOKENS_GUESS)
        self.sent(ticket.request, endpoint, capacity, begins=not ticket.home)

    def sent(self, request: Request, endpoint: Endpoint, capacity: float, *, begins: bool = False) -> None:
        """The endpoint has this prompt now. Of `capacity` tokens at least half are kept in mind."""
        keys = request.prefix or request.blocks
        if not keys:
            return
        held = self._held.get(endpoint.name)
        if held is None or held.incarnation != endpoint.incarnation:
            held = self._new(endpoint)
        young = held.young
        if keys[-1] not in young:
            first = self._add(request, keys, held)
            if begins and first is not None:
                held.beginnings.add(first)
                endpoint.begun = len(held.beginnings)
            if 2 * held.tokens > capacity:
                self._grow_old(held)
        if held.fades:
            self._fade(held, FADES + 2 * len(keys))
            endpoint.begun = len(held.beginnings)

    def keep(self, names: Container[str]) -> None:
        """Forget all endpoints but these."""
        for name in [name for name in self._held if name not in names]:
            self.forget(name)

    def renew(self, endpoint: Endpoint) -> None:
        """See whether another engine is there now, which has nothing."""
        held = self._held.get(endpoint.name)
        if held is not None and held.incarnation != endpoint.incarnation:
            self.forget(endpoint.name)
            endpoint.begun = 0

    def forget(self, name: str) -> None:
        """An endpoint has lost everything, or has gone."""
        held = self._held.pop(name, None)
        if held is not None:
            del self._masks.names[held.bit]
            for keys in (held.young, held.old, held.fades):
                for key in keys:
                    self._masks.drop(key, held.bit)

    def _add(self, request: Request, keys: Sequence[int], held: Held) -> int | None:
        """Make these young; the first that is new here."""
        young, old, fades, masks = held.young, held.old, held.fades, self._masks.by_key
        first, before = None, 0
        for number, key in enumerate(keys, 1):
            tokens = _tokens(request, number)
            if key not in young:
                if key in old:
                    del old[key]
                elif key in fades:
                    del fades[key]
                else:
                    masks[key] = masks.get(key, 0) | held.bit
                    first = first or key
                size = tokens - before or 1  # or what holds none would be kept for ever
                young[key] = size
                held.tokens += size
            before = tokens
        return first

    def _grow_old(self, held: Held) -> None:
        self._fade(held, len(held.fades))
        held.fades, held.old, held.young, held.tokens = held.old, held.young, {}, 0

    def _fade(self, held: Held, most: int) -> None:
        """Forget so many, the last of a prompt first: a dict gives back first what it was given last."""
        fades, beginnings = held.fades, held.beginnings
        for _ in range(min(most, len(fades))):
            key, _tokens = fades.popitem()
            self._masks.drop(key, held.bit)
            beginnings.discard(key)

    def _new(self, endpoint: Endpoint) -> Held:
        self.forget(endpoint.name)
        bit = self._masks.enter(endpoint.name)
        held = self._held[endpoint.name] = Held(bit, endpoint.incarnation)
        endpoint.begun = 0
        return held


def _tokens(request: Request, keys: int, prompt_tokens: int = 0) -> int:
    """Tokens of the prompt up to the end of so many keys."""
    if not request.prefix:
        return keys * request.block_tokens
    prompt, end = prompt_tokens or request.prompt_tokens, BYTE_ENDS[keys - 1]
    if request.body_bytes > MEDIA_BYTES_PER_TOKEN * prompt:  # most of it is media, which keys hold little of
        return min(prompt, end // BYTES_PER_TOKEN)
    tokens = end * prompt // (request.body_bytes or 1)
    return tokens if tokens < prompt else prompt  # noqa: FURB136 - a call takes ten times as long
