"""Which endpoint has which prefix in its cache, as far as can be told from what was sent where.

A prompt is known by chained keys, each of everything up to an end, so that equal keys mean equal beginnings.
Keys of bytes end at BYTE_ENDS, those of tokens after each block; the latter serve where there are no others,
for not every request has its tokens told. What an endpoint has is reckoned as its engine does: what runs
keeps its place, and the rest goes, the longest unused first, where running requests need the room. Of one
prompt the end goes first. So who has a key has all before it, and the longest common beginning is found by
halving.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Mapping
from itertools import accumulate

from maitred.core.masks import Masks
from maitred.core.recipe import Recipe
from maitred.core.words import NOTHING_CACHED, Endpoint, Request

PIECES = [512] * 8 + [1024] * 28 + [4096] * 24
BYTE_ENDS: tuple[int, ...] = tuple(accumulate(PIECES))
"""Ends of the keyed pieces of a prompt, in bytes: finer where prompts are short, and none beyond 128 KiB."""
BYTES_PER_TOKEN, MEDIA_BYTES_PER_TOKEN = 4, 16
"""Of text, about; and a body that has more for each token of its prompt is no text."""
TOKENS_GUESS = 262_144
"""Tokens in the cache of an endpoint that does not tell."""
MEMORY: dict[str | Recipe, float] = {"llm-d": 1, "llm-d-blend": 1, "smg-cache-aware": 14}
"""Policies that go by what was sent and nothing else, as their originals do: so many times its cache is kept
in mind of an endpoint. 14 are 2**24 characters, with Qwen3-32B on two H100. All others reckon as engines do.
"""
FADES = 8
"""With each prompt so many keys may be forgotten, and twice as many as it has: no one prompt pays for all."""


class Held:
    """What one endpoint holds: keys in use, and `idle` ones, each with its tokens.

    `users` counts for each of the former the legs whose prompt ends there, and the keys in use that follow on
    it: who uses a key uses all before it. The idle are in the order in which they were last used, `tokens` in
    all. As in an engine's cache, only they make room for others, the longest unused first, and of one prompt
    the end.
    """

    __slots__ = ("beginnings", "bit", "idle", "incarnation", "tokens", "users")

    def __init__(self, bit: int, incarnation: int) -> None:
        self.bit = bit
        self.incarnation = incarnation
        self.users: dict[int, int] = {}
        self.idle: OrderedDict[int, int] = OrderedDict()
        self.beginnings: set[int] = set()  # keys of prompts of which nobody had much
        self.tokens = 0


class Prefixes:
    """The prefixes of one pool: a mask of endpoints for each key, and each endpoint's keys.

    `memory`: how many times its cache is kept in mind of an endpoint by what was sent alone; 0 reckons with
    what runs there too.
    """

    __slots__ = ("_held", "_masks", "memory")

    def __init__(self) -> None:
        self.memory = 0.0
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

    def sent(self, request: Request, endpoint: Endpoint, begins: bool = False) -> None:
        """The endpoint has this prompt now, and others go for it; `begins`: nobody had much of it."""
        keys = request.prefix or request.blocks
        if not keys:
            return
        held = self._held.get(endpoint.name)
        if held is None or held.incarnation != endpoint.incarnation:
            held = self._new(endpoint)
        users, idle, tokens = held.users, held.idle, held.tokens
        first: int | None = None
        for key in reversed(keys):  # one more leg uses them
            if key in users:
                users[key] += 1
                break
            users[key] = 1
            if size := idle.pop(key, 0):
                tokens -= size
            else:
                masks = self._masks.by_key
                masks[key] = masks.get(key, 0) | held.bit
                first = key
        held.tokens = tokens
        if begins and first is not None:
            held.beginnings.add(first)
            endpoint.begun = len(held.beginnings)
        room: float = endpoint.facts.kv_tokens or TOKENS_GUESS
        if self.memory:
            room *= self.memory
            self.left(request, endpoint, endpoint.incarnation)
        else:
            room -= endpoint.reserved
        if held.tokens > room:
            self._fade(held, room, FADES + 2 * len(keys))
            endpoint.begun = len(held.beginnings)

    def left(self, request: Request, endpoint: Endpoint, incarnation: int) -> None:
        """One leg less has this prompt; what nobody uses any more rests there, its end the first to go.

        `incarnation`: which one of the endpoint the leg was sent to.
        """
        held = self._held.get(endpoint.name)
        if held is None or held.incarnation != incarnation:
            return
        keys = request.prefix or request.blocks
        users, idle, at = held.users, held.idle, len(keys)
        tokens = end = resting = 0
        for key in reversed(keys):
            count = users.pop(key, 0)
            if count != 1:
                if count:
                    users[key] = count - 1
                break
            if not end:  # of the whole prompt; most have others who go on using its beginning
                tokens, end = _tokens(request, at), BYTE_ENDS[at - 1] if request.prefix else at
            at -= 1
            its = PIECES[at] * tokens // end if request.prefix else request.block_tokens
            idle[key] = its = its or 1  # or what holds none would be kept for ever
            resting += its
        held.tokens += resting

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
            for keys in (held.users, held.idle):
                for key in keys:
                    self._masks.drop(key, held.bit)

    def _fade(self, held: Held, room: float, most: int) -> None:
        """Forget what was not used for longest until no more than `room` is left; so many keys at most."""
        idle, beginnings = held.idle, held.beginnings
        for _ in range(min(most, len(idle))):
            if held.tokens <= room:
                break
            key, tokens = idle.popitem(last=False)
            held.tokens -= tokens
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
    prompt, end, body_bytes = prompt_tokens or request.prompt_tokens, BYTE_ENDS[keys - 1], request.body_bytes
    if body_bytes > MEDIA_BYTES_PER_TOKEN * prompt:  # most of it is media, which keys hold little of
        return min(prompt, end // BYTES_PER_TOKEN)
    return end * prompt // body_bytes if end < body_bytes else prompt
