"""Events as the core emits them, built by hand."""

from __future__ import annotations

from maitred.core.words import Api, Endpoint, EndpointState, Identity, Leg, Request, Ticket


def endpoint(name: str = "qwen/127.0.0.1:8001", state: EndpointState = EndpointState.READY) -> Endpoint:
    pool, _, address = name.partition("/")
    return Endpoint(name=name, pool=pool, url=f"http://{address}", state=state)


def queued(model: str = "qwen", *, stream: bool = True, sequences: int = 1, api: Api = Api.CHAT) -> Ticket:
    """A ticket that arrived at instant 100."""
    request = Request("r1", api, model, "qwen", stream=stream, body_bytes=2048, sequences=sequences)
    return Ticket(request, Identity(tenant="support", key="k1"), arrival=100.0, queue_deadline=130.0)


def seat(ticket: Ticket, at: float, where: Endpoint | None = None) -> Leg:
    """Seat the ticket as the core would: a new leg in place of the last."""
    ticket.attempts += 1
    leg = Leg(ticket.attempts, ticket, where or endpoint(), 0, ticket.attempts, seated_at=at)
    ticket.legs = [leg]
    return leg
