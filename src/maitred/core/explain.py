"""Receipts: the policy is asked once more, with the same arguments, and tells what it saw.

Policies are pure, so asking twice changes nothing, and who wants no receipt pays for none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import attrgetter

from maitred.core.candidates import candidate, candidates
from maitred.core.chooser import ROUTING, Choose, least_loaded, nearby, round_robin
from maitred.core.homes import homes, homes_seen
from maitred.core.profiles import Profile
from maitred.core.receipt import CANDIDATES_MAX, Candidate, Receipt
from maitred.core.recipe import Recipe
from maitred.core.scorers import burden
from maitred.core.words import Endpoint, PoolSettings, Ticket

Explain = Callable[[Sequence[Endpoint], Ticket, PoolSettings, float], list[Candidate]]


def _by(value: Callable[[Endpoint], float]) -> Explain:
    """Of a policy that compares nothing but this."""

    def explain(
        endpoints: Sequence[Endpoint], ticket: Ticket, limits: PoolSettings, now: float
    ) -> list[Candidate]:
        return candidates(endpoints, ticket, limits, now, lambda endpoint: (value(endpoint), {}))

    return explain


EXPLAIN: dict[Choose, tuple[str, Explain]] = {
    homes: ("cost", homes_seen),
    least_loaded: ("requests", _by(burden)),
    round_robin: ("turn", _by(attrgetter("turn"))),
}
"""What a policy compares, and what it saw of each endpoint."""


def receipt(
    ticket: Ticket,
    chosen: Endpoint,
    offered: Sequence[Endpoint],
    endpoints: Sequence[Endpoint],
    index: tuple[str, str],
    limits: PoolSettings,
    now: float,
    *,
    explored: bool = False,
) -> Receipt:
    """Why this one of those `offered` was chosen; the rest of `endpoints` is kept for others.

    `explored`: not by the policy, but to see whether it is still as slow as it was.

    `index`: how it is known what is cached there, and the reason. Ask before the ticket has its seat.
    """
    asked = nearby(offered, limits) if limits.zone else offered
    if chosen not in asked:  # none of these would do
        asked = offered
    measure, rows = _explained(limits.routing, asked, ticket, limits, now)
    rows += [candidate(each, ticket, now, "zone") for each in offered if each not in asked]
    if offered is not endpoints:
        rows += [candidate(each, ticket, now, "kept") for each in endpoints if each not in offered]
    sign = -1 if measure == "score" else 1
    first = (chosen.name, ticket.home)
    rows.sort(
        key=lambda row: (
            first.index(row.endpoint) if row.endpoint in first else len(first),
            row.why_not != "",
            math.inf if row.value is None else sign * row.value,
        )
    )
    policy = limits.routing if isinstance(limits.routing, str) else "composed"
    return Receipt(
        policy="exploration" if explored else policy,
        measure=measure,
        endpoint=chosen.name,
        home=ticket.home,
        index=index[0],
        index_why=index[1],
        attempt=ticket.attempts + 1,
        wait_s=now - ticket.arrival,
        prompt_tokens=ticket.prompt_tokens,
        candidates=tuple(rows[:CANDIDATES_MAX]),
        left_off=max(0, len(rows) - CANDIDATES_MAX),
    )


def _explained(
    routing: str | Recipe, endpoints: Sequence[Endpoint], ticket: Ticket, limits: PoolSettings, now: float
) -> tuple[str, list[Candidate]]:
    """What its policy compares, and what it saw; of one from outside only what all policies are given."""
    policy = ROUTING[routing]
    if isinstance(policy, Profile):
        return "score", policy.explain(endpoints, ticket, limits, now)
    measure, explain = EXPLAIN.get(policy, ("", candidates))
    return measure, explain(endpoints, ticket, limits, now)
