"""What the twin's paths may ask of the twin, and what a path is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from msgspec import Struct

from maitred.net.exchange import HttpExchange
from maitred.twin.answers import JSON_LINES, encode
from maitred.twin.faults import Fault
from maitred.twin.service import Service


class House(Protocol):
    """The twin, to those who answer for it."""

    service: Service
    fault: Fault
    """What is wrong until it is told to recover."""

    @property
    def phase(self) -> str | None:
        """What a cold start is at; None where the engine is ready."""

    def meet(self, said: Fault) -> Fault:
        """What a request meets that came with such a fault. What is about the engine happens at once."""

    def fail(self, fault: Fault, spared: HttpExchange | None = None) -> None:
        """Have this wrong from now on, and nothing else. A crash spares the connection of one exchange."""

    def sleep(self, *, asleep: bool) -> None:
        """Stand still, and forget the cache unless a request has blocks of it; or wake up."""


class Route(Struct, frozen=True):
    """A path: its methods, and who answers or raises Wrong. `always`: also while the engine starts."""

    methods: tuple[str, ...]
    handle: Callable[[House, HttpExchange], None]
    always: bool = False


def respond(exchange: HttpExchange, said: Any) -> None:
    """Answer with JSON."""
    exchange.respond(200, JSON_LINES, encode(said))
