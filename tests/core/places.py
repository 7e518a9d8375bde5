"""Endpoints and tickets made by hand, for what chooses between them."""

from __future__ import annotations

from typing import Any

from maitred.core.words import (
    Api,
    Endpoint,
    EndpointState,
    Facts,
    Identity,
    Load,
    PoolSettings,
    Request,
    Ticket,
)

LIMITS = PoolSettings(cap=100)


def endpoint(
    name: str,
    /,
    *,
    facts: dict[str, Any] | None = None,
    load: dict[str, Any] | None = None,
    state: EndpointState = EndpointState.READY,
    **more: Any,
) -> Endpoint:
    """One that is ready unless said otherwise; what its engine says was read at 0."""
    said = Load(**load) if load is not None else None
    return Endpoint(name, "p", "", state=state, facts=Facts(**facts or {}), load=said, **more)


def endpoints(count: int, **more: Any) -> list[Endpoint]:
    """So many, named by letters."""
    return [endpoint(chr(ord("a") + number), **more) for number in range(count)]


def ticket(
    prompt_tokens: int = 1000,
    *,
    cached: dict[str, int] | None = None,
    excluded: tuple[str, ...] = (),
    name: str = "r",
    arrival: float = 0.0,
    **more: Any,
) -> Ticket:
    """A ticket of a request of this id, which has `more`."""
    request = Request(name, Api.CHAT, "m", "p", **more)
    return Ticket(
        request,
        Identity(),
        arrival,
        30.0,
        prompt_tokens=prompt_tokens,
        fresh=prompt_tokens - max((cached or {}).values(), default=0),
        cached=cached or {},
        excluded=excluded,
    )
