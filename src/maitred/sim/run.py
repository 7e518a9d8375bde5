"""A finished run, as the fleet hands it over: what became of every request, and how the endpoints fared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from maitred.config.tree import Slo
from maitred.sim.arrival import Record

SAMPLES_MAX = 2000


class EndpointUse(Struct, frozen=True):
    """What one endpoint did: `busy_s` is the time in which its engine ran steps.

    Tokens are the engine's own count, so what was computed again after a preemption or a retry counts again.
    """

    name: str
    profile: str
    busy_s: float
    requests: int
    output_tokens: int
    prompt_tokens: int
    cached_tokens: int
    preemptions: int


class Sample(Struct, frozen=True):
    """One look at the fleet: `waiting` in the gateway's queues, `running` at the engines.

    `kv_use` is the mean use of the KV caches, 0 to 1.
    """

    at: float
    waiting: int
    running: int
    kv_use: float


class Samples:
    """Samples in order of time, fewer than SAMPLES_MAX however long the run: when full, each second goes."""

    __slots__ = ("_every", "_seen", "kept")

    def __init__(self) -> None:
        self.kept: list[Sample] = []
        self._seen = 0
        self._every = 1

    def add(self, sample: Sample) -> None:
        """Keep this one, if its turn is."""
        if self._seen % self._every == 0:
            self.kept.append(sample)
        self._seen += 1
        if len(self.kept) == SAMPLES_MAX:
            del self.kept[1::2]
            self._every *= 2


class Run(Struct, frozen=True):
    """One configuration under one seed. Instants in seconds of the run's own time; `slos` by model."""

    name: str
    seed: int
    records: Sequence[Record]
    endpoints: Sequence[EndpointUse]
    samples: Sequence[Sample]
    began_at: float
    ended_at: float
    slos: Mapping[str, Slo] = {}
