"""Now and then a request goes to an endpoint that is thought to be slow and idles: it may have recovered.

What is known of an endpoint is learned from the streams that it was given. One that is passed over for its
speed would be known by its worst hour for ever.
"""

from __future__ import annotations

from collections.abc import Iterable

from maitred.core.chooser import nearby
from maitred.core.filters import able
from maitred.core.saturation import SATURATION
from maitred.core.words import Endpoint, PoolSettings, Ticket

EVERY = 100
"""At most one request of so many is tried so."""
IDLE_S = 10.0
"""It had nothing to do for so long."""
SLOWER = 1.25
"""It is thought to take so many times as long for a token as the one that was chosen."""
PASSES_OVER = {"default", "least-requests"}
"""The policies by which a slow endpoint may get nothing."""


def idle(
    endpoints: Iterable[Endpoint], chosen: Endpoint, ticket: Ticket, limits: PoolSettings, now: float
) -> Endpoint | None:
    """Who might have this ticket in place of the chosen one, to show what he can; the longest idle first."""
    if limits.routing not in PASSES_OVER:
        return None
    full, quick = SATURATION[limits.saturation], chosen.speed / chosen.slowness
    idlers = [
        each
        for each in able(nearby(endpoints, limits) if limits.zone else endpoints, ticket)
        if not each.running
        and each.share == 1
        and now - each.busy_at >= IDLE_S
        and SLOWER * each.speed / each.slowness < quick
        and not full(each, ticket, limits, now)
    ]
    return min(idlers, key=lambda each: each.busy_at, default=None)
