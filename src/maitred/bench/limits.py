"""Whether the p99 is within the SLO, which is another question than what the p99 is, and needs other counts.

MLPerf's early stopping at 99 %: 459 requests without a miss show that it is, 662 with one, and so on
(`statistics.needed`). Whoever was not served in full is over every limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from msgspec import Struct

from maitred.bench.shot import Ending, Run, Shot
from maitred.bench.statistics import SECTION_REQUESTS_MIN, SECTIONS, independent, judge, needed

SHARE = 0.99
SLOW = 0.9
REQUESTS_MIN = SECTIONS * SECTION_REQUESTS_MIN
"""Of fewer nobody knows whether they hang together, and one stall of a server makes several late."""


class Limit(Struct, frozen=True):
    """One limit in seconds, and whether the p99 is within it.

    `over`: how many of the requests took longer, or were not served. `independent`: how many independent
    requests they are worth. `more`: where it cannot be told yet, so many more would show that the p99 is
    within, if none of them were over.
    """

    limit_s: float
    requests: int
    over: int
    independent: int
    said: Literal["yes", "no", "cannot tell yet"]
    more: int = 0


def limits(shots: Sequence[Shot], run: Run) -> dict[str, Limit]:
    """By `ttft_s` and `tpot_s`, as far as the SLO has these limits and answers show these times."""
    return dict(_limits(shots, run))


def _limits(shots: Sequence[Shot], run: Run) -> Iterator[tuple[str, Limit]]:
    times: tuple[tuple[str, float | None, Callable[[Shot], float | None]], ...] = (
        ("ttft_s", run.slo_ttft_s, lambda shot: shot.ttft_s),
        ("tpot_s", run.slo_tpot_s, lambda shot: shot.tpot_s),
    )
    for name, limit_s, time in times:
        taken_s = [time(shot) if shot.ending is Ending.COMPLETED else math.inf for shot in shots]
        known_s = [time_s for time_s in taken_s if time_s is not None]
        shown = math.inf > min(known_s, default=math.inf) or len(known_s) == len(shots)
        if limit_s is not None and known_s and shown:
            yield name, _limit(limit_s, known_s)


def _limit(limit_s: float, taken_s: Sequence[float]) -> Limit:
    """`taken_s`: of each request in order of time, infinite where it was not served."""
    requests = len(taken_s)
    over = [time_s > limit_s for time_s in taken_s]
    worths = min(independent(over), _slowest(taken_s))
    misses = sum(over) * worths / requests
    within = judge(worths, misses, SHARE) if requests >= REQUESTS_MIN else None
    if within is not None:
        return Limit(limit_s, requests, sum(over), worths, "yes" if within else "no")
    more = (needed(math.ceil(misses), SHARE) - worths) * requests / worths
    return Limit(limit_s, requests, sum(over), worths, "cannot tell yet", math.ceil(more))


def worth(hits: Sequence[bool], taken_s: Sequence[float]) -> int:
    """How many independent requests these are worth, in order of time, each with what it took in seconds.

    Where none was missed, as many as there are.
    """
    return len(hits) if all(hits) else min(independent(hits), _slowest(taken_s))


def _slowest(taken_s: Sequence[float]) -> int:
    """The same by the slowest tenth: few misses cannot show whether requests hang together."""
    slow_s = sorted(taken_s)[int(SLOW * len(taken_s))]
    return independent([time_s >= slow_s for time_s in taken_s])
