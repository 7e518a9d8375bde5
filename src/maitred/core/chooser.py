"""Which endpoint gets the next leg: the least loaded one that has room."""

from __future__ import annotations

from collections.abc import Iterable

from maitred.core.words import Endpoint, EndpointState, Ticket

READY = EndpointState.READY


def least_loaded(endpoints: Iterable[Endpoint], ticket: Ticket, cap: int) -> Endpoint | None:
    """The ready endpoint with the fewest running legs below `cap`, of equals the one served longest ago.

    Endpoints that already failed this ticket, or have not its adapter, are left out. One that is on its slow
    start counts as fuller than it is, and full at its share. None: nothing has room.
    """
    best: Endpoint | None = None
    least = 0.0
    excluded, adapter = ticket.excluded, ticket.request.adapter
    for endpoint in endpoints:
        if endpoint.state is not READY or endpoint.running >= cap:
            continue
        if excluded and endpoint.name in excluded:
            continue
        if adapter and adapter not in endpoint.facts.adapters:
            continue
        burden = endpoint.running + 1.0
        if endpoint.share < 1:
            if endpoint.running >= max(1, int(cap * endpoint.share)):
                continue
            burden /= endpoint.share
        if best is None or burden < least or (burden == least and endpoint.turn < best.turn):
            best, least = endpoint, burden
    return best
