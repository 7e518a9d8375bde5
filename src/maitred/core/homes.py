"""The default policy: seat a regular at the table that is still laid for him, unless that takes longer.

For each endpoint it is predicted how long until the first token: what is unread there and what of the prompt
is not cached, at the speed at which the endpoint reads. To that is added what a seat costs others:

- *A miss* is dear (MISS): what is read a second time takes the place of what others would have found. So a
  request goes home, to where the most of its prompt is, unless so much more waits there.
- *A running stream* slows a prompt a little (STREAM_TOKENS).
- *A new beginning* goes where the fewest live (BEGUN_TOKENS), if most prompts are found in caches. There each
  beginning brings many others after it, and who has more of them than its peers is the one that all wait for.

A home that is full is waited for as long as it would take to read anew what it has.
"""

from __future__ import annotations

from collections.abc import Iterable

from maitred.core.saturation import SATURATION, unread
from maitred.core.words import Endpoint, EndpointState, PoolSettings, Ticket

READY = EndpointState.READY
NEVER = float("inf")
MISS = 8.0
"""What a token costs that was cached elsewhere, beside reading it, in times of that."""
STREAM_TOKENS = 400
"""A running stream counts as so many tokens to be read."""
BEGUN_TOKENS = 4000
"""So does each beginning that an endpoint has more than another, where all prompts are found in caches."""
SHARED = 0.5
"""Where less than this part of prompts is found, beginnings count nothing."""
NEW = 0.1
"""A prompt of which nobody has more than this part is a new beginning."""


def worth_until(ticket: Ticket, home: Endpoint) -> float:
    """The instant until which a full home is worth the wait."""
    return ticket.arrival + ticket.cached.get(home.name, 0) / home.speed


def homes(endpoints: Iterable[Endpoint], ticket: Ticket, limits: PoolSettings, now: float) -> Endpoint | None:
    """The ready endpoint of the least cost that has room.

    None: nobody has room, or a full home is worth the wait.
    """
    full, excluded, adapter = SATURATION[limits.saturation], ticket.excluded, ticket.request.adapter
    cached, prompt, home = ticket.cached, ticket.prompt_tokens, ticket.home
    begun = 0.0 if home or ticket.reuse < SHARED else BEGUN_TOKENS * (ticket.reuse - SHARED) / (1 - SHARED)
    best: Endpoint | None = None
    least = waiting = NEVER
    for endpoint in endpoints:
        if endpoint.state is not READY or (excluded and endpoint.name in excluded):
            continue
        if adapter and adapter not in endpoint.facts.adapters:
            continue
        tokens: float = prompt + STREAM_TOKENS * endpoint.running
        if endpoint.unread:
            tokens += unread(endpoint, now)
        if cached:
            tokens -= (1 + MISS) * cached.get(endpoint.name, 0)
        if begun:
            tokens += begun * endpoint.begun
        cost = tokens * endpoint.slowness / endpoint.speed
        if endpoint.share < 1:
            cost += prompt / endpoint.speed * (1 / endpoint.share - 1)
        if full(endpoint, ticket, limits, now):
            if endpoint.name == home and now < worth_until(ticket, endpoint):
                waiting = cost
        elif cost < least or (cost == least and best is not None and endpoint.turn < best.turn):
            best, least = endpoint, cost
    return best if least <= waiting else None
