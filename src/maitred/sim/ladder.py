"""A ladder of rates against two yardsticks: what a fleet gives, and what no routing could better.

*oracle*: each prefix group has its own endpoint for ever, groups dealt out evenly. It needs to know the
groups beforehand, which no gateway does. *bound*: the same, with caches that never fill.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, structs

from maitred.config.tree import Config, Model
from maitred.sim.arrival import Arrival, Workload
from maitred.sim.profile import Profile
from maitred.sim.summary import StageRow, Summary, ladder

ORACLE, BOUND = "oracle", "bound"
"""Names of the yardsticks."""

FROM_RATE = 40
"""The mean over a ladder is taken from this rate on: below it, the published fleet had room."""
ENDLESS_TOKENS = 1 << 28
"""No run fills a cache of so many tokens."""


class Ladder(Struct, frozen=True):
    """What `--json` prints of a ladder. Rates in tokens/s as clients count them, means over seeds.

    The mean is None where no rate is that high.
    """

    peak_output_tokens_per_s: float
    mean_output_tokens_per_s_from_40: float | None
    oracle_peak_output_tokens_per_s: float
    oracle_mean_output_tokens_per_s_from_40: float | None
    bound_output_tokens_per_s: float
    stages: Sequence[StageRow]


class Partitioned:
    """A workload each of whose prefix groups goes to one endpoint's own pool."""

    def __init__(self, inner: Workload, endpoints: Mapping[str, int]) -> None:
        self._inner = inner
        self._endpoints = endpoints
        self._homes: dict[tuple[str, int], int] = {}
        self._next: dict[str, int] = {}

    def begin(self, at: float) -> Iterable[Arrival]:
        """See Workload."""
        return map(self._sent_home, self._inner.begin(at))

    def over(self, arrival: Arrival, at: float) -> Iterable[Arrival]:
        """See Workload."""
        return map(self._sent_home, self._inner.over(arrival, at))

    def _sent_home(self, arrival: Arrival) -> Arrival:
        model, group = arrival.model, arrival.prompt[0][0]
        home = self._homes.get((model, group))
        if home is None:
            home = self._next.get(model, 0)
            self._homes[model, group] = home
            self._next[model] = (home + 1) % self._endpoints[model]
        arrival.model = home_name(model, home)
        return arrival


def home_name(model: str, home: int) -> str:
    """The pool of one endpoint of a model."""
    return f"{model} at {home}"


def partitioned(config: Config) -> Config:
    """A pool of its own for each endpoint. Raises TypeError where endpoints are not listed."""
    models: list[Model] = []
    for model in config.models:
        if not isinstance(model.endpoints, tuple):
            raise TypeError(f"{model.name}: its endpoints are not listed")
        models += [
            structs.replace(model, name=home_name(model.name, home), endpoints=(url,))
            for home, url in enumerate(model.endpoints)
        ]
    return structs.replace(config, models=tuple(models))


def endless(profile: Profile) -> Profile:
    """The same engine with a cache that never fills."""
    return structs.replace(profile, kv_blocks=ENDLESS_TOKENS // profile.block_tokens)


def measure(summary: Summary, oracle: Summary, bound: Summary, rates: Mapping[int, float]) -> Ladder:
    """The ladder of one configuration beside its yardsticks."""
    rows, best, most = (ladder(one, rates) for one in (summary, oracle, bound))
    return Ladder(
        _peak(rows), _mean(rows), _peak(best), _mean(best), _peak(most), rows
    )  # fmt: skip


def _peak(rows: Sequence[StageRow]) -> float:
    return max(row.output_tokens_per_s for row in rows)


def _mean(rows: Sequence[StageRow]) -> float | None:
    from_rate = [row.output_tokens_per_s for row in rows if row.rate >= FROM_RATE]
    return sum(from_rate) / len(from_rate) if from_rate else None
