"""Telling events: each to those who asked for its kind, in the order in which they asked."""

from __future__ import annotations

from maitred.core.events import AtDoor, Event, Hub, Seated
from maitred.core.outcome import Outcome
from maitred.core.words import Api, Identity, Request, Ticket

AT_DOOR = AtDoor(1.0, "r1", Outcome.MODEL_NOT_FOUND)
SEATED = Seated(2.0, Ticket(Request("r2", Api.CHAT, "m", "m"), Identity(), 1.0, 31.0), 1.0)


def test_subscribers_hear_what_they_asked_for_and_in_their_order() -> None:
    hub, heard = Hub(), list[tuple[str, Event]]()
    hub.subscribe({AtDoor: lambda event: heard.append(("first", event))})
    hub(SEATED)
    hub.subscribe(dict.fromkeys((AtDoor, Seated), lambda event: heard.append(("second", event))))
    hub(AT_DOOR)
    hub(SEATED)
    assert heard == [("first", AT_DOOR), ("second", AT_DOOR), ("second", SEATED)]
