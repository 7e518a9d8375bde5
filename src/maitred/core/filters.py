"""Which endpoints may have a request at all: the first step of a routing policy made of pieces.

A filter leaves some of the endpoints it is given, in their order. It never adds one, and like all pieces it
remembers nothing: a policy is asked also when nobody is seated after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from msgspec import Struct

from maitred.core.saturation import SATURATION
from maitred.core.words import Endpoint, EndpointState, PoolSettings, Ticket

READY = EndpointState.READY


class Filter(Protocol):
    """Leaves of some endpoints those that may have a ticket, now."""

    def keep(
        self, endpoints: Sequence[Endpoint], ticket: Ticket, limits: PoolSettings, now: float
    ) -> Sequence[Endpoint]:
        """Those that may have it."""
        ...


def able(endpoints: Iterable[Endpoint], ticket: Ticket) -> list[Endpoint]:
    """Those that could serve it if they had room: ready, not failed by it before, with its adapter.

    What every policy made of pieces begins with.
    """
    excluded, adapter = ticket.excluded, ticket.request.adapter
    return [
        endpoint
        for endpoint in endpoints
        if endpoint.state is READY
        and not (excluded and endpoint.name in excluded)
        and not (adapter and adapter not in endpoint.facts.adapters)
    ]


class Room(Struct, frozen=True):
    """Those that are not full, by the pool's `saturation`. A policy that does not name it begins with it.

    What stands before it may leave only full ones: then the request waits for one of these.
    """

    def keep(
        self, endpoints: Sequence[Endpoint], ticket: Ticket, limits: PoolSettings, now: float
    ) -> Sequence[Endpoint]:
        """Those with room."""
        full = SATURATION[limits.saturation]
        return [endpoint for endpoint in endpoints if not full(endpoint, ticket, limits, now)]


class ContextLength(Struct, frozen=True):
    """Those whose context holds prompt and answer, as far as known; all, where none does.

    Sizes are often estimates, so the last word is the engine's.
    """

    def keep(
        self, endpoints: Sequence[Endpoint], ticket: Ticket, limits: PoolSettings, now: float
    ) -> Sequence[Endpoint]:
        """Those with enough context."""
        tokens = ticket.prompt_tokens + ticket.request.output_tokens_max
        return [e for e in endpoints if (e.facts.context_tokens or tokens) >= tokens] or endpoints


class PrefixCacheAffinity(Struct, frozen=True):
    """Those that have at least `threshold` of the prompt in their cache; all, where there are none.

    And all, where even the best of those would tell its first token more than `ttft_penalty_max_s` later than
    the best of all: by the tokens unread there, at `prefill_tokens_per_s`, or at what each endpoint has shown
    where that is 0. Where all of those are full, what the request has waited already counts, too.
    """

    threshold: float = 0.8
    ttft_penalty_max_s: float = 18.0
    prefill_tokens_per_s: int = 0

    def __post_init__(self) -> None:
        """A threshold of nothing would be met by all."""
        if not 0 < self.threshold <= 1:
            raise ValueError(f"threshold is {self.threshold:g}; write more than 0 and at most 1")

    def keep(
        self, endpoints: Sequence[Endpoint], ticket: Ticket, limits: PoolSettings, now: float
    ) -> Sequence[Endpoint]:
        """Those it should go to, or all."""
        cached = ticket.cached
        wanted = self.threshold * ticket.prompt_tokens
        warm = [each for each in endpoints if cached.get(each.name, 0) >= wanted] if cached else []
        if not warm or len(warm) == len(endpoints):
            return endpoints
        rate = self.prefill_tokens_per_s
        best_s = min(first_token_s(each, ticket, rate) for each in endpoints)
        penalty_s = min(first_token_s(each, ticket, rate) for each in warm) - best_s
        if not Room().keep(warm, ticket, limits, now):
            penalty_s += now - ticket.arrival
        return warm if penalty_s <= self.ttft_penalty_max_s else endpoints


def first_token_s(endpoint: Endpoint, ticket: Ticket, rate: int = 0) -> float:
    """How long its first token would take there: what is unread and what of it is not cached, at a rate."""
    return (endpoint.unread + fresh_tokens(endpoint, ticket)) / (rate or endpoint.speed)


def fresh_tokens(endpoint: Endpoint, ticket: Ticket) -> int:
    """Tokens of its prompt that are not cached there; both are often estimates."""
    return max(0, ticket.prompt_tokens - ticket.cached.get(endpoint.name, 0))


FILTERS: dict[str, Callable[..., Filter]] = {
    "room": Room,
    "context-length": ContextLength,
    "prefix-cache-affinity": PrefixCacheAffinity,
}
"""The filters by name. Each is a frozen Struct; its fields are its options."""
