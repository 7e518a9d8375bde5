"""Events as the core emits them, built by hand."""

from __future__ import annotations

from maitred.core.events import Ended, Event, Hub
from maitred.core.outcome import Outcome
from maitred.core.words import Api, Endpoint, EndpointState, Identity, Leg, Request, Ticket, Usage
from maitred.observe.access import AccessLog
from maitred.observe.ends import Ends
from maitred.observe.metrics import Metrics


def tell(observer: Metrics | AccessLog, *events: Event) -> None:
    """Tell it what happened, the way the gateway does."""
    hub, ends = Hub(), Ends(observer.over)
    hub.subscribe(ends.hears)
    if isinstance(observer, Metrics):
        hub.subscribe(observer.hears)
    for event in events:
        hub.tell(event)
    ends.tell()


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


def over(at: float, ticket: Ticket, outcome: Outcome, usage: Usage | None) -> Ended:
    """The end of a ticket."""
    return Ended(at, ticket, outcome, usage, ticket.legs[-1] if ticket.legs else None)
