"""Where tickets wait: one bounded first-come queue per pool.

A retry goes back to the head with its first deadline. Bounds count what waits, never what is seated, and
return to zero by themselves because every way out passes `remove`.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from itertools import islice

from maitred.core.words import PoolSettings, Ticket

NEVER = float("inf")
LOOK_PAST = 8
"""So many tickets behind a head that fits nowhere may be seated before it: it failed at the endpoint that has
room, and whatever else frees is offered to it first."""


class PoolQueue:
    """First come, first served; the number of tickets and `body_bytes` are bounded.

    `tickets` holds every ticket in order of service. Most are seated at once; only one that had to stay
    gets an entry in `_deadlines`, a heap whose entries die with the ticket's place and are swept out when
    they outnumber the living. `earliest` is never later than the first deadline of a waiting ticket.
    """

    __slots__ = (
        "_deadlines",
        "_fresh",
        "_sequence",
        "body_bytes",
        "earliest",
        "tickets",
    )

    def __init__(self) -> None:
        self.tickets: OrderedDict[int, Ticket] = OrderedDict()
        self._fresh: list[Ticket] = []
        self._deadlines: list[tuple[float, int, Ticket]] = []
        self._sequence = 0
        self.body_bytes = 0
        self.earliest = NEVER

    def full(self, body_bytes: int, limits: PoolSettings) -> bool:
        """Whether one more body of this size would pass a bound."""
        return (
            len(self.tickets) >= limits.queue_requests_max
            or self.body_bytes + body_bytes > limits.queue_bytes_max
        )

    def push(self, ticket: Ticket, *, front: bool = False) -> None:
        """Let a ticket wait, at the tail, or at the head when it comes back from a failed seat."""
        self.tickets[id(ticket)] = ticket
        self._fresh.append(ticket)
        self.body_bytes += ticket.request.body_bytes
        self.earliest = min(self.earliest, ticket.queue_deadline)
        if front:
            self.tickets.move_to_end(id(ticket), last=False)

    def settle(self) -> None:
        """Watch the deadlines of those who came since the last time and had to stay."""
        for ticket in self._fresh:
            if id(ticket) in self.tickets:
                self._sequence += 1
                heapq.heappush(self._deadlines, (ticket.queue_deadline, self._sequence, ticket))
        self._fresh.clear()
        if len(self._deadlines) > 2 * len(self.tickets) + 64:
            self._deadlines = [entry for entry in self._deadlines if id(entry[2]) in self.tickets]
            heapq.heapify(self._deadlines)
        self.earliest = self._deadlines[0][0] if self._deadlines else NEVER

    def remove(self, ticket: Ticket) -> None:
        """Take a ticket out, whatever the reason; nothing happens when it does not wait."""
        if self.tickets.pop(id(ticket), None) is not None:
            self.body_bytes -= ticket.request.body_bytes

    def candidates(self) -> list[Ticket]:
        """Tickets that may be seated now, in order: the head and a few behind it."""
        return list(islice(self.tickets.values(), 1 + LOOK_PAST))

    def next_deadline(self) -> float | None:
        """The earliest instant at which a waiting ticket's patience ends."""
        if self._fresh:
            self.settle()
        while self._deadlines and id(self._deadlines[0][2]) not in self.tickets:
            heapq.heappop(self._deadlines)
        self.earliest = self._deadlines[0][0] if self._deadlines else NEVER
        return self.earliest if self._deadlines else None

    def overdue(self, now: float) -> Ticket | None:
        """The waiting ticket whose patience ended first, if any; it stays until `remove`."""
        deadline = self.next_deadline()
        return self._deadlines[0][2] if deadline is not None and deadline <= now else None
