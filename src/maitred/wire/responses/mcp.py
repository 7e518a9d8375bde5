"""Items of tools that the gateway runs, and the events that tell of them while they come to be."""

from __future__ import annotations

from typing import Any

from msgspec import DecodeError, Raw, Struct
from msgspec.json import Decoder, encode

from maitred.wire.mcp import NOTHING, Tool
from maitred.wire.responses.events import Events
from maitred.wire.responses.items import Item, KeptItem, McpListTools

LISTING, CALLING = "mcp_list_tools", "mcp_call"
"""What comes to be, as its events call it."""


class Listed(Struct, frozen=True):
    """A tool as an item lists it."""

    name: str
    input_schema: Raw
    description: str | None = None
    annotations: Raw = NOTHING

    @property
    def parameters(self) -> dict[str, Any]:
        """What it is called with, as a JSON schema."""
        try:
            return _object(self.input_schema)
        except DecodeError:
            return {"type": "object"}

    @property
    def read_only(self) -> bool:
        """Whether its server says that it changes nothing."""
        try:
            return _hints(self.annotations).read_only_hint
        except DecodeError:
            return False


class _Hints(Struct, rename="camel"):
    read_only_hint: bool = False


_object = Decoder(dict[str, Any]).decode
_hints = Decoder(_Hints).decode
_listed = Decoder(Listed).decode


def listed(tool: Tool) -> Listed:
    """A tool as its server told it."""
    return Listed(tool.name, tool.input_schema, tool.description, tool.annotations)


def listed_before(item: McpListTools) -> list[Listed] | None:
    """The tools of an item of a conversation; None where it lists none that can be read."""
    if item.error is not None:
        return None
    try:
        return [_listed(tool) for tool in item.tools]
    except DecodeError:
        return None


def raw(tools: list[Listed]) -> list[Raw]:
    """Tools as an item holds them."""
    return [Raw(encode(tool)) for tool in tools]


class Told:
    """The events of one item: that it is there, what it is called with, what came of it."""

    __slots__ = ("_events", "_kind", "_members")

    def __init__(self, events: Events, kind: str, item_id: str) -> None:
        self._events = events
        self._kind = f"response.{kind}"
        self._members = {"item_id": item_id, "output_index": events.place()}

    def begin(self, item: KeptItem) -> bytes:
        """It is there, and nothing has come of it yet."""
        place = self._members["output_index"]
        added = self._events.event("response.output_item.added", {"output_index": place, "item": item})
        return added + self._events.event(f"{self._kind}.in_progress", self._members)

    def arguments(self, arguments: str) -> bytes:
        """What it is called with."""
        kind, members = f"{self._kind}_arguments", self._members
        delta = self._events.event(f"{kind}.delta", {**members, "delta": arguments})
        return delta + self._events.event(f"{kind}.done", {**members, "arguments": arguments})

    def end(self, item: Item, *, failed: bool) -> bytes:
        """What came of it."""
        ended = self._events.event(f"{self._kind}.{'failed' if failed else 'completed'}", self._members)
        done = {"output_index": self._members["output_index"], "item": Raw(item.data)}
        return ended + self._events.event("response.output_item.done", done)
