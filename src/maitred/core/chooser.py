"""Which endpoint gets the next leg: the least loaded one that has room."""

from __future__ import annotations

from collections.abc import Iterable

from maitred.core.words import Endpoint, EndpointState, Ticket

READY = EndpointState.READY


def least_loaded(endpoints: Iterable[Endpoint], ticket: Ticket, cap: int) -> Endpoint | None:
    """The ready endpoint with the fewest running legs below `cap`, of equals the one served longest ago.

    Endpoints that already failed this ticket are left out. None: nothing has room.
    """
    best: Endpoint | None = None
    excluded = ticket.excluded
    for endpoint in endpoints:
        if endpoint.state is not READY or endpoint.running >= cap:
            continue
        if excluded and endpoint.name in excluded:
            continue
        if (
            best is None
            or endpoint.running < best.running
            or (endpoint.running == best.running and endpoint.turn < best.turn)
        ):
            best = endpoint
    return best
