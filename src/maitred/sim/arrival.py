"""What a workload sends and what became of it: the words between workloads, the fleet and the reports."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from msgspec import Struct

from maitred.core.outcome import Outcome
from maitred.sim.job import Segments


class Arrival(Struct, eq=False):
    """One request on its way to the door.

    `prompt` is its text as pieces, `answer` the id of the piece that its answer will be, of `output_tokens`
    tokens. `conversation` (0: none) and `turn` say where it belongs, `stage` in which part of the workload it
    was sent; reports leave a `warm_up` out. `patience_s`: its client leaves if it is not over by then.
    """

    number: int
    at: float
    model: str
    prompt: Segments
    prompt_tokens: int
    output_tokens: int
    answer: int
    tenant: str = "anonymous"
    band: str = ""
    adapter: str = ""
    stream: bool = True
    conversation: int = 0
    turn: int = 0
    stage: int = 0
    patience_s: float | None = None
    warm_up: bool = False


class Record(Struct, eq=False):
    """What became of an arrival; times in seconds, None where it never came to that.

    `over_at` is an instant; `ttft_s` counts from the arrival. `tokens` of the answer reached the client.
    `preemptions`: how often its engines took its place away again.
    """

    arrival: Arrival
    outcome: Outcome
    over_at: float
    queue_s: float | None = None
    ttft_s: float | None = None
    tokens: int = 0
    cached_tokens: int = 0
    attempts: int = 0
    endpoint: str = ""
    preemptions: int = 0


class Workload(Protocol):
    """Where arrivals come from. What it sends next may depend on what became of what it sent."""

    def begin(self, at: float) -> Iterable[Arrival]:
        """The first arrivals, at or after this instant, in order of time."""

    def over(self, arrival: Arrival, at: float) -> Iterable[Arrival]:
        """One is over (answered, refused, left): what comes because of it, at or after this instant."""
