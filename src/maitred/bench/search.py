"""The search for goodput: the highest rate at which enough requests are within the SLO.

It doubles the rate until it does not hold, then halves the bracket until that is 10 % wide. A probe is a run
at one rate, its verdict that of an exact binomial test, so that too few requests decide nothing. An undecided
rate is probed again, and all that was sent there counts together. What is still undecided then steers the
search by how it looks; at the end, the probes that are left go to the two ends of the bracket. A probe that
over-saturates the server needs no test: the longer it runs, the fewer of its requests are in time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from maitred.bench.statistics import judge, needed, wilson

WIDTH = 1.1
"""The bracket is narrow enough when its upper end is at most so many times its lower end."""
HALVINGS_MAX = 6
"""A rate this many times halved from the start, and failing, ends the search: nothing is served in time."""
KNEE_POINTS_MIN = 5
KNEE_DISTANCE_MIN = 0.15

Said = Literal["yes", "no", "unresolved"]


class Probe(Struct, frozen=True):
    """All that was sent at one rate (`Run.rates_of` per second), in so many runs, and what that says.

    `said`: whether the attainment is kept. `independent`: how many independent requests they are worth.
    `low` and `high`: Wilson's interval of the share of good requests. `overloaded`: a run was cut short, for
    the server got more than it can do, and that alone says no.
    """

    rate: float
    runs: int
    attempted: int
    good: int
    independent: int
    low: float
    high: float
    said: Said
    overloaded: bool = False


class Found(Struct, frozen=True):
    """What the search knows; rates are per second, None where no probe said so.

    `attainment`: the share that must be good; `confidence` of each yes, and of each no.
    `holds`: the highest rate shown to keep the attainment; `fails`: the lowest shown not to.
    `resolved`: these two are within 10 % of each other. `knee`: from this rate on, more requests bring little
    more goodput, or less. `probes` in order of their rates.
    """

    holds: float | None
    fails: float | None
    resolved: bool
    knee: float | None
    probes: list[Probe]
    attainment: float
    confidence: float


class Search:
    """Asks for one rate after another, and is told what came of each."""

    def __init__(
        self, start_rate: float, attainment: float = 0.95, confidence: float = 0.95, probes_max: int = 15
    ) -> None:
        """`attainment`: the share that must be good; `confidence` of each yes, and of each no."""
        self.requests_min = needed(0, attainment, confidence)
        """A probe of fewer requests can never say yes; four times as many stand a few that are not good."""
        self._start_rate = start_rate
        self._attainment = attainment
        self._confidence = confidence
        self._left = probes_max
        self._probes: dict[float, Probe] = {}

    def next_rate(self) -> float | None:
        """The rate to probe next; None when the search is over. Asking twice changes nothing."""
        if not self._left:
            return None
        again = next((p.rate for p in self._probes.values() if p.said == "unresolved" and p.runs == 1), None)
        if again:
            return again
        low, high = self._bracket()
        if high is None:
            return self._start_rate if low is None else low * 2
        if low is None:
            return high / 2 if high > self._start_rate / 2**HALVINGS_MAX else None
        if high > WIDTH * low:
            return (low + high) / 2
        return next((end for end in (low, high) if self._probes[end].said == "unresolved"), None)

    def told(
        self,
        rate: float,
        attempted: int,
        good: int,
        independent: int | None = None,
        *,
        overloaded: bool = False,
    ) -> Probe:
        """What a run at the rate asked for came to: requests attempted, not only completed, and the good.

        `independent`: how many they are worth, see `statistics.independent`; None: all of them.
        `overloaded`: it was cut short, for in the long run no request would be in time.
        """
        runs, worth = 1, attempted if independent is None else independent
        if earlier := self._probes.get(rate):
            attempted, good = attempted + earlier.attempted, good + earlier.good
            runs, worth = earlier.runs + 1, earlier.independent + worth
            overloaded = overloaded or earlier.overloaded
        misses = (attempted - good) * worth / attempted if attempted else 0.0
        low, high = wilson(worth - misses, worth)
        said: Said = "no" if overloaded else self._says(worth, misses)
        probe = Probe(rate, runs, attempted, good, worth, low, high, said, overloaded)
        self._probes[rate] = probe
        self._left -= 1
        return probe

    def found(self) -> Found:
        """What is known by now."""
        probes = sorted(self._probes.values(), key=lambda probe: probe.rate)
        holding = max((p.rate for p in probes if p.said == "yes"), default=None)
        failing = min((p.rate for p in probes if p.said == "no"), default=None)
        return Found(
            holds=holding,
            fails=failing,
            resolved=holding is not None and failing is not None and failing <= WIDTH * holding,
            knee=knee([(p.rate, p.rate * p.good / p.attempted) for p in probes if p.attempted]),
            probes=probes,
            attainment=self._attainment,
            confidence=self._confidence,
        )

    def _says(self, requests: int, misses: float) -> Said:
        keeps = judge(requests, misses, self._attainment, self._confidence)
        return "unresolved" if keeps is None else "yes" if keeps else "no"

    def _bracket(self) -> tuple[float | None, float | None]:
        """The highest rate that holds, and the lowest that fails, as far as it looks."""
        low = max((p.rate for p in self._probes.values() if self._looks_good(p)), default=None)
        high = min((p.rate for p in self._probes.values() if not self._looks_good(p)), default=None)
        return low, high

    def _looks_good(self, probe: Probe) -> bool:
        if probe.said == "unresolved":
            return probe.good > 0 and probe.good >= self._attainment * probe.attempted
        return probe.said == "yes"


def knee(points: Sequence[tuple[float, float]]) -> float | None:
    """The load at which what comes of it stops growing with it; None where it has no such place.

    `points`: load and result, in order of the load. The knee is where the curve is farthest above its chord,
    both scaled to 0..1 (Kneedle: Satopää et al., ICDCS Workshops 2011), and that by more than noise.
    """
    if len(points) < KNEE_POINTS_MIN:
        return None
    loads, results = zip(*points, strict=True)
    least, load_span, result_span = min(results), loads[-1] - loads[0], max(results) - min(results)
    if not load_span or not result_span:
        return None
    distance, load = max(
        ((result - least) / result_span - (load - loads[0]) / load_span, load) for load, result in points
    )
    return load if distance >= KNEE_DISTANCE_MIN else None
