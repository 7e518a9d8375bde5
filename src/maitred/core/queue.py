"""Where tickets wait: one bounded queue per pool, of bands, of flows.

Bands are served in their order, but for the share that a lower one is guaranteed; `fairness.py` says who is
next within a band. Tickets that failed somewhere may not sit there again, and adapters are not loaded
everywhere, so flows have lanes: those of one lane may sit at the same endpoints, and when its first fits
nowhere none of it does. A retry keeps its arrival and its deadline, and so its place before everybody who
came later. Bounds count what waits, never what is seated, and return to zero by themselves because every way
out passes `remove`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import islice

from maitred.core.fairness import CREDIT_MAX, FAIRNESS, Band, Flow, cost_of
from maitred.core.words import BandSettings, Phase, PoolSettings, Ticket

NEVER = float("inf")
HOLDBACK, HOLDBACK_MAX = 0.1, 0.5
"""Each band below the first may fill a tenth less of the queue, down to half: who comes first finds room."""
PAUSE_MAX = 2.0
"""Under a growing load answers take longer than the last ones did."""
LOOKED_BACK = 64
"""So many of a band are looked at, who came last first, for one whose tenant has too much of the queue."""
QUEUED = Phase.QUEUED
_DEFAULT = PoolSettings()


class PoolQueue:
    """One pool's queue; `waiting` tickets and their `body_bytes` are bounded.

    Who had to stay gets an entry in `_deadlines`, a heap whose entries die with the wait and are swept out
    when they outnumber the living. `earliest` is never later than the first deadline of a waiting ticket.
    `odd`: those who may not sit everywhere. `served_at`: when somebody of the pool was seated last.
    """

    __slots__ = (
        "_at_home", "_bands", "_deadlines", "_fresh", "_limits", "_sequence", "body_bytes",
        "earliest", "held_at", "odd", "opens_at", "served_at", "waiting",
    )  # fmt: skip

    def __init__(self, bands: Sequence[BandSettings] = (BandSettings("default"),)) -> None:
        self._bands: dict[str, Band] = {}
        self._limits = _DEFAULT
        self._fresh: list[Ticket] = []
        self._deadlines: list[tuple[float, int, Ticket]] = []
        self._sequence = 0
        self.waiting = 0
        self.body_bytes = 0
        self.earliest = NEVER
        self.opens_at = NEVER
        self.served_at = 0.0
        self.held_at: dict[int, float] = {}
        self.odd: dict[int, Ticket] = {}
        self._at_home: dict[str, int] = {}  # how many of all others wait for each home
        self.arrange(bands)

    def arrange(self, bands: Sequence[BandSettings]) -> None:
        """From now on the bands are these, in this order; who waits in another waits behind them."""
        before, self._bands = self._bands, {}
        for settings in bands:
            band = before.pop(settings.name) if settings.name in before else Band(settings)
            band.settings = settings
            self._bands[settings.name] = band
        self._bands.update((name, band) for name, band in before.items() if band.waiting)
        for rank, band in enumerate(self._bands.values()):
            for ticket in band.all():
                ticket.rank = rank

    def line_up_anew(self, limits: PoolSettings) -> None:
        """Whoever waits is lined up again, by other policies; what flows have had counts no more."""
        everybody = self.all()
        for ticket in everybody:
            self._bands[ticket.band].remove(ticket)
        self._limits = limits
        for ticket in everybody:
            self._bands[ticket.band].push(ticket, limits)

    # -- bounds -----------------------------------------------------------------------------------

    def full(self, body_bytes: int, limits: PoolSettings, part: float = 1) -> bool:
        """Whether one more body of this size would pass a bound, or this part of it."""
        return (
            self.waiting >= limits.queue_requests_max * part
            or self.body_bytes + body_bytes > limits.queue_bytes_max * part
        )

    def crowded(self, ticket: Ticket, limits: PoolSettings) -> bool:
        """Whether the ticket may not wait: the queue is full, or its band or tenant has its part of it."""
        band, part = self._band(ticket.band)
        if self.full(ticket.request.body_bytes, limits, part):
            return True
        flow = band.flow_of(ticket, limits)
        if flow is None or not flow.waiting or flow.weight >= band.weight:
            return False
        share = limits.queue_requests_max * part * flow.weight / band.weight
        return flow.waiting >= max(1.0, share)

    def victims(self, ticket: Ticket, limits: PoolSettings) -> list[Ticket]:
        """Who has to go that this one may wait in a full queue: the newest of the lowest bands.

        In its own band, the newest of a tenant that has more than its part, where this one's has not. Nobody
        where that would not do.
        """
        mine, part = self._band(ticket.band)
        body_bytes = ticket.request.body_bytes - limits.queue_bytes_max * part + self.body_bytes
        requests = self.waiting - limits.queue_requests_max * part
        victims: list[Ticket] = []
        for last in self._dispensable(ticket, mine, limits):
            if body_bytes <= 0 and requests < 0:
                break
            victims.append(last)
            body_bytes -= last.request.body_bytes
            requests -= 1
        return victims if body_bytes <= 0 and requests < 0 else []

    def _dispensable(self, ticket: Ticket, mine: Band, limits: PoolSettings) -> Iterator[Ticket]:
        for band in reversed(self._bands.values()):
            if band is mine:
                break
            if band.settings.preempt:
                yield from band.newest()
        flow = mine.flow_of(ticket, limits)
        had = flow.waiting if flow is not None else 0
        share = limits.queue_requests_max / (mine.weight if had else mine.weight + ticket.weight)
        if had >= max(1.0, share * ticket.weight):
            return
        for last in islice(mine.newest(), LOOKED_BACK):
            theirs = mine.flow_of(last, limits)
            if theirs is not None and theirs is not flow and theirs.waiting > max(1.0, share * theirs.weight):
                yield last
                return

    def behind(self, ticket: Ticket) -> bool:
        """Whether others wait already who may sit where it may: in its lane, and for its home or for none."""
        if ticket.lane:
            return any(other.lane == ticket.lane for other in self.odd.values())
        return bool(self._at_home.get("") or self._at_home.get(ticket.home))

    def wait_s(self, ticket: Ticket, limits: PoolSettings, now: float, answer_s: float = 0.0) -> float | None:
        """Predicted wait of this newcomer, if tenants get their parts; None where no pace is known.

        Answers that were begun together end together. So a pause in which nobody at all is seated says
        nothing before it is much longer than an answer takes, `answer_s` in the mean.
        """
        band = self._band(ticket.band)[0]
        if not band.waiting:
            return None  # an old pace is no reason to refuse
        seat_s = band.pace.seat_s(now, min(PAUSE_MAX * answer_s, now - self.served_at))
        if seat_s is None:
            return None
        flow = band.flow_of(ticket, limits)
        own = flow.waiting if flow is not None else 0
        weight = band.weight if own else band.weight + ticket.weight
        before = min(band.waiting, own + (own + 1) * (weight / ticket.weight - 1))
        return (before + 1) * seat_s

    # -- in and out -------------------------------------------------------------------------------

    def push(self, ticket: Ticket, limits: PoolSettings = _DEFAULT) -> None:
        """Let a ticket wait, behind all of its tenant that come before it."""
        self._limits = limits
        self._band(ticket.band)[0].push(ticket, limits)
        if ticket.lane:
            self.odd[id(ticket)] = ticket
        else:
            self._at_home[ticket.home] = self._at_home.get(ticket.home, 0) + 1
        self._fresh.append(ticket)
        self.waiting += 1
        self.body_bytes += ticket.request.body_bytes
        self.earliest = min(self.earliest, ticket.queue_deadline)

    def serve(self, ticket: Ticket, now: float) -> None:
        """Take a ticket out because it is seated, and count to its tenant and band what that costs."""
        self.served_at = now
        band, flow = self.remove(ticket)
        cost = cost_of(ticket.prompt_tokens, ticket.expected)
        band.pace.seated(now)
        for other in self._bands.values():
            if other.settings.share_min and (other.waiting or other is band):
                other.credit = min(CREDIT_MAX, other.credit + other.settings.share_min * cost)
        band.credit = max(-cost, band.credit - cost)
        if ticket.flow is None:  # a retry has been counted
            ticket.flow, ticket.charged = flow, FAIRNESS[self._limits.fairness](cost)
            band.serve(flow, ticket.charged)

    def settle(self, ticket: Ticket, cost: float) -> None:
        """Count what a seated ticket did cost, in place of what was thought."""
        if ticket.flow is not None and (band := self._bands.get(ticket.band)) is not None:
            band.charge(ticket.flow, FAIRNESS[self._limits.fairness](cost) - ticket.charged)
            ticket.flow = None

    def remove(self, ticket: Ticket) -> tuple[Band, Flow]:
        """Take a waiting ticket out, whatever the reason; the band and flow that it was in."""
        self.waiting -= 1
        self.body_bytes -= ticket.request.body_bytes
        band = self._bands[ticket.band]
        flow = band.remove(ticket)
        if ticket.lane:
            del self.odd[id(ticket)]
        elif self._at_home[ticket.home] > 1:
            self._at_home[ticket.home] -= 1
        else:
            del self._at_home[ticket.home]
        if self.held_at:
            self.held_at.pop(id(ticket), None)
        if not self.waiting:
            self._rest()
        return band, flow

    def heads(self) -> Iterator[Ticket]:
        """Who may be next, in order; bands that are owed something by their guaranteed share come first."""
        bands = list(self._bands.values())
        for band in bands:
            if band.waiting and band.settings.share_min and band.credit > 0:
                yield from band.heads()
        for band in bands:
            if band.waiting and not (band.settings.share_min and band.credit > 0):
                yield from band.heads()

    # -- deadlines --------------------------------------------------------------------------------

    def settle_in(self) -> None:
        """Watch the deadlines of those who came since the last time and had to stay."""
        for ticket in self._fresh:
            if ticket.phase is QUEUED:
                self._sequence += 1
                heapq.heappush(self._deadlines, (ticket.queue_deadline, self._sequence, ticket))
        self._fresh.clear()
        if len(self._deadlines) > 2 * self.waiting + 64:
            self._deadlines[:] = [entry for entry in self._deadlines if entry[2].phase is QUEUED]
            heapq.heapify(self._deadlines)
        self.earliest = self._deadlines[0][0] if self._deadlines else NEVER

    def _rest(self) -> None:
        """Nobody waits any more."""
        self.earliest = self.opens_at = NEVER
        self._fresh.clear()
        self._deadlines.clear()

    def next_deadline(self) -> float | None:
        """The earliest instant at which a waiting ticket's patience ends."""
        if self._fresh:
            self.settle_in()
        while self._deadlines and self._deadlines[0][2].phase is not QUEUED:
            heapq.heappop(self._deadlines)
        self.earliest = self._deadlines[0][0] if self._deadlines else NEVER
        return self.earliest if self._deadlines else None

    def overdue(self, now: float) -> Ticket | None:
        """The waiting ticket whose patience ended first, if any; it stays until `remove`."""
        deadline = self.next_deadline()
        return self._deadlines[0][2] if deadline is not None and deadline <= now else None

    def all(self) -> list[Ticket]:
        """Everybody who waits."""
        return [ticket for band in self._bands.values() for ticket in band.all()]

    def _band(self, name: str) -> tuple[Band, float]:
        """The band, and the part of the queue that it may fill."""
        if name not in self._bands:
            self._bands[name] = Band(BandSettings(name))  # its band has left the settings
        rank = list(self._bands).index(name) if len(self._bands) > 1 else 0
        return self._bands[name], max(HOLDBACK_MAX, 1 - HOLDBACK * rank)
