"""What `maitred simulate` and `maitred twin` put behind the endpoints. `maitred serve` reads over it."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from maitred.config.kinds import ENDPOINT, GRACE, NUMBER, TEXT, TIMEOUT, choice
from maitred.config.setting import Listed, Setting

FAULTS = ("crash", "hang", "slow", "cut", "mute", "add", "remove")


class Engine(Struct, frozen=True):
    """One endpoint that is another engine than the rest."""

    endpoint: Annotated[str, Setting("endpoint", ENDPOINT, "Which one, as `models` names it.")]
    profile: Annotated[str, Setting("profile", TEXT, "What stands there.")]


class Fault(Struct, frozen=True):
    """Something that happens to an endpoint in the middle of a run."""

    at_s: Annotated[float, Setting("at", GRACE, "When, from the beginning of the run.")]
    endpoint: Annotated[str, Setting("endpoint", ENDPOINT, "To whom, as `models` names it.")]
    fault: Annotated[
        str,
        Setting(
            "fault",
            choice(*FAULTS),
            "What: the process dies and starts again, takes requests and tells nothing, is slow, cannot be "
            "reached, its metrics cannot be read; or the endpoint is added or taken out only then.",
        ),
    ]
    for_s: Annotated[
        float | None,
        Setting("for", TIMEOUT, "How long; a dead engine takes its profile's cold start.", "to the end"),
    ] = None
    factor: Annotated[int, Setting("factor", NUMBER, "How many times slower a slow one is.")] = 3


class Simulate(Struct, frozen=True):
    """What stands behind the endpoints when there are no real engines."""

    profile: Annotated[
        str | None,
        Setting("profile", TEXT, "The engine at every endpoint.", "none"),
    ] = None
    engines: Annotated[
        tuple[Engine, ...], Setting("engines", Listed(Engine), "Endpoints that are other engines.")
    ] = ()
    network_s: Annotated[
        float, Setting("network", GRACE, "What the way from client to engine and back adds to each answer.")
    ] = 0.0
    faults: Annotated[tuple[Fault, ...], Setting("faults", Listed(Fault), "What goes wrong, and when.")] = ()
