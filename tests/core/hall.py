"""A gateway under test: the clock it is told, what it emitted, and its journal."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from maitred.core.events import Ended, Event
from maitred.core.journal import RecordingGateway
from maitred.core.outcome import FailureKind, Outcome, Refusal
from maitred.core.words import (
    Abilities,
    Api,
    Effect,
    Endpoint,
    Endpoints,
    EndpointState,
    Facts,
    Failure,
    Go,
    Identity,
    Leg,
    PoolSettings,
    Probed,
    Request,
    Reset,
    Settings,
    Ticket,
    Usage,
)

NO_FACTS = Facts()


class Hall:
    """One gateway; every helper speaks at `now`, which only the test moves."""

    def __init__(self, settings: Settings | None = None, *, retry: bool = True, seed: int = 7) -> None:
        self.now = 100.0
        self.events: list[Event] = []
        self.lines: list[bytes] = []
        self.gateway = RecordingGateway(
            settings or Settings(), Abilities(retry=retry), seed, self.events.append, self.lines.append
        )
        self.tickets: list[Ticket] = []
        self._ids = itertools.count(1)

    def address(self, **pools: str) -> None:
        """Make these the addresses: `p="ab"` lists http://a:1 and http://b:1 in pool p."""
        urls = {pool: tuple(f"http://{host}:1" for host in hosts) for pool, hosts in pools.items()}
        self.gateway.update(Endpoints(urls), self.now)

    def probe(self, name: str, *, ok: bool = True, facts: Facts = NO_FACTS) -> None:
        """Ask; one that is not well refuses connections."""
        self.gateway.update(Probed(name, ok, facts, "" if ok else "refused", refused=not ok), self.now)

    def open(self, **pools: str) -> None:
        """List addresses and have them all answer a probe."""
        self.address(**pools)
        for endpoint in list(self.gateway.table.by_name):
            self.probe(endpoint)

    def set(self, settings: Settings) -> None:
        self.gateway.update(Reset(settings), self.now)

    def accept(
        self, pool: str = "p", body_bytes: int = 0, *, stream: bool = True, tenant: str = "t", **more: Any
    ) -> Ticket:
        """Let one in; `more` of what its request has."""
        request = Request(f"r{next(self._ids)}", Api.CHAT, pool, pool, stream, body_bytes, **more)
        ticket = self.gateway.accept(request, Identity(tenant), self.now)
        self.tickets.append(ticket)
        return ticket

    def release(self) -> list[Effect]:
        return self.gateway.release(self.now)

    def seated(self) -> list[Ticket]:
        """Release; whom it seated, in order."""
        return [effect.ticket for effect in self.release() if isinstance(effect, Go)]

    def seat(self, pool: str = "p", **more: Any) -> Leg:
        """Let one in and seat it; its leg."""
        ticket = self.accept(pool, **more)
        assert ticket in self.seated()
        return ticket.legs[0]

    def fail(
        self, leg: Leg, kind: FailureKind = FailureKind.RESET, *, retry_after_s: float | None = None
    ) -> bool:
        return self.gateway.fail(leg, Failure(kind, retry_after_s=retry_after_s), self.now)

    def finish(
        self, ticket: Ticket, outcome: Outcome = Outcome.COMPLETED, usage: Usage | None = None
    ) -> Outcome:
        return self.gateway.finish(ticket, outcome, usage, self.now)

    def endpoint(self, name: str) -> Endpoint:
        return self.gateway.table.by_name[name]

    def states(self) -> dict[str, EndpointState]:
        return {name: endpoint.state for name, endpoint in self.gateway.table.by_name.items()}

    def running(self) -> dict[str, int]:
        return {name: endpoint.running for name, endpoint in self.gateway.table.by_name.items()}

    def waiting(self) -> int:
        return sum(self.gateway.waiting_by_pool().values())

    def ended(self, ticket: Ticket) -> list[Outcome]:
        """The outcomes with which the ticket was reported as ended."""
        return [e.outcome for e in self.events if isinstance(e, Ended) and e.ticket is ticket]


def limited(**limits: Any) -> Settings:
    """Settings with these limits for every pool."""
    return Settings(default=PoolSettings(**limits))


def refused(hall: Hall, body_bytes: int = 0, **more: Any) -> Refusal:
    """The refusal the next request gets."""
    with pytest.raises(Refusal) as caught:
        hall.accept(body_bytes=body_bytes, **more)
    return caught.value
