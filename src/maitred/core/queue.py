"""Where tickets wait: one bounded first-come queue per pool.

Tickets that failed somewhere may not sit there again, and adapters are not loaded everywhere, so a queue
has lanes: those of one lane may sit at the same endpoints, and when its first fits nowhere none of it does.
A retry keeps its arrival and its deadline, and so its place before everybody who came later. Bounds count
what waits, never what is seated, and return to zero by themselves because every way out passes `remove`.
"""

from __future__ import annotations

import heapq

from maitred.core.words import Phase, PoolSettings, Ticket

NEVER = float("inf")


class PoolQueue:
    """First come, first served; `waiting` tickets and their `body_bytes` are bounded.

    Most tickets find nobody before them and are seated at once: such a one is `_alone`, and lines up in a
    lane only if it has to stay or is joined. Who had to stay gets an entry in `_deadlines`, a heap whose
    entries die with the wait and are swept out when they outnumber the living. `earliest` is never later
    than the first deadline of a waiting ticket.
    """

    __slots__ = ("_alone", "_deadlines", "_fresh", "_lanes", "_sequence", "body_bytes", "earliest", "waiting")

    def __init__(self) -> None:
        self._alone: Ticket | None = None
        self._lanes: dict[tuple[str, ...], dict[int, Ticket]] = {(): {}}
        self._fresh: list[Ticket] = []
        self._deadlines: list[tuple[float, int, Ticket]] = []
        self._sequence = 0
        self.waiting = 0
        self.body_bytes = 0
        self.earliest = NEVER

    def full(self, body_bytes: int, limits: PoolSettings) -> bool:
        """Whether one more body of this size would pass a bound."""
        return (
            self.waiting >= limits.queue_requests_max or self.body_bytes + body_bytes > limits.queue_bytes_max
        )

    def behind(self, ticket: Ticket) -> bool:
        """Whether others wait in its lane already."""
        if self._alone is not None:
            return self._alone.lane == ticket.lane
        return bool(self._lanes.get(ticket.lane))

    def push(self, ticket: Ticket) -> None:
        """Let a ticket wait, behind all of its lane that arrived before it."""
        if not self.waiting:
            self._alone = ticket
        else:
            self._line_up(self._alone)
            self._line_up(ticket)
        self.waiting += 1
        self.body_bytes += ticket.request.body_bytes
        self.earliest = min(self.earliest, ticket.queue_deadline)

    def _line_up(self, ticket: Ticket | None) -> None:
        self._alone = None
        if ticket is None:
            return
        lane = self._lanes.setdefault(ticket.lane, {})
        late = bool(lane) and next(reversed(lane.values())).arrival > ticket.arrival
        lane[id(ticket)] = ticket
        if late:
            by_arrival = sorted(lane.items(), key=lambda entry: entry[1].arrival)
            self._lanes[ticket.lane] = dict(by_arrival)
        self._fresh.append(ticket)

    def remove(self, ticket: Ticket) -> None:
        """Take a waiting ticket out, whatever the reason."""
        if ticket is self._alone:
            self._alone = None
        else:
            lane = self._lanes[ticket.lane]
            del lane[id(ticket)]
            if not lane and ticket.lane:
                del self._lanes[ticket.lane]
        self.waiting -= 1
        self.body_bytes -= ticket.request.body_bytes

    def heads(self) -> list[Ticket]:
        """The first ticket of each lane, in order of arrival; of equals the one that has tried before."""
        if self._alone is not None:
            return [self._alone]
        heads = [next(iter(lane.values())) for lane in self._lanes.values() if lane]
        if len(heads) > 1:
            heads.sort(key=lambda ticket: (ticket.arrival, -ticket.attempts))
        return heads

    def settle(self) -> None:
        """Watch the deadlines of those who came since the last time and had to stay."""
        if not self.waiting:
            self.earliest = NEVER
            if self._deadlines or self._fresh:
                self._fresh.clear()
                self._deadlines.clear()
            return
        self._line_up(self._alone)
        for ticket in self._fresh:
            if ticket.phase is Phase.QUEUED:
                self._sequence += 1
                heapq.heappush(self._deadlines, (ticket.queue_deadline, self._sequence, ticket))
        self._fresh.clear()
        if len(self._deadlines) > 2 * self.waiting + 64:
            self._deadlines = [entry for entry in self._deadlines if entry[2].phase is Phase.QUEUED]
            heapq.heapify(self._deadlines)
        self.earliest = self._deadlines[0][0] if self._deadlines else NEVER

    def next_deadline(self) -> float | None:
        """The earliest instant at which a waiting ticket's patience ends."""
        if self._fresh or self._alone is not None:
            self.settle()
        while self._deadlines and self._deadlines[0][2].phase is not Phase.QUEUED:
            heapq.heappop(self._deadlines)
        self.earliest = self._deadlines[0][0] if self._deadlines else NEVER
        return self.earliest if self._deadlines else None

    def overdue(self, now: float) -> Ticket | None:
        """The waiting ticket whose patience ended first, if any; it stays until `remove`."""
        deadline = self.next_deadline()
        return self._deadlines[0][2] if deadline is not None and deadline <= now else None

    def all(self) -> list[Ticket]:
        """Everybody who waits."""
        self._line_up(self._alone)
        return [ticket for lane in self._lanes.values() for ticket in lane.values()]
