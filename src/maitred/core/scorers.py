"""How well each endpoint suits a request, 0 to 1: the second step of a routing policy made of pieces.

Scores are weighted and added. A scorer scores all endpoints at once, since many scores compare them, and
remembers nothing, like all pieces: homes of sessions, adapters and prefixes follow from hashes of their names
(highest random weight: Thaler and Ravishankar, 1998), so that several gateways agree on them, and only those
of an endpoint that goes are moved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol
from zlib import crc32

from msgspec import Struct

from maitred.core.filters import first_token_s, fresh_tokens
from maitred.core.mix import MASK, key_of, mix
from maitred.core.saturation import STALE_S
from maitred.core.words import Endpoint, PoolSettings, Ticket

PIECE_TOKENS = 128
_SPREAD = 0x9E3779B97F4A7C15
"""2**64 over the golden ratio, odd: a product with it depends in its high bits on all bits of a key."""


class Scorer(Protocol):
    """Scores endpoints for a ticket, now."""

    def score(
        self, endpoints: Sequence[Endpoint], ticket: Ticket, limits: PoolSettings, now: float
    ) -> Sequence[float]:
        """A score for each, in their order; 1 is best. There is at least one."""
        ...


# -- load -----------------------------------------------------------------------------------------


class LeastRequests(Struct, frozen=True):
    """The fewest running requests, and this one: half as good where there are twice as many."""

    def score(
        self, endpoints: Sequence[Endpoint], ticket: Ticket, limits: PoolSettings, now: float
    ) -> Sequence[float]:
        """Fewest first."""
        loads = [burden(endpoint) for endpoint in endpoints]
        least = min(loads)
        return [least / load for load in loads]


def burden(endpoint: Endpoint) -> float:
    """Its requests and one more; on its slow start, or much slower than its peers, it counts as fuller."""
    return (endpoint.running + 1.0) * endpoint.slowness / endpoint.share


class TokenLoad(Struct, frozen=True):
    """The fewest tokens of prompts to be read: those unread, and what of this one is not cached there.

    1 with none, 0 with `tokens_max`.
    """

    tokens_max: int = 4_194_304

    def __post_init__(self) -> None:
        """Nothing cannot be shared out."""
        if self.tokens_max < 1:
            raise ValueError("tokens_max is 0; write at least 1")

    def score(
        self, endpoints: Sequence[Endpoint], ticket: Ticket, limits: PoolSettings, now: float
    ) -> Sequence[float]:
        """Least to read first."""
        most = self.tokens_max
        return [max(0.0, 1 - (each.unread + fresh_tokens(each, ticket)) / most) for each in endpoints]


class KvUse(Struct, frozen=True):
    """The most free KV cache: the less of what the engine says and what we have set aside."""

    def score(
        self, endpoints: Sequence[Endpoint], ticket: Ticket, limits: PoolSettings, now: float
    ) -> Sequence[float]:
        """Emptiest first."""
        return [max(0.0, 1 - _kv_use(endpoint, now)) for endpoint in endpoints]


def _kv_use(endpoint: Endpoint, now: float) -> float:
    load, kv_tokens = endpoint.load, endpoint.facts.kv_tokens
    use = endpoint.reserved / kv_tokens if kv_tokens else 0.0
    if load is not None and load.kv_use is not None and endpoint.observed_at + STALE_S > now:
        return max(use, load.kv_use)
    return use


class Queue(Struct, frozen=True):
    """The fewest requests waiting inside the engine, by its own word: 1 for the fewest, 0 for the most."""

    def score(
        self, endpoints: Sequence[Endpoint], ticket: Ticket, limits: PoolSettings, now: float
    ) -> Sequence[float]:
        """Shortest queue first."""
        waiting = [
            each.load.waiting if each.load is not None and each.observed_at + STALE_S > now else 0
            for each in endpoints
        ]
        most, least = max(waiting), min(waiting)
        if most == least:
            return [1.0] * len(waiting)
        return [(most - each) / (most - least) for each in waiting]


# -- caches ---------------------------------------------------------------------------------------


class Prefix(Struct, frozen=True):
    """The part of the prompt that is thought to be cached there."""

    def score(
        self, endpoints: Sequence[Endpoint], ticket: Ticket, limits: PoolSettings, now: float
    ) -> Sequence[float]:
        """Most cached first."""
        cached, prompt_tokens = ticket.cached, ticket.prompt_tokens or 1
        return [min(1.0, cached.get(endpoint.name, 0) / prompt_tokens) for endpoint in endpoints]


class NoHitLru(Struct, frozen=True):
    """Spreads prompts that nobody has cached: the longer since an endpoint's last such prompt, the better.

    Of others it says nothing: half for all.
    """

    def score(
        self, endpoints: Sequence[Endpoint], ticket: Ticket, limits: PoolSettings, now: float
    ) -> Sequence[float]:
        """Longest without one first."""
        if any(ticket.cached.values()):
            return [0.5] * len(endpoints)
        turns = sorted({endpoint.cold for endpoint in endpoints})
        places = {turn: 1 - place / len(turns) for place, turn in enumerate(turns)}
        return [places[endpoint.cold] for endpoint in endpoints]


class CacheAware(Struct, frozen=True):
    """Balance first, then the cache: the rule of the SGLang router, as one score.

    Where the fullest has more than `balance_abs` requests above the emptiest, and more than `balance_rel`
    times as many, the emptiest is best. Else the one with the most of the prompt, if that is more than
    `cache_threshold` of it. Else the one that was longest without a prompt it had not.
    """

    cache_threshold: float = 0.5
    balance_abs: int = 32
    balance_rel: float = 1.0001

    def score(
        self, endpoints: Sequence[Endpoint], ticket: Ticket, limits: PoolSettings, now: float
    ) -> Sequence[float]:
        """By whichever rule holds."""
        running = [endpoint.running for endpoint in endpoints]
        most, least = max(running), min(running)
        if most - least > self.balance_abs and most > self.balance_rel * least:
            return [1 / (1 + each) for each in running]
        shares = PREFIX.score(endpoints, ticket, limits, now)
        if max(shares) > self.cache_threshold:
            return shares
        return [1 / (1 + endpoint.cold) for endpoint in endpoints]


# -- homes ----------------------------------------------------------------------------------------


class Session(Struct, frozen=True):
    """The home of its session, unless its first token would come more than `slack_s` later there.

    Later than at the best, by what is unread and what each has cached. So a session that had to leave its
    home stays where its conversation is now while that is quicker.
    """

    slack_s: float = 0.5

    def score(
        self, endpoints: Sequence[Endpoint], ticket: Ticket, limits: PoolSettings, now: float
    ) -> Sequence[float]:
        """1 for its home; 0 for all where there is none, or waiting there costs too much."""
        session = ticket.request.session
        if not session:
            return [0.0] * len(endpoints)
        home = home_of(endpoints, key_of(session))
        best_s = min([first_token_s(endpoint, ticket) for endpoint in endpoints])
        stays = first_token_s(home, ticket) <= best_s + self.slack_s
        return [1.0 if stays and endpoint is home else 0.0 for endpoint in endpoints]


class Lora(Struct, frozen=True):
    """The home of its adapter, so that each adapter stays in few memories.

    The next one in the adapter's order where that has more than `load_factor` times its part of all requests.
    """

    load_factor: float = 1.25

    def __post_init__(self) -> None:
        """Less than its part, and there might be no home."""
        _check_factor(self.load_factor)

    def score(
        self, endpoints: Sequence[Endpoint], ticket: Ticket, limits: PoolSettings, now: float
    ) -> Sequence[float]:
        """1 for its home; 0 for all where it asks for no adapter."""
        adapter = ticket.request.adapter
        home = bounded_home(endpoints, key_of(adapter), self.load_factor) if adapter else None
        return [1.0 if endpoint is home else 0.0 for endpoint in endpoints]


class PrefixHash(Struct, frozen=True):
    """The home of the beginning of its prompt: of so many pieces, or of all if it has fewer.

    A piece is 512 bytes, or 128 tokens where only keys of tokens are known.
    The next one in its order where that has more than `load_factor` times its part of all requests:
    consistent hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam, 2018).
    """

    pieces: int = 2
    load_factor: float = 1.25

    def __post_init__(self) -> None:
        """Less than its part, and there might be no home."""
        _check_factor(self.load_factor)
        if self.pieces < 1:
            raise ValueError("pieces is 0; write at least 1")

    def score(
        self, endpoints: Sequence[Endpoint], ticket: Ticket, limits: PoolSettings, now: float
    ) -> Sequence[float]:
        """1 for its home; 0 for all where the prompt has no key."""
        request, many = ticket.request, self.pieces
        if not request.prefix and request.blocks:
            many = max(1, many * PIECE_TOKENS // request.block_tokens)
        keys = (request.prefix or request.blocks)[:many]
        home = bounded_home(endpoints, keys[-1], self.load_factor) if keys else None
        return [1.0 if endpoint is home else 0.0 for endpoint in endpoints]


def home_of(endpoints: Sequence[Endpoint], key: int) -> Endpoint:
    """The same endpoint for a key, whichever others there are, as long as it is there itself."""
    key = mix(key, 0)
    return max(endpoints, key=lambda each: (key ^ crc32(each.name.encode())) * _SPREAD & MASK)


def bounded_home(endpoints: Sequence[Endpoint], key: int, factor: float) -> Endpoint:
    """The same, of those whose load with one more is within `factor` times the mean."""
    most = math.ceil(factor * (sum([each.running for each in endpoints]) + 1) / len(endpoints))
    return home_of([each for each in endpoints if each.running < most], key)


def _check_factor(factor: float) -> None:
    if factor < 1:
        raise ValueError(f"load_factor is {factor:g}; write at least 1")


# -- sizes ----------------------------------------------------------------------------------------


class ContextLength(Struct, frozen=True):
    """The shortest context that holds prompt and answer, so that long ones stay free for who needs them.

    0 where it is too short; where the context is not known, as if it were the longest.
    """

    def score(
        self, endpoints: Sequence[Endpoint], ticket: Ticket, limits: PoolSettings, now: float
    ) -> Sequence[float]:
        """Tightest first."""
        tokens = ticket.prompt_tokens + ticket.request.output_tokens_max
        known = [endpoint.facts.context_tokens or 0 for endpoint in endpoints]
        longest = max(known)
        contexts = [each or longest for each in known]
        tightest = min([each for each in contexts if each >= tokens], default=0)
        return [tightest / each if each and each >= tokens else 0.0 for each in contexts]


PREFIX = Prefix()
SCORERS: dict[str, Callable[..., Scorer]] = {
    "least-requests": LeastRequests,
    "token-load": TokenLoad,
    "kv-use": KvUse,
    "queue": Queue,
    "prefix": Prefix,
    "no-hit-lru": NoHitLru,
    "cache-aware": CacheAware,
    "session": Session,
    "lora": Lora,
    "prefix-hash": PrefixHash,
    "context-length": ContextLength,
}
"""The scorers by name. Each is a frozen Struct; its fields are its options."""
