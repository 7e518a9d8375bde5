"""How the endpoint of a request is chosen: the name of a policy, or what it is put together from."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from maitred.config.kinds import Kind
from maitred.config.setting import Chosen, Forms, Listed, Setting
from maitred.config.units import quote
from maitred.core.chooser import ROUTING
from maitred.core.filters import FILTERS
from maitred.core.pickers import PICKERS
from maitred.core.recipe import MAX_SCORE, Piece, Recipe
from maitred.core.scorers import SCORERS


def parse_policy(text: str) -> str:
    """The name of a policy, of those there are when it is read: some may have come from outside."""
    if text not in ROUTING:
        raise ValueError(f"{quote(text)} is not known; write {' or '.join(ROUTING.names)}")
    return text


POLICY = Kind(parse_policy, str, {"type": "string", "examples": ROUTING.names}, "least-requests")


class Composition(Struct, frozen=True):
    """A policy put together from pieces."""

    filters: Annotated[
        tuple[Piece, ...],
        Setting(
            "filters",
            Listed(Chosen(FILTERS)),
            "Which endpoints may have a request; each leaves some of what the one before it left. `room` is "
            "the first unless it is named.",
        ),
    ] = ()
    scorers: Annotated[
        tuple[Piece, ...],
        Setting(
            "scorers",
            Listed(Chosen(SCORERS, weighted=True)),
            "What speaks for each of those left: scores of 0 to 1, added by their `weight`.",
        ),
    ] = ()
    picker: Annotated[Piece, Setting("picker", Chosen(PICKERS), "Who of them gets it, by these sums.")] = (
        MAX_SCORE
    )

    def core(self) -> Recipe:
        """The same for the core."""
        return Recipe(self.filters, self.scorers, self.picker)


ROUTING_FORMS = Forms((POLICY, Composition), "a policy's name, or filters, scorers and a picker", nested=True)
