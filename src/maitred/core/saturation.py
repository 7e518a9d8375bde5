"""When an endpoint is full, and what is learned of how much it can take.

Decode is bounded by places (`cap`) and by KV cache (what is reserved against what there is); prefill by what
is unread: the prompts of streams that have told nothing yet. With a goal for the first token, only so much of
that may lie ahead of a prompt as leaves the goal within reach; the rest waits with us, where others may still
pass and the client can be told the truth. All of it is our own ledger, so metrics that are old or missing
stop nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from maitred.core import speed
from maitred.core.words import Endpoint, EndpointState, Leg, PoolSettings, Settings, Ticket

CAP_START = 64
"""Where an automatic cap begins while neither KV cache nor slots of the engine are known."""
CAP_PERIOD_S = 2.0
"""Shortest time between two changes of a cap: about what an engine takes to show the last one."""
AHEAD, AHEAD_LESS = 0.25, 0.25
"""Part of the goal for the first token that unread prompts may take, and how much less of it a band lower."""
LEFT, PART_MIN = 0.02, 0.5
"""Each band leaves this part of an endpoint to those above it, so that they need not wait for an end."""
MARGIN = 0.9
"""Part of the goal that is planned with."""
STALE_S = 15.0
"""Metrics older than this say nothing: three readings were missed."""
BUSY_WAITING, BUSY_KV = 5, 0.9
"""An engine with so many waiting, or so much of its KV cache in use, is full by its own word."""
READY = EndpointState.READY
Full = Callable[[Endpoint, Ticket, PoolSettings, float], bool]
"""Whether an endpoint has no room for a ticket, now."""


def part(ticket: Ticket) -> float:
    """What of an endpoint a ticket may find taken by others: a lower band leaves some to those above it."""
    return max(PART_MIN, 1 - LEFT * ticket.rank)


def ahead_s(rank: int, ttft_s: float) -> float:
    """How much may lie unread before a prompt; the less, the lower its band."""
    return AHEAD * ttft_s * max(PART_MIN, 1 - AHEAD_LESS * rank)


def places_full(endpoint: Endpoint, ticket: Ticket, limits: PoolSettings, now: float) -> bool:
    """No place is free, or the endpoint has asked to be left alone for a while."""
    cap = limits.cap or endpoint.cap or CAP_START
    if endpoint.share < 1.0 or ticket.rank:
        cap = max(1, int(cap * endpoint.share * part(ticket)))
    return endpoint.running >= cap or endpoint.rests_until > now


def kv_full(endpoint: Endpoint, ticket: Ticket, limits: PoolSettings, now: float) -> bool:
    """No place is free, or the KV cache is spoken for. An endpoint without work takes what there is."""
    if places_full(endpoint, ticket, limits, now):
        return True
    kv_tokens = endpoint.facts.kv_tokens
    if not kv_tokens or not endpoint.running:
        return False
    return endpoint.reserved + ticket.need > kv_tokens * part(ticket)


def engine_full(endpoint: Endpoint, ticket: Ticket, limits: PoolSettings, now: float) -> bool:
    """The engine says so itself; where its word is old, by our own ledger."""
    load = endpoint.load
    if load is None or endpoint.observed_at + STALE_S <= now:
        return kv_full(endpoint, ticket, limits, now)
    return (
        load.waiting >= BUSY_WAITING
        or (load.kv_use or 0.0) >= BUSY_KV
        or places_full(endpoint, ticket, limits, now)
    )


def all_full(endpoint: Endpoint, ticket: Ticket, limits: PoolSettings, now: float) -> bool:
    """Places, KV cache and, where there is a goal for the first token, prompts not yet read.

    Asked of each endpoint for each request, so `kv_full` is written out here; a test holds them together.
    """
    running, cap = endpoint.running, limits.cap or endpoint.cap or CAP_START
    kv_tokens: float | None = endpoint.facts.kv_tokens
    if ticket.rank or endpoint.share < 1.0:
        left = part(ticket)
        cap = max(1, int(cap * endpoint.share * left))
        kv_tokens = kv_tokens and kv_tokens * left
    if running >= cap or endpoint.rests_until > now:
        return True
    if not running:
        return False
    if kv_tokens and endpoint.reserved + ticket.need > kv_tokens:
        return True
    ttft_s = limits.ttft_s
    return ttft_s is not None and endpoint.unread > ahead_s(ticket.rank, ttft_s) * endpoint.speed


SATURATION: dict[str, Full] = {
    "auto": all_full,
    "concurrency": places_full,
    "kv-tokens": kv_full,
    "utilization": engine_full,
}
"""The policies by name."""


def has_room(endpoints: Iterable[Endpoint], limits: PoolSettings, now: float) -> bool:
    """Whether any has a free place at all."""
    return any(
        endpoint.state is READY
        and endpoint.rests_until <= now
        and endpoint.running < (limits.cap or endpoint.cap or CAP_START)
        for endpoint in endpoints
    )


def opens_at(endpoints: Iterable[Endpoint], limits: PoolSettings, now: float) -> float:
    """The next instant at which time alone makes room; infinity where none will."""
    stale_s = STALE_S if limits.saturation == "utilization" else -math.inf
    at = math.inf
    for endpoint in endpoints:
        if endpoint.state is READY:
            if now < endpoint.rests_until < at:
                at = endpoint.rests_until
            if now < endpoint.observed_at + stale_s < at:
                at = endpoint.observed_at + stale_s
    return at


def backlog_s(endpoint: Endpoint) -> float:
    """How long the endpoint will take to read the prompts of streams that have told nothing yet."""
    return endpoint.unread / endpoint.speed


# -- what a leg takes, and gives back -------------------------------------------------------------


def reserve(leg: Leg, now: float) -> None:
    """Set aside at its endpoint what the leg has `reserved`.

    Only the first token of a stream tells when its prompt has been read, so only streams count as unread.
    """
    endpoint, running = leg.endpoint, leg.endpoint.running
    endpoint.busy_s += running * (now - endpoint.busy_at)  # `speed.ran`, written out, as in `give_back`
    endpoint.busy_at = now
    endpoint.running = running = running + 1
    endpoint.reserved += leg.reserved
    if running > endpoint.busiest:  # noqa: PLR1730 - a call takes ten times as long
        endpoint.busiest = running
    if leg.ticket.request.stream:
        ahead, fresh = unread(endpoint, now), leg.fresh
        leg.ahead, leg.unread = ahead, fresh
        leg.read_at = now + (ahead + fresh) / endpoint.speed
        endpoint.unread += fresh
        if not endpoint.reading:
            endpoint.read_since = now
        endpoint.reading[leg.number] = leg


def grow(leg: Leg, output_tokens: int) -> None:
    """An answer longer than was thought takes more of the cache than was set aside."""
    over = leg.fresh + output_tokens - leg.reserved
    if over > 0:
        leg.reserved += over
        leg.endpoint.reserved += over


def give_back(leg: Leg, now: float) -> None:
    """The leg is over."""
    endpoint, running = leg.endpoint, leg.endpoint.running
    endpoint.busy_s += running * (now - endpoint.busy_at)
    endpoint.busy_at = now
    endpoint.running = running - 1
    endpoint.reserved -= leg.reserved
    leg.reserved = 0
    if leg.number in endpoint.reading:
        _was_read(leg, now)


def _was_read(leg: Leg, now: float) -> None:
    """The prompt is read, or need not be any more; the endpoint is at the next one since now."""
    endpoint = leg.endpoint
    endpoint.unread -= leg.unread
    leg.unread = 0
    del endpoint.reading[leg.number]
    endpoint.read_since = now


def unread(endpoint: Endpoint, now: float) -> float:
    """Tokens that an endpoint has still to read; of the prompt that it is at, as many as should be left."""
    for leg in endpoint.reading.values():  # the first is the one that it is at
        read = (now - endpoint.read_since) * endpoint.speed
        if read >= leg.unread:  # noqa: PLR1730 - a call takes ten times as long
            read = leg.unread
        return endpoint.unread - read
    return 0.0


# -- what is learned ------------------------------------------------------------------------------


def first_token(leg: Leg, now: float) -> None:
    """The first token of a stream shows that its prompt was read."""
    speed.ran(leg.endpoint, now)
    leg.busy_s = leg.endpoint.busy_s
    if leg.number in leg.endpoint.reading:
        _was_read(leg, now)


def served(endpoint: Endpoint, limits: PoolSettings, now: float) -> None:
    """An answer is over: an automatic cap follows the pace of the endpoint's streams."""
    _adapt(endpoint, now, too_much=endpoint.tpot_s > MARGIN * (limits.tpot_s or math.inf))


def observed(endpoint: Endpoint, preemptions: int | None, settings: Settings, now: float) -> None:
    """Learn from an engine's metrics: what waits inside it, or was put out of its cache, is too much.

    Of an engine that has not half of what we might give it, what waits there is none of ours.
    """
    load, limits = endpoint.load, settings.pools.get(endpoint.pool, settings.default)
    if load is not None and not limits.cap and 2 * endpoint.busiest >= endpoint.cap:
        put_out = preemptions is not None and (load.preemptions or 0) > preemptions
        if load.waiting or put_out:
            _adapt(endpoint, now, too_much=True)


def _adapt(endpoint: Endpoint, now: float, *, too_much: bool) -> None:
    """Lower an automatic cap by a tenth where it is too much; raise it by a twentieth while it binds.

    What never bound is lowered from the most that ran since the last change.
    """
    cap = endpoint.cap or first_cap(endpoint)
    if now - endpoint.cap_at >= CAP_PERIOD_S:
        binds = endpoint.busiest >= cap - 1
        if too_much or binds:
            cap = max(1, min(cap, endpoint.busiest) * 9 // 10) if too_much else cap + max(1, cap // 20)
            endpoint.cap_at, endpoint.busiest = now, endpoint.running
    endpoint.cap = cap


def forget(endpoint: Endpoint) -> None:
    """Another engine may be there now: nothing that was learned of the old one holds."""
    speed.forget(endpoint)
    endpoint.kept, endpoint.thought, endpoint.found = 1.0, 0.0, 0.0
    endpoint.cap, endpoint.cap_at, endpoint.rests_until = 0, 0.0, 0.0
    endpoint.busiest = endpoint.running


def first_cap(endpoint: Endpoint) -> int:
    """Where an automatic cap begins: at the engine's own slots, where it tells them."""
    return endpoint.facts.slots or CAP_START


def patience_s(ticket: Ticket, rate: float, before_s: float) -> float:
    """How long after its arrival a ticket may still be seated and have its first token in time.

    Its prompt is read at `rate` tokens a second, after `before_s`. One whose prompt alone takes longer than
    the goal allows is not refused for that; it may wait a little.
    """
    needed_s = before_s + ticket.prompt_tokens / rate
    return max(MARGIN * ticket.ttft_s - needed_s, AHEAD * ticket.ttft_s)


def too_late(ticket: Ticket, endpoint: Endpoint, now: float) -> bool:
    """Whether a ticket has waited so long that its first token would come too late from this endpoint."""
    return now - ticket.arrival > patience_s(ticket, endpoint.speed, backlog_s(endpoint))
