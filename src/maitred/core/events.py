"""What happened, told once: the only thing the observers see of the core.

Events are values for counting and logging; nobody decides by them. `Ended` is emitted exactly once a
ticket, whatever ended it: that is the invariant every shell is tested against.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from maitred.core.outcome import Outcome
from maitred.core.tokens import NoTokens
from maitred.core.words import Api, Endpoint, EndpointState, Failure, Leg, Ticket, Usage


class AtDoor(Struct, frozen=True, gc=False):
    """A request was over without a ticket: refused, answered by the gateway itself, or its client left.

    `api` is None where the path is no API's, `model` "" unless the house serves what was asked for. `tenant`,
    `key` and `band` are "" as long as nobody knows them; `retry` is how often the client had tried before.
    """

    at: float
    request_id: str
    outcome: Outcome
    api: Api | None = None
    model: str = ""
    tenant: str = ""
    key: str = ""
    band: str = ""
    retry: int = 0


class Tokenized(Struct, frozen=True, gc=False):
    """The token ids of a request were looked for at the door: found, or `missing` for a reason."""

    at: float
    model: str
    took_s: float
    missing: NoTokens | None


class Decided(Struct, frozen=True, gc=False):
    """A leg with a receipt got its seat."""

    at: float
    leg: Leg


class Answered(Struct, frozen=True, gc=False):
    """First content of a stream left for the client; of a plain answer nobody can tell when it came."""

    at: float
    leg: Leg


class AnswerBegan(Struct, frozen=True, gc=False):
    """A stream that began with the model's thinking came to its answer."""

    at: float
    leg: Leg


class LegFailed(Struct, frozen=True, gc=False):
    """A leg failed; `again` says whether the ticket was queued once more."""

    at: float
    leg: Leg
    failure: Failure
    again: bool


class Ended(Struct, frozen=True, gc=False):
    """A ticket is over. `usage` is None where nothing was generated or nobody knows.

    `leg` is its last one, None where it never had a seat; ticket and legs let go of each other right after.
    """

    at: float
    ticket: Ticket
    outcome: Outcome
    usage: Usage | None
    leg: Leg | None = None


class EndpointMoved(Struct, frozen=True, gc=False):
    """An endpoint changed its state; `why` is for people."""

    at: float
    endpoint: Endpoint
    before: EndpointState
    after: EndpointState
    why: str


Event = AtDoor | Tokenized | Decided | Answered | AnswerBegan | LegFailed | Ended | EndpointMoved
Emit = Callable[[Event], None]
Hears = Mapping[type[Event], Callable[[Any], None]]
"""What a subscriber does on each kind of event that concerns it."""


class Hub:
    """Tells each event to those who want to hear of its kind, and to nobody else."""

    def __init__(self) -> None:
        self._heard: dict[type[Event], Callable[[Any], None]] = {}

    def subscribe(self, hears: Hears) -> None:
        """Tell these too, from now on."""
        for kind, hear in hears.items():
            before = self._heard.get(kind)
            self._heard[kind] = hear if before is None else _both(before, hear)

    def tell(self, event: Event) -> None:
        """Tell one event."""
        hear = self._heard.get(type(event))
        if hear is not None:
            hear(event)


def _both(first: Callable[[Any], None], second: Callable[[Any], None]) -> Callable[[Any], None]:
    def hear(event: Event) -> None:
        first(event)
        second(event)

    return hear
