"""Which model names the house serves, and where: the menu that the door reads from.

Names come from the configuration, or from the engines themselves when only their addresses were given.
Nothing else ever becomes a metric label or goes upstream.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct


class Route(Struct, frozen=True):
    """One name a client may say, and the pool that answers.

    `served_as` is the name its engines know where that is another, to be put into requests and back in
    answers; None where it is the same.
    """

    name: str
    pool: str
    served_as: str | None = None


class Models:
    """The served names. Replaced as a whole by `serve`; cards are what an engine says of its model."""

    def __init__(self, routes: Iterable[Route] = ()) -> None:
        self._routes: dict[str, Route] = {}
        self._cards: dict[str, dict[str, Any]] = {}
        self.serve(routes)

    def serve(self, routes: Iterable[Route]) -> None:
        """From now on serve exactly these names."""
        self._routes = {route.name: route for route in routes}

    @property
    def known(self) -> bool:
        """Whether any name is served yet; false until the first engine tells its models."""
        return bool(self._routes)

    def find(self, name: str) -> Route | None:
        """The route of a name; None when the house does not serve it."""
        return self._routes.get(name)

    def learn(self, pool: str, card: dict[str, Any]) -> None:
        """Keep what an engine of this pool says of its model: one entry of its /v1/models."""
        self._cards[pool] = card

    def entries(self) -> list[tuple[str, dict[str, Any]]]:
        """Every served name with its engine's card ({} while no engine has answered)."""
        return [(route.name, self._cards.get(route.pool, {})) for route in self._routes.values()]
