"""Who is next within a band: start-time fair queueing over tenants, paid in tokens.

Each tenant that waits has a flow with a tag: how much service it has had, over its weight. The least tag is
next; serving moves it on by what the request is thought to cost, and at its end by what it did cost. A
newcomer starts at the band's clock: it is owed nothing for the time it was not here, and owes nothing. The
clock is the tag of who was served last, and moves on with what is served, by the part that each has of it:
else those who come anew without end would keep behind them whoever was served once. (P. Goyal et al.,
Start-time Fair Queuing, 1996; in tokens: Y. Sheng et al., Fairness in Serving Large Language Models, 2024.)
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator

from maitred.core.predict import Pace
from maitred.core.words import BandSettings, PoolSettings, Ticket

OUTPUT_WEIGHT = 2.0
"""An output token costs as much as two of the prompt (the weights of Sheng et al.)."""
CREDIT_MAX = 1_000_000.0
"""Bound of what a band with a guaranteed share can be owed, in tokens."""
FLOWS_KEPT = 1024
"""Flows remembered although nobody of theirs waits, because they have had more than others."""
LOOK = 8
"""So many flows are looked at past the one that is next and fits nowhere."""

Entry = tuple[float, int, int, Ticket, "Flow"]
"""Place in a lane: what the order goes by, tries (more of them first), number, who it is, of which flow."""


def cost_of(prompt_tokens: float, output_tokens: float) -> float:
    """What a request costs its tenant, in tokens of the prompt."""
    return prompt_tokens + OUTPUT_WEIGHT * output_tokens


FAIRNESS: dict[str, Callable[[float], float]] = {
    "token": lambda cost: cost,
    "round-robin": lambda _cost: 1.0,
    "strict": lambda _cost: 0.0,
}
"""What being served counts, by policy. `strict`: tenants are not told apart at all."""
ORDER: dict[str, Callable[[Ticket], float]] = {
    "fcfs": lambda ticket: ticket.arrival,
    "deadline": lambda ticket: ticket.due_at,
}
"""What the order within a flow goes by."""


class Flow:
    """One tenant's tickets in one band, in lanes: those of one may sit at the same endpoints and have one
    home.
    """

    __slots__ = ("lanes", "number", "tag", "waiting", "weight")

    def __init__(self, number: int) -> None:
        self.number = number
        self.lanes: dict[tuple[str, tuple[str, ...]], list[Entry]] = {}
        self.tag = 0.0
        self.weight = 1.0
        self.waiting = 0

    def heads(self) -> list[Ticket]:
        """The first of each lane, in order."""
        if len(self.lanes) == 1:
            return [lane[0][3] for lane in self.lanes.values()]
        return [entry[3] for entry in sorted(lane[0] for lane in self.lanes.values())]


class Band:
    """The flows of one priority class in one pool.

    `weight` is that of all flows in which somebody waits. `credit`: tokens that it is owed by its guaranteed
    share. `_turns` is a heap of tags; an entry that is not its flow's tag any more is dead.
    """

    __slots__ = (
        "_flows", "_numbers", "_places", "_turns", "clock", "credit", "pace", "settings", "waiting", "weight",
    )  # fmt: skip

    def __init__(self, settings: BandSettings) -> None:
        self.settings = settings
        self._flows: dict[str, Flow] = {}
        self._places: dict[int, Entry] = {}
        self._turns: list[tuple[float, int, Flow]] = []
        self._numbers = 0
        self.clock = self.credit = self.weight = 0.0
        self.pace = Pace()
        self.waiting = 0

    def flow_of(self, ticket: Ticket, limits: PoolSettings) -> Flow | None:
        """The ticket's flow, if anybody of it was here lately."""
        return self._flows.get("" if limits.fairness == "strict" else ticket.identity.tenant)

    def push(self, ticket: Ticket, limits: PoolSettings) -> None:
        """Let a ticket wait."""
        flow = self.flow_of(ticket, limits)
        self._numbers += 1
        if flow is None:
            flow = Flow(self._numbers)
            self._flows["" if limits.fairness == "strict" else ticket.identity.tenant] = flow
        if not self.waiting:
            self.pace.begin(None if ticket.attempts else ticket.arrival)
        if not flow.waiting:
            flow.tag, flow.weight = max(flow.tag, self.clock), ticket.weight
            self.weight += flow.weight
            self._line_up(flow)
        elif flow.weight != ticket.weight:  # the settings have another by now
            self.weight += ticket.weight - flow.weight
            flow.weight = ticket.weight
        entry = (ORDER[limits.order](ticket), -ticket.attempts, self._numbers, ticket, flow)
        insort(flow.lanes.setdefault((ticket.home, ticket.lane), []), entry)
        self._places[id(ticket)] = entry
        flow.waiting += 1
        self.waiting += 1

    def remove(self, ticket: Ticket) -> Flow:
        """Take a waiting ticket out, whatever the reason; its flow."""
        entry = self._places.pop(id(ticket))
        flow = entry[4]
        kind = ticket.home, ticket.lane
        lane = flow.lanes[kind]
        del lane[bisect_left(lane, entry)]
        if not lane:
            del flow.lanes[kind]
        flow.waiting -= 1
        self.waiting -= 1
        if not flow.waiting:
            self.weight = self.weight - flow.weight if self.waiting else 0.0
            if len(self._flows) > 2 * len(self._turns) + FLOWS_KEPT:
                self._forget()
        if not self.waiting:  # nobody to be fair to
            self._flows.clear()
            self._turns.clear()
        return flow

    def serve(self, flow: Flow, service: float) -> None:
        """It is the flow's turn."""
        before = flow.tag
        self.charge(flow, service)
        part = service / (self.weight + flow.weight)
        self.clock = max(self.clock, before, min(self.clock + part, flow.tag))

    def charge(self, flow: Flow, service: float) -> None:
        """Count service to a flow: when it is its turn, and again when it is known what that cost."""
        if not service:  # its turn in the heap stands
            return
        flow.tag += service / flow.weight
        if flow.waiting:
            self._line_up(flow)

    def heads(self) -> Iterator[Ticket]:
        """Who may be next, in order: the first of each lane of each flow, of LOOK flows after the first."""
        looked: list[tuple[float, int, Flow]] = []
        try:
            while self._turns and len(looked) <= LOOK:
                turn = heapq.heappop(self._turns)
                flow = turn[2]
                if not flow.waiting or turn[0] != flow.tag:
                    continue
                looked.append(turn)
                yield from flow.heads()
        finally:
            for turn in looked:
                if turn[2].waiting and turn[0] == turn[2].tag:
                    heapq.heappush(self._turns, turn)

    def newest(self) -> Iterator[Ticket]:
        """Everybody who waits and has not been seated yet, who came last first."""
        return (entry[3] for entry in reversed(self._places.values()) if not entry[3].attempts)

    def all(self) -> list[Ticket]:
        """Everybody who waits."""
        return [entry[3] for entry in self._places.values()]

    def _line_up(self, flow: Flow) -> None:
        heapq.heappush(self._turns, (flow.tag, flow.number, flow))
        if len(self._turns) > 4 * len(self._flows) + 64:
            # In place: a large new list would be young, and so walked by the collector time and again.
            self._turns[:] = [(flow.tag, flow.number, flow) for flow in self._flows.values() if flow.waiting]
            heapq.heapify(self._turns)

    def _forget(self) -> None:
        """Those who have had no more than whoever is next would start at the clock again anyway."""
        ahead = [(name, flow) for name, flow in self._flows.items() if flow.waiting or flow.tag > self.clock]
        self._flows = dict(ahead if len(ahead) <= 2 * FLOWS_KEPT else [e for e in ahead if e[1].waiting])
