"""What is said of single engines of a model: where one is, and how fast it will be."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from maitred.config.kinds import ENDPOINT, NUMBER, TEXT
from maitred.config.setting import Setting
from maitred.core.words import Place


class Engine(Struct, frozen=True):
    """One endpoint that is other than the rest, or elsewhere."""

    endpoint: Annotated[str, Setting("endpoint", ENDPOINT, "Which one, by its URL.")]
    prefill_rate: Annotated[
        int | None, Setting("prefill_rate", NUMBER, "Its own `prefill_rate`.", "the model's")
    ] = None
    zone: Annotated[
        str | None,
        Setting("zone", TEXT, "Where it is: with `zone`, endpoints of the same are used first.", "anywhere"),
    ] = None

    def core(self) -> Place:
        """The same for the core."""
        return Place(self.zone or "", float(self.prefill_rate or 0))
