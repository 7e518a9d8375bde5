"""What the core knows of the world: the endpoints, their health, and what the operator holds.

Addresses, probes, metrics and the operator's word enter here; nothing here chooses or waits. `stirred` says
that something has changed by which somebody's last hope may have gone.
"""

from __future__ import annotations

from maitred.core import saturation, speed
from maitred.core.endpoints import DRAINING, EJECTED, READY, EndpointTable, Sign
from maitred.core.events import Emit, EndpointMoved
from maitred.core.health import SAID, Health
from maitred.core.outcome import FailureKind
from maitred.core.words import Endpoint, Failure, HealthSettings, Leg, Load, Place, Probed, Settings

ANYWHERE = Place()
ANSWERS = (*SAID, FailureKind.STATUS_429)
"""Failures that are answers: asking again costs an engine that is in trouble."""
REST_MAX_S = 60.0
"""Longest rest granted to an endpoint that asks for one."""


class World:
    """All endpoints of one gateway, as they are."""

    def __init__(self, emit: Emit) -> None:
        self.table = EndpointTable()
        self.health = Health(self.table)
        self.stirred = False
        self._holds: dict[str, None] = {}  # endpoints held by the operator, also while they are not listed
        self._emit = emit

    def grow(self, now: float, settings: HealthSettings) -> None:
        """Give those on their slow start the share of now."""
        if self.health.slow.next_at is not None:
            self.health.slow.grow(now, settings)

    # -- what is told -----------------------------------------------------------------------------

    def list(self, pools: dict[str, tuple[str, ...]], now: float) -> None:
        """These are all addresses there are."""
        for endpoint, sign in self.table.replace(pools):
            if sign is None:
                self._emit(EndpointMoved(now, endpoint, endpoint.state, endpoint.state, "listed"))
                if endpoint.name in self._holds:
                    self.hold(endpoint.name, held=True, now=now)
                continue
            self.move(endpoint, sign, "", now)
            if not endpoint.running:
                self.move(endpoint, Sign.EMPTY, "", now)

    def place(self, settings: Settings) -> None:
        """See what the operator says of each endpoint."""
        for endpoint in self.table.by_name.values():
            limits = settings.pools.get(endpoint.pool, settings.default)
            place = limits.places.get(endpoint.name, ANYWHERE)
            endpoint.zone = place.zone
            speed.expect(endpoint, place.speed or limits.speed)

    def learn(self, probed: Probed, now: float, settings: HealthSettings) -> None:
        """An endpoint was asked how it is."""
        endpoint = self.table.by_name.get(probed.endpoint)
        if endpoint is None:
            return
        died = probed.refused
        if probed.ok:
            died = self.table.learn(endpoint, probed.facts)
            if died:
                saturation.forget(endpoint)
        if died:
            self.health.quarantine.died(endpoint, now, settings.quarantine_s)
        endpoint.why = probed.why
        self.move(endpoint, Sign.ANSWERED if probed.ok else Sign.SILENT, probed.why, now)
        if probed.ok and not endpoint.cap:
            endpoint.cap = saturation.first_cap(endpoint)

    def observe(self, name: str, load: Load, settings: Settings, now: float) -> None:
        """An endpoint's metrics were read."""
        endpoint = self.table.by_name.get(name)
        if endpoint is None:
            return
        before = endpoint.load.preemptions if endpoint.load is not None else None
        endpoint.load, endpoint.observed_at = load, now
        saturation.observed(endpoint, before, settings, now)

    def hold(self, name: str, *, held: bool, now: float) -> None:
        """As the operator says, until he says otherwise: also when the address comes back some day."""
        endpoint = self.table.by_name.get(name)
        if endpoint is None:
            return
        if held:
            self._holds[name] = None
        else:
            self._holds.pop(name, None)
        if endpoint.listed and endpoint.held is not held:
            endpoint.held = held
            self.move(endpoint, Sign.HELD if held else Sign.LET_IN, "by the operator", now)

    def failed(self, leg: Leg, failure: Failure, now: float, settings: HealthSettings) -> None:
        """A leg failed: what that says of its endpoint."""
        self.stirred = True
        endpoint = leg.endpoint
        if leg.incarnation != endpoint.incarnation:
            return
        if failure.retry_after_s and failure.kind in ANSWERS:
            until = now + min(failure.retry_after_s, REST_MAX_S)
            endpoint.rests_until = max(until, endpoint.rests_until)
        if failure.kind.blames:
            verdict = self.health.blame(leg, failure, now, settings)
            if verdict is not None:
                self.move(endpoint, *verdict, now)

    # -- moves ------------------------------------------------------------------------------------

    def vacated(self, endpoint: Endpoint, now: float) -> None:
        """A draining endpoint goes with its last leg."""
        if endpoint.state is DRAINING and not endpoint.running and not endpoint.held:
            self.move(endpoint, Sign.EMPTY, "", now)

    def move(self, endpoint: Endpoint, sign: Sign, why: str, now: float) -> None:
        """Apply a sign, and tell of it where it changes something."""
        before = self.table.move(endpoint, sign, why)
        if before is None:
            return
        self.stirred = True
        if before is EJECTED and endpoint.state is READY:
            saturation.forget(endpoint)
        elif before is READY:
            for peer in self.table.by_pool.get(endpoint.pool, ()):
                peer.slowness = 1.0  # it may have been slow only beside this one
        self.health.moved(endpoint, before, now)
        self._emit(EndpointMoved(now, endpoint, before, endpoint.state, why))
