"""Telling events: each to those who asked for its kind, in the order in which they asked."""

from __future__ import annotations

from maitred.core.events import AtDoor, Ended, Event, Hub
from maitred.core.outcome import Outcome
from maitred.core.words import Api, Identity, Request, Ticket

AT_DOOR = AtDoor(1.0, "r1", Outcome.MODEL_NOT_FOUND)
TICKET = Ticket(Request("r2", Api.CHAT, "m", "m"), Identity(), 1.0, 31.0)
ENDED = Ended(2.0, TICKET, Outcome.CLIENT_GONE, None)


def test_subscribers_hear_what_they_asked_for_and_in_their_order() -> None:
    hub, heard = Hub(), list[tuple[str, Event]]()
    hub.subscribe({AtDoor: lambda event: heard.append(("first", event))})
    hub.tell(ENDED)
    hub.subscribe(dict.fromkeys((AtDoor, Ended), lambda event: heard.append(("second", event))))
    hub.tell(AT_DOOR)
    hub.tell(ENDED)
    assert heard == [("first", AT_DOOR), ("second", AT_DOOR), ("second", ENDED)]
