"""What must hold after every event of a simulation, whatever the workload and the failures."""

from __future__ import annotations

from maitred.core.events import Ended, Event, LegFailed
from maitred.core.gateway import Gateway
from maitred.core.saturation import CAP_START
from maitred.core.words import Leg, PoolSettings, Ticket


class Violation(Exception):  # noqa: N818 - it names what was found
    """An invariant does not hold. `seed` and `event` (counted from 1) find the place again."""

    def __init__(self, seed: int, event: int, what: str) -> None:
        super().__init__(f"seed {seed}, event {event}: {what}")
        self.seed = seed
        self.event = event
        self.what = what

    def __reduce__(self) -> tuple[object, ...]:
        """It comes from another process whole."""
        return Violation, (self.seed, self.event, self.what), self.__dict__


class Watch:
    """The books of somebody who does not trust the core: tickets that live, places their legs hold."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._live: dict[str, Ticket] = {}
        self._legs: dict[int, Leg] = {}
        self._held: dict[str, int] = {}
        self._again: dict[str, None] = {}  # tickets that wait once more, past the bounds of the queue
        self._wrong: str | None = None

    @property
    def live(self) -> int:
        """Tickets that have not ended."""
        return len(self._live)

    def accepted(self, ticket: Ticket) -> None:
        """A ticket was let in."""
        self._live[ticket.request.id] = ticket

    def seated(self, leg: Leg) -> None:
        """A leg was given a place."""
        name = leg.endpoint.name
        self._again.pop(leg.ticket.request.id, None)
        self._legs[leg.number] = leg
        self._held[name] = self._held.get(name, 0) + 1
        cap = self._settings(leg.endpoint.pool).cap or leg.endpoint.cap or CAP_START
        if self._held[name] > cap:
            self._wrong = f"{name} runs {self._held[name]} requests, its cap is {cap}"

    def left(self, leg: Leg) -> None:
        """A leg gave its place back."""
        if self._legs.pop(leg.number, None) is not None:
            self._held[leg.endpoint.name] -= 1

    def hears(self, event: Event) -> None:
        """The core tells its events."""
        if isinstance(event, LegFailed):
            self.left(event.leg)
            if event.again:
                self._again[event.leg.ticket.request.id] = None
        elif isinstance(event, Ended):
            request_id = event.ticket.request.id
            self._again.pop(request_id, None)
            for leg in event.ticket.legs:
                self.left(leg)
            if self._live.pop(request_id, None) is None:
                self._wrong = f"{request_id} ended and had not begun, or had ended before"

    def check(self) -> str | None:
        """What does not hold at this moment."""
        gateway = self._gateway
        if self._wrong is not None:
            return self._wrong
        for name, endpoint in gateway.table.by_name.items():
            if endpoint.running != self._held.get(name, 0):
                return f"{name} counts {endpoint.running} requests, {self._held.get(name, 0)} hold a place"
        waiting = gateway.waiting_by_pool()
        if sum(waiting.values()) != gateway.waiting:
            return f"{gateway.waiting} tickets wait, the queues hold {waiting}"
        for pool, count in waiting.items():
            bound = self._settings(pool).queue_requests_max
            if count - len(self._again) > bound:
                return f"{count} tickets wait for {pool}, its bound is {bound}"
        return None

    def _settings(self, pool: str) -> PoolSettings:
        settings = self._gateway.settings
        return settings.pools.get(pool, settings.default)
