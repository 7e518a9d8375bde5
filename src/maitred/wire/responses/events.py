"""The events of a response's stream: their form, their numbers, their order.

One writer a response, whatever calls of a model and of tools it is made of: numbers go on, and so do the
places of items in the output.
"""

from __future__ import annotations

from typing import Any

from msgspec import Raw
from msgspec.json import encode

from maitred.wire.responses.items import Item
from maitred.wire.responses.response import Response

DONE = b"data: [DONE]\n\n"
"""Ends a stream, after its last event."""

_END = b"\n\n"


class Events:
    """Writes events. `sequence` is the number of the next one, `output_index` the place of the next item."""

    __slots__ = ("output_index", "sequence")

    def __init__(self, sequence: int = 0, output_index: int = 0) -> None:
        self.sequence = sequence
        self.output_index = output_index

    def event(self, kind: str, members: dict[str, Any]) -> bytes:
        """Any event; `members` in their order."""
        data = encode({"type": kind, **members, "sequence_number": self.sequence})
        self.sequence += 1
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)

    def response(self, kind: str, response: Response) -> bytes:
        """The response as it now is, where `kind` is "created" or names its status."""
        return self.event("response." + kind, {"response": response})

    def error(self, code: str, message: str, param: str | None = None) -> bytes:
        """Something is wrong that no response tells."""
        return self.event("error", {"code": code, "message": message, "param": param})

    def place(self) -> int:
        """Take the next place of the output."""
        index = self.output_index
        self.output_index = index + 1
        return index

    def item(self, item: Item) -> bytes:
        """An item that is there at once."""
        members = {"output_index": self.place(), "item": Raw(item.data)}
        return self.event("response.output_item.added", members) + self.event(
            "response.output_item.done", members
        )


def after(chunk: bytes, sequence: int) -> bytes:
    """Return those of stored events that come after this number; the events of a chunk follow each other."""
    events = chunk.split(_END)[:-1]
    return b"".join(event + _END for event in events if number(event) > sequence)


def number(event: bytes) -> int:
    """Return the number of an event: it is its last member."""
    return int(event[event.rindex(b":") + 1 : event.rindex(b"}")])
