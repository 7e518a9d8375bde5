"""Endpoints as receipts tell of them: what every policy is given, and why one could not be chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from maitred.core.receipt import Candidate
from maitred.core.saturation import SATURATION, unread
from maitred.core.words import Endpoint, EndpointState, PoolSettings, Ticket

READY = EndpointState.READY
Value = tuple[float | None, Mapping[str, float]]
"""What a policy compares, and the parts of it."""
UNTOLD: Value = (None, {})


def unable(endpoint: Endpoint, ticket: Ticket) -> str:
    """Why an endpoint could not serve a ticket even if it had room; "" where it could."""
    if endpoint.state is not READY:
        return endpoint.state.label
    if endpoint.name in ticket.excluded:
        return "failed"
    adapter = ticket.request.adapter
    return "adapter" if adapter and adapter not in endpoint.facts.adapters else ""


def candidate(
    endpoint: Endpoint, ticket: Ticket, now: float, why_not: str, told: Value = UNTOLD
) -> Candidate:
    """One endpoint as it is now."""
    value, parts = told
    return Candidate(
        endpoint=endpoint.name,
        why_not=why_not,
        value=value,
        parts=parts,
        cached=ticket.cached.get(endpoint.name, 0),
        unread=int(unread(endpoint, now)),
        running=endpoint.running,
        begun=endpoint.begun,
    )


def candidates(
    endpoints: Sequence[Endpoint],
    ticket: Ticket,
    limits: PoolSettings,
    now: float,
    told: Callable[[Endpoint], Value] = lambda _endpoint: UNTOLD,
) -> list[Candidate]:
    """All of them, with what is `told` of those that could serve it."""
    full = SATURATION[limits.saturation]
    rows = []
    for endpoint in endpoints:
        why_not = unable(endpoint, ticket)
        value = UNTOLD if why_not else told(endpoint)
        if not why_not and full(endpoint, ticket, limits, now):
            why_not = "full"
        rows.append(candidate(endpoint, ticket, now, why_not, value))
    return rows
