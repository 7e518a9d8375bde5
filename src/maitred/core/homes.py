"""The default policy: seat a regular at the table that is still laid for him, unless that takes longer.

For each endpoint it is predicted how long until the first token: what is unread there and what of the prompt
is not cached, at the speed at which the endpoint reads. To that is added what a seat costs others:

- *A miss* is dear (MISS): what is read a second time takes the place of what others would have found. So a
  request goes home, to where the most of its prompt is, unless so much more waits there.
- *A running stream* slows a prompt a little (STREAM_TOKENS), and stands still while one is read, which shows
  the more the shorter answers are (WAIT_TOKENS).
- *A new beginning* goes where the fewest live (BEGUN_TOKENS), if most prompts are found in caches. There each
  beginning brings many others after it, and who has more of them than its peers is the one that all wait for.

A home that is full is waited for as long as a miss would cost, and never longer than HOLD_MAX_S.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from maitred.core.candidates import Value, candidates
from maitred.core.filters import able
from maitred.core.receipt import Candidate
from maitred.core.saturation import SATURATION, unread
from maitred.core.words import Endpoint, EndpointState, PoolSettings, Ticket

READY = EndpointState.READY
NEVER = float("inf")
MISS = 8.0
"""What a token costs that was cached elsewhere, beside reading it, in times of that."""
STREAM_TOKENS = 400.0
"""A running stream counts as so many tokens to be read."""
WAIT_TOKENS = 10.0
"""Streams stand still while a prompt is read. A wait for a first token is taken to be as bad as a tenth of
it at each later one, so theirs counts by 10 over the tokens of an answer, and in full at most.
"""
BEGUN_TOKENS = 16_000
"""So many tokens each beginning counts that an endpoint has, where all prompts are found in caches."""
SHARED = 0.5
"""Where less than this part of prompts is found, beginnings count nothing."""
HOLD_MAX_S = 4.0
"""The longest wait for a home that is full."""
NEW = 10
"""A prompt of which nobody has one token of so many is a new beginning."""


def worth_until(ticket: Ticket, home: Endpoint) -> float:
    """The instant until which a full home is worth the wait."""
    return ticket.arrival + min(HOLD_MAX_S, (1 + MISS) * ticket.cached.get(home.name, 0) / home.speed)


def homes(
    endpoints: Iterable[Endpoint],
    ticket: Ticket,
    limits: PoolSettings,
    now: float,
    costs: dict[str, float] | None = None,
) -> Endpoint | None:
    """The ready endpoint of the least cost that has room.

    None: nobody has room, or a full home is worth the wait. `costs` is told what each costs, for receipts.
    """
    if ticket.excluded or ticket.request.adapter:
        endpoints = able(endpoints, ticket)
    full = SATURATION[limits.saturation]
    cached, prompt, home = ticket.cached, ticket.prompt_tokens, ticket.home
    most = prompt - ticket.fresh if cached else 0  # that anybody has
    begun, stream = _weights(ticket)
    alone = prompt + stream  # tokens to be read where nobody else is
    best: Endpoint | None = None
    least = waiting = NEVER
    for endpoint in endpoints:
        if endpoint.state is not READY:
            continue
        tokens, missed = alone + stream * endpoint.running, most
        if cached and (had := cached.get(endpoint.name)) is not None:
            tokens -= had * endpoint.kept
            missed -= had
        if endpoint.unread:
            tokens += unread(endpoint, now)
        if begun:
            tokens += begun * endpoint.begun
        tokens *= endpoint.slowness
        if endpoint.share < 1.0:
            tokens /= endpoint.share
        if missed:
            tokens += MISS * missed
        cost = tokens / endpoint.speed
        if costs is not None:
            costs[endpoint.name] = cost
        if cost >= least and (cost > least or (best is not None and endpoint.turn >= best.turn)):
            continue  # full or not
        if not full(endpoint, ticket, limits, now):
            best, least = endpoint, cost
        elif endpoint.name == home and now < worth_until(ticket, endpoint):
            waiting = cost
    return best if least <= waiting else None


def _weights(ticket: Ticket) -> tuple[float, float]:
    """As how many tokens to be read count, for this ticket, each beginning and each running stream."""
    begun = 0.0
    stream = STREAM_TOKENS
    if not ticket.home and ticket.reuse >= SHARED:
        begun = BEGUN_TOKENS * (ticket.reuse - SHARED) / (1 - SHARED)
    if answer := ticket.expected:  # theirs are much the same
        stream += ticket.fresh * (WAIT_TOKENS / answer if answer > WAIT_TOKENS else 1.0)
    return begun, stream


def homes_seen(
    endpoints: Sequence[Endpoint], ticket: Ticket, limits: PoolSettings, now: float
) -> list[Candidate]:
    """What each endpoint costs, in seconds, and of what that is made."""
    costs: dict[str, float] = {}
    homes(endpoints, ticket, limits, now, costs)
    begun, stream = _weights(ticket)
    most = ticket.prompt_tokens - ticket.fresh if ticket.cached else 0

    def told(endpoint: Endpoint) -> Value:
        token_s, prompt = endpoint.slowness / endpoint.share / endpoint.speed, ticket.prompt_tokens
        cached = ticket.cached.get(endpoint.name, 0)
        parts = {
            "read_s": (prompt - cached * endpoint.kept) * token_s,
            "unread_s": unread(endpoint, now) * token_s,
            "streams_s": stream * (endpoint.running + 1) * token_s,
            "begun_s": begun * endpoint.begun * token_s,
            "miss_s": MISS * (most - cached) / endpoint.speed,
        }
        return costs[endpoint.name], {name: part for name, part in parts.items() if part}

    return candidates(endpoints, ticket, limits, now, told)
