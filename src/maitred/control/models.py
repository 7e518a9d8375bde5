"""Which model names the house serves, and where: the menu that the door reads from.

Names come from the configuration, or from the engines themselves when only their addresses were given; LoRA
adapters always come from the engines that have them loaded. Nothing else ever becomes a metric label or goes
upstream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct, structs

from maitred.core.words import Endpoint, EndpointState
from maitred.wire.prefix import root
from maitred.wire.salt import Salter

READY = EndpointState.READY
CUTS_ITSELF = "llamacpp"
"""The engine that ends an answer where its context is full, whatever was asked for."""


class TokenLimits(Struct, frozen=True):
    """How long it may be, in tokens; 0 is no bound.

    `context`: prompt and answer together. `output`: an answer; `output_default`: one of unsaid length.
    `bounds`: one of these two is set.
    """

    context: int = 0
    output: int = 0
    output_default: int = 0
    bounds: bool = False

    def __post_init__(self) -> None:
        structs.force_setattr(self, "bounds", self.output > 0 or self.output_default > 0)


UNBOUNDED = TokenLimits()


class Route(Struct, frozen=True):
    """One name a client may say, and the pool that answers.

    `served_as` is the name its engines know where that is another, to be put into requests and back in
    answers; None where it is the same. `adapter`: the LoRA adapter of that name, "" for a model. `limits`
    are what the operator and the engines set. `keyed`: its prompts are known by keys. `salter` makes the
    salts that keep its tenants' caches apart, None where they share one. `native`: its engines are asked for
    responses by their own Responses API. `root` is what keys begin with where there is no salt. `edits`:
    every request is changed.
    """

    name: str
    pool: str
    served_as: str | None = None
    adapter: str = ""
    limits: TokenLimits = UNBOUNDED
    keyed: bool = True
    salter: Salter | None = None
    native: bool = False
    root: int = 0
    edits: bool = False

    def __post_init__(self) -> None:
        structs.force_setattr(self, "root", root(self.pool, self.adapter))
        structs.force_setattr(self, "edits", self.served_as is not None or self.salter is not None)

    def open_to(self, names: tuple[str, ...]) -> bool:
        """Whether who may use these models, () for all, may use this one.

        A model's own name opens its other names too; an adapter must be named itself.
        """
        return not names or self.name in names or (not self.adapter and self.pool in names)


def longest_context(endpoints: Iterable[Endpoint]) -> int:
    """The longest context a ready one has; 0 where one does not tell, or would take a longer request."""
    longest = 0
    for endpoint in endpoints:
        if endpoint.state is READY:
            tokens = endpoint.facts.context_tokens
            if not tokens or endpoint.facts.engine == CUTS_ITSELF:
                return 0
            longest = max(longest, tokens)
    return longest


class Models:
    """The served names. Replaced as a whole by `serve`; cards are what an engine says of its model.

    `find` gives the route of a name; None when the house does not serve it.
    """

    def __init__(self, routes: Iterable[Route] = ()) -> None:
        self._routes: dict[str, Route] = {}
        self._cards: dict[str, dict[str, Any]] = {}
        self._only: Route | None = None
        self.find: Callable[[str], Route | None]
        self.serve(routes)

    def serve(self, routes: Iterable[Route]) -> None:
        """From now on serve exactly these names; of two alike the first counts."""
        self._routes = {}
        for route in routes:
            self._routes.setdefault(route.name, route)
        self.find = self._routes.get
        pools = {route.pool for route in self._routes.values()}
        named = (route for route in self._routes.values() if not route.adapter)
        self._only = next(named, None) if len(pools) == 1 else None

    @property
    def known(self) -> bool:
        """Whether any name is served yet; false until the first engine tells its models."""
        return bool(self._routes)

    @property
    def only(self) -> Route | None:
        """The one model of a house that serves no other: what is meant where none is named."""
        return self._only

    def learn(self, pool: str, card: dict[str, Any]) -> None:
        """Keep what an engine of this pool says of its model: one entry of its /v1/models."""
        self._cards[pool] = card

    def entries(self, names: tuple[str, ...] = ()) -> list[tuple[str, dict[str, Any]]]:
        """Every name that is open to who may use `names`, with its engine's card ({} before any answered)."""
        return [(route.name, self._card(route)) for route in self._routes.values() if route.open_to(names)]

    def _card(self, route: Route) -> dict[str, Any]:
        card = self._cards.get(route.pool, {})
        return {**card, "parent": route.pool} if route.adapter else card
