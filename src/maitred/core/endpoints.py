"""The endpoint table: which engines there are and whether they may be given work.

An endpoint's life is one table of moves; anything not in it is no move. What drives it:

    ANSWERED   a probe was answered properly      SILENT   a probe or a connect got nothing usable
    FAILING    it failed too many requests in a row
    REMOVED    the address left the set           LISTED   the address is (again) in the set
    HELD       the operator drains it             LET_IN   and lets it in again
    EMPTY      a draining endpoint's last leg is over

Only READY is given work. A return from EJECTED is a new incarnation: the engine may have been restarted,
so nothing learned of the old one holds. An endpoint that the operator holds drains, but stays in the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto

from msgspec import structs

from maitred.core.words import Endpoint, EndpointState, Facts

CLOCK_S = 1.0
"""Start times this close are the same: some engines compute theirs anew each time."""

PROBING, READY, EJECTED, DRAINING, GONE = EndpointState


class Sign(Enum):
    """What can happen to an endpoint."""

    ANSWERED = auto()
    SILENT = auto()
    FAILING = auto()
    REMOVED = auto()
    LISTED = auto()
    HELD = auto()
    LET_IN = auto()
    EMPTY = auto()


MOVES: dict[tuple[EndpointState, Sign], EndpointState] = {
    (PROBING, Sign.ANSWERED): READY,
    (PROBING, Sign.REMOVED): DRAINING,
    (PROBING, Sign.HELD): DRAINING,
    (READY, Sign.SILENT): EJECTED,
    (READY, Sign.FAILING): EJECTED,
    (READY, Sign.REMOVED): DRAINING,
    (READY, Sign.HELD): DRAINING,
    (EJECTED, Sign.ANSWERED): READY,
    (EJECTED, Sign.REMOVED): DRAINING,
    (EJECTED, Sign.HELD): DRAINING,
    (DRAINING, Sign.LISTED): PROBING,
    (DRAINING, Sign.LET_IN): PROBING,
    (DRAINING, Sign.EMPTY): GONE,
}


class EndpointTable:
    """All endpoints by name and by pool, in the order in which they were listed."""

    __slots__ = ("by_name", "by_pool")

    def __init__(self) -> None:
        self.by_name: dict[str, Endpoint] = {}
        self.by_pool: dict[str, list[Endpoint]] = {}

    def move(self, endpoint: Endpoint, sign: Sign, why: str = "") -> EndpointState | None:
        """Apply one sign; the state before it, or None where the table knows no move."""
        before = endpoint.state
        after = MOVES.get((before, sign))
        if after is None:
            return None
        endpoint.state, endpoint.why = after, why
        if (before, after) == (EJECTED, READY):
            endpoint.incarnation += 1
        if after is GONE:
            del self.by_name[endpoint.name]
            pool = self.by_pool[endpoint.pool]
            pool.remove(endpoint)
            if not pool:
                del self.by_pool[endpoint.pool]
        return before

    def replace(self, pools: dict[str, tuple[str, ...]]) -> Iterator[tuple[Endpoint, Sign | None]]:
        """Make the table hold exactly these addresses; yields each with its sign, None for a new one."""
        wanted = {name_of(pool, url): (pool, url) for pool, urls in pools.items() for url in urls}
        for name, endpoint in list(self.by_name.items()):
            endpoint.listed = name in wanted
            if not endpoint.listed:
                endpoint.held = False
                yield endpoint, Sign.REMOVED
                continue
            if wanted[name][1] != endpoint.url:  # the same address by another scheme
                endpoint.url = wanted[name][1]
                endpoint.incarnation += 1
            if not endpoint.held:
                yield endpoint, Sign.LISTED
        for name, (pool, url) in wanted.items():
            if name not in self.by_name:
                self.by_name[name] = endpoint = Endpoint(name=name, pool=pool, url=url)
                self.by_pool.setdefault(pool, []).append(endpoint)
                yield endpoint, None

    def learn(self, endpoint: Endpoint, facts: Facts) -> bool:
        """Remember what a probe told. True: another process or model answers there, a new incarnation.

        What it does not tell this time is still so, as long as it is the same engine.
        """
        known = endpoint.facts
        changed = bool(known.model) and facts.model != known.model
        if known.started_at is not None and facts.started_at is not None:
            changed = changed or facts.started_at > known.started_at + CLOCK_S
        if changed:
            endpoint.incarnation += 1
            endpoint.load = None
            endpoint.facts = facts
        else:
            told = structs.asdict(facts)
            silent = [name for name, value in told.items() if value is None or value == ""]
            endpoint.facts = structs.replace(facts, **{name: getattr(known, name) for name in silent})
        return changed


def name_of(pool: str, url: str) -> str:
    """The stable name of an address: "pool/host:port"."""
    return f"{pool}/{url.partition('://')[2]}"
