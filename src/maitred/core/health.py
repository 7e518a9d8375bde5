"""Who is ill: endpoints that fail again and again, and requests that engines die of.

An endpoint is ejected after failures in a row that are its own fault, counted once for each request, so that
one broken request repeated does not look like a broken engine, and not at all where another engine gave the
same answer (some answer 500 to a client's mistake); the last of a pool stays. One that returns takes its
share back slowly, because its caches are cold and it may fall again.

A request that was in flight at two deaths is kept out for a while: the third engine would die of it too.
One that is answered in between has not killed anybody.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from msgspec import Struct

from maitred.core.endpoints import EJECTED, READY, EndpointTable, Sign
from maitred.core.outcome import FailureKind
from maitred.core.words import Endpoint, EndpointState, Failure, HealthSettings, Leg, Request

FIRST_SHARE = 0.1
"""Where slow start begins: a tenth of the places."""
RAMP_STEPS = 20
"""A share grows in so many steps, each an instant at which waiting tickets are looked at again."""

SAID = (FailureKind.STATUS_5XX, FailureKind.ERROR_EVENT)
"""Failures in the engine's own words; two engines that say so blame the request and not each other."""

DIED = (FailureKind.RESET, FailureKind.TRUNCATED)
"""What a leg tells of an engine that died under it, if it did."""

UNREACHABLE_MAX = 2
"""Failures in a row, the last of them a connection that nobody answered: one may be a lost packet."""

DEATHS = 2
LINGER_S = 10.0
"""An engine found dead within this of losing a request died with that request in flight."""
WATCHED_MAX = 4096
"""Bound of fingerprints remembered of each kind; the oldest are forgotten."""


def blame(endpoint: Endpoint, fingerprint: int) -> int:
    """Count a failure that is the endpoint's own; how many there are in a row by now.

    `fingerprint`: the request's where its content may have to do with it, else 0.
    """
    if not fingerprint or fingerprint != endpoint.failed_by:
        endpoint.failures += 1
        endpoint.failed_by = fingerprint
    return endpoint.failures


def forgive(endpoint: Endpoint, request: Request) -> None:
    """Take back the last failure, if it was this request's: it fails elsewhere just the same."""
    if endpoint.failures and endpoint.failed_by == request.fingerprint:
        endpoint.failures -= 1
        endpoint.failed_by = 0  # once taken back it counts anew


def absolve(endpoint: Endpoint) -> None:
    """It answered a request to the end."""
    endpoint.failures = endpoint.failed_by = 0
    if endpoint.share >= 1:
        endpoint.ejections = 0


class SlowStart:
    """Endpoints that returned and have not their full share yet."""

    __slots__ = ("_ramping", "next_at")

    def __init__(self) -> None:
        self._ramping: dict[str, Endpoint] = {}
        self.next_at: float | None = None

    def begin(self, endpoint: Endpoint, now: float) -> None:
        """It has just come back."""
        endpoint.share, endpoint.ready_at = FIRST_SHARE, now
        self._ramping[endpoint.name] = endpoint
        self.next_at = now

    def end(self, endpoint: Endpoint) -> None:
        """It has its full share."""
        endpoint.share = 1.0
        self._ramping.pop(endpoint.name, None)

    def grow(self, now: float, settings: HealthSettings) -> None:
        """Give everybody the share of now."""
        for endpoint in list(self._ramping.values()):
            grown_s = now - endpoint.ready_at
            if grown_s >= settings.slow_start_s:
                self.end(endpoint)
            else:
                endpoint.share = FIRST_SHARE + (1 - FIRST_SHARE) * grown_s / settings.slow_start_s
        self.next_at = now + settings.slow_start_s / RAMP_STEPS if self._ramping else None


class Suspect(Struct):
    """A request seen at deaths. `pool` and `endpoints` are for people; `until`: kept out until then."""

    deaths: int
    seen_at: float
    pool: str
    endpoints: list[str]
    until: float = 0.0


class Quarantine:
    """Fingerprints of requests that were in flight when engines died: `suspects`."""

    def __init__(self) -> None:
        self._lost: OrderedDict[tuple[str, int], float] = OrderedDict()
        self.suspects: OrderedDict[int, Suspect] = OrderedDict()

    def lost(self, endpoint: Endpoint, request: Request, now: float) -> None:
        """The endpoint's connection broke under this request: perhaps because it died."""
        if request.fingerprint:
            self._lost[endpoint.name, request.fingerprint] = now
            if len(self._lost) > WATCHED_MAX:
                self._lost.popitem(last=False)

    def died(self, endpoint: Endpoint, now: float, quarantine_s: float) -> None:
        """The endpoint is dead, or was: it refuses connections, or another process answers in its place."""
        for name, fingerprint in [key for key in self._lost if key[0] == endpoint.name]:
            if now - self._lost.pop((name, fingerprint)) <= LINGER_S:
                self._count(fingerprint, endpoint, now, quarantine_s)

    def clear(self, request: Request) -> None:
        """It was answered to the end: no engine dies of it."""
        self.suspects.pop(request.fingerprint, None)

    def holds(self, fingerprint: int, now: float) -> bool:
        """Whether this request is kept out."""
        suspect = self.suspects.get(fingerprint)
        return suspect is not None and suspect.until > now

    def held(self, now: float) -> Iterator[tuple[int, Suspect]]:
        """All that are kept out now."""
        return ((mark, suspect) for mark, suspect in self.suspects.items() if suspect.until > now)

    def _count(self, fingerprint: int, endpoint: Endpoint, now: float, quarantine_s: float) -> None:
        suspect = self.suspects.get(fingerprint)
        if suspect is None or now - suspect.seen_at > quarantine_s:
            suspect = Suspect(0, now, endpoint.pool, [])
        suspect.deaths += 1
        suspect.seen_at = now
        suspect.endpoints = [*suspect.endpoints, endpoint.name][-DEATHS:]
        if suspect.deaths >= DEATHS:
            suspect.until = now + quarantine_s
        self.suspects[fingerprint] = suspect
        self.suspects.move_to_end(fingerprint)
        if len(self.suspects) > WATCHED_MAX:
            self.suspects.popitem(last=False)


class Health:
    """Judges endpoints by how requests fare with them. `table` is asked about their neighbours."""

    def __init__(self, table: EndpointTable) -> None:
        self._table = table
        self.quarantine = Quarantine()
        self.slow = SlowStart()

    def blame(
        self, leg: Leg, failure: Failure, now: float, settings: HealthSettings
    ) -> tuple[Sign, str] | None:
        """A failure that is the endpoint's own: what that means for it, and why; None: nothing yet."""
        endpoint, ticket = leg.endpoint, leg.ticket
        why = failure.detail or failure.kind.label
        if failure.kind in DIED or failure.lost:
            self.quarantine.lost(endpoint, ticket.request, now)
        if failure.kind in (FailureKind.CONNECT, FailureKind.TLS):
            self.quarantine.died(endpoint, now, settings.quarantine_s)
            return Sign.SILENT, why
        if failure.kind in SAID:
            if ticket.blamed is not None:
                forgive(ticket.blamed, ticket.request)
                return None
            ticket.blamed = endpoint
        unheard = failure.kind is FailureKind.UNREACHABLE
        failures = blame(endpoint, 0 if unheard else ticket.request.fingerprint)
        few = min(UNREACHABLE_MAX, settings.failures_max) if unheard else settings.failures_max
        if failures < few or not self._dispensable(endpoint):
            return None
        return Sign.FAILING, f"{failures} failures in a row, the last: {why}"

    def served(self, endpoint: Endpoint, request: Request) -> None:
        """The endpoint answered this request to the end."""
        if endpoint.failures or endpoint.ejections:
            absolve(endpoint)
        if self.quarantine.suspects:
            self.quarantine.clear(request)

    def moved(self, endpoint: Endpoint, before: EndpointState, now: float) -> None:
        """The endpoint is in another state now."""
        if endpoint.state is EJECTED:
            endpoint.ejections += 1
        elif before is EJECTED and endpoint.state is READY:
            endpoint.failures = endpoint.failed_by = 0
            self.slow.end(endpoint)
            # Slowly where others have its work meanwhile; else nobody would be served for it.
            if any(other.share >= 1 for other in self._others(endpoint)):
                self.slow.begin(endpoint, now)

    def _dispensable(self, endpoint: Endpoint) -> bool:
        """Whether others that are ready can do all that this one does."""
        others = self._others(endpoint)
        adapters = {adapter for other in others for adapter in other.facts.adapters}
        return bool(others) and adapters.issuperset(endpoint.facts.adapters)

    def _others(self, endpoint: Endpoint) -> list[Endpoint]:
        pool = self._table.by_pool.get(endpoint.pool, ())
        return [e for e in pool if e.state is READY and e is not endpoint]
