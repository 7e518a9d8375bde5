"""Which endpoint gets the next leg, by the policy of its pool. And whether there is room or hope of one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial

from maitred.core.homes import homes
from maitred.core.profiles import RECIPES, asks_for_prefixes, profile
from maitred.core.recipe import Recipe
from maitred.core.saturation import SATURATION
from maitred.core.words import Endpoint, EndpointState, PoolSettings, Ticket

READY = EndpointState.READY

Choose = Callable[[Collection[Endpoint], Ticket, PoolSettings, float], Endpoint | None]
"""A policy: of these endpoints, by these settings and now, the one for this ticket; None has room."""


def least_loaded(
    endpoints: Iterable[Endpoint], ticket: Ticket, limits: PoolSettings, now: float
) -> Endpoint | None:
    """The ready endpoint with room and the fewest running legs, of equals the one served longest ago.

    Endpoints that already failed this ticket, or have not its adapter, are left out. One that is on its slow
    start, or much slower than its peers, counts as fuller than it is. None: nothing has room.
    """
    best: Endpoint | None = None
    least = 0.0
    excluded, adapter = ticket.excluded, ticket.request.adapter
    full = SATURATION[limits.saturation]
    for endpoint in endpoints:
        if endpoint.state is not READY or (excluded and endpoint.name in excluded):
            continue
        if (adapter and adapter not in endpoint.facts.adapters) or full(endpoint, ticket, limits, now):
            continue
        burden = (endpoint.running + 1.0) * endpoint.slowness
        if endpoint.share < 1.0:
            burden /= endpoint.share
        if best is None or burden < least or (burden == least and endpoint.turn < best.turn):
            best, least = endpoint, burden
    return best


def round_robin(
    endpoints: Iterable[Endpoint], ticket: Ticket, limits: PoolSettings, now: float
) -> Endpoint | None:
    """The ready endpoint with room that was served longest ago, whatever it has to do."""
    having_room = [endpoint for endpoint in endpoints if least_loaded((endpoint,), ticket, limits, now)]
    return min(having_room, key=lambda endpoint: endpoint.turn, default=None)


class Policies(dict[str | Recipe, Choose]):
    """Policies by name; a recipe is made into its policy."""

    @property
    def names(self) -> list[str]:
        """Those that have a name."""
        return [name for name in self if isinstance(name, str)]

    def __missing__(self, recipe: str | Recipe) -> Choose:
        """The policy of a recipe. Raises KeyError for a name that is not there."""
        if isinstance(recipe, str):
            raise KeyError(recipe)
        return profile(recipe)


ROUTING = Policies({"default": homes, "least-requests": least_loaded, "round-robin": round_robin})
"""The policies by name."""
ROUTING |= {name: profile(recipe) for name, recipe in RECIPES.items()}


def policy(limits: PoolSettings) -> Choose:
    """The policy of a pool: its own among the endpoints of our zone, and where none of these will do, all."""
    choose = ROUTING[limits.routing]
    return partial(_nearest, choose) if limits.zone else choose


def _nearest(
    choose: Choose, endpoints: Collection[Endpoint], ticket: Ticket, limits: PoolSettings, now: float
) -> Endpoint | None:
    near = nearby(endpoints, limits)
    return choose(near, ticket, limits, now) or choose(endpoints, ticket, limits, now)


def nearby(endpoints: Iterable[Endpoint], limits: PoolSettings) -> list[Endpoint]:
    """Those of our zone, and those of none."""
    return [endpoint for endpoint in endpoints if endpoint.zone in ("", limits.zone)]


BLIND = {"least-requests", "round-robin"}


class Prefixed:
    """Policies that ask for what is cached where: all but those of which it is known that they do not."""

    def __contains__(self, routing: str | Recipe) -> bool:
        """Whether this one does, by its name or its recipe."""
        recipe = RECIPES.get(routing) if isinstance(routing, str) else routing
        return asks_for_prefixes(recipe) if recipe is not None else routing not in BLIND


PREFIXED = Prefixed()


def ready(endpoints: Iterable[Endpoint], adapter: str = "") -> bool:
    """Whether any is ready, for this adapter."""
    for endpoint in endpoints:  # no `any`: asked for every request, and the first is ready nearly always
        if endpoint.state is READY and (not adapter or adapter in endpoint.facts.adapters):
            return True
    return False


def awaited(endpoints: Iterable[Endpoint]) -> bool:
    """Whether one is new and has not failed yet: worth a wait where all addresses of a pool have changed."""
    return any(endpoint.state is EndpointState.PROBING and not endpoint.why for endpoint in endpoints)


def may_hope(endpoints: Iterable[Endpoint], ticket: Ticket, but: str | None = None) -> bool:
    """Whether one of these, full or not, may still have this ticket; `but` this one.

    A retry hopes for one that is ready; a first try with an adapter for any that has it loaded.
    """
    excluded, adapter = ticket.excluded, ticket.request.adapter
    return any(
        (endpoint.state is READY or not (excluded or but))
        and endpoint.name not in excluded
        and endpoint.name != but
        and (not adapter or adapter in endpoint.facts.adapters)
        for endpoint in endpoints
    )
