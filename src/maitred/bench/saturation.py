"""Whether a server gets more than it can do: requests in flight and the time to first token both keep rising.

In an open loop beyond capacity no figure means anything, for each grows with the length of the run. Two lines
are fitted over the last minutes, as GuideLLM does. Values one after another hang together, so that a test of
the slope alone finds a trend in any queue that breathes. Here the requests in flight must have grown by more
than they would by chance in a queue that is just in balance: a random walk, whose variance is about two a
request, one for its arrival and one for its end (the heavy traffic limit, Kingman 1962).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from statistics import linear_regression

from msgspec import Struct

from maitred.bench.load import Progress
from maitred.bench.shot import Run

BEAT_S = 1.0
PERIOD_S = 6.0
PERIODS_MIN = 5
PERIODS_MAX = 50
TTFT_MIN_S = 2.5
"""While first tokens come within this, nobody waits for long."""
GROWTH_MIN = 1.5
"""Each line must end so many times higher than it began, at least."""
DEVIATIONS_MIN = 3.0
"""By so many standard deviations of the balanced queue the requests in flight must have grown."""


class _Period(Struct):
    """What was seen in some seconds: sums, and how many values they are of."""

    number: int
    in_flight: int = 0
    beats: int = 0
    ttft_s: float = 0.0
    firsts: int = 0


class Saturation:
    """Told what happens, in order of time, it knows at any moment whether the server is over-saturated."""

    def __init__(self) -> None:
        """Nothing was seen yet."""
        self._periods: deque[_Period] = deque(maxlen=PERIODS_MAX)

    def beat(self, at: float, in_flight: int) -> None:
        """So many requests are in flight; to be told at a steady pace, once a second say."""
        period = self._period(at)
        period.in_flight += in_flight
        period.beats += 1

    def first(self, at: float, ttft_s: float) -> None:
        """A first token came."""
        period = self._period(at)
        period.ttft_s += ttft_s
        period.firsts += 1

    def saturated(self) -> bool:
        """Whether both rise, by the periods that are over: not before half a minute has passed."""
        over = list(self._periods)[:-1]
        in_flight = [(p.number, p.in_flight / p.beats) for p in over if p.beats]
        ttfts_s = [(p.number, p.ttft_s / p.firsts) for p in over if p.firsts]
        if min(len(in_flight), len(ttfts_s)) < PERIODS_MIN or ttfts_s[-1][1] < TTFT_MIN_S:
            return False
        chance = math.sqrt(2 * sum(p.firsts for p in over))
        return _rises(in_flight, DEVIATIONS_MIN * chance) and _rises(ttfts_s, 0.0)

    def _period(self, at: float) -> _Period:
        number = int(at // PERIOD_S)
        if not self._periods or self._periods[-1].number < number:
            self._periods.append(_Period(number))
        return self._periods[-1]


class Lookout:
    """Watches a load by how it stands, for as long as it sends: `until_s` from its begin.

    TTFTs are told when their requests are over: later than they came, which is good enough for a trend.
    """

    def __init__(self, until_s: float) -> None:
        self.overloaded = False
        self._until_s = until_s
        self._state = Saturation()
        self._told_at = 0.0

    def look(self, progress: Progress) -> bool:
        """Whether the server gets more than it can do. Once that was so, it stays so."""
        at = progress.at
        if not self.overloaded and self._told_at + BEAT_S <= at < self._until_s:
            for over_at, ttft_s in progress.recent:
                if self._told_at < over_at + BEAT_S <= at:  # a beat later, for workers are not heard at once
                    self._state.first(over_at, ttft_s)
            self._state.beat(at, progress.in_flight)
            self._told_at = at
            self.overloaded = self._state.saturated()
        return self.overloaded


def saturated_at(run: Run) -> float | None:
    """When a run was first seen to over-saturate its server, in seconds from its begin; None: never.

    Only the time counts in which requests were still being sent; afterwards everything falls.
    """
    state, in_flight = Saturation(), 0
    ends_at = max((shot.sent_at for shot in run.shots), default=0.0)
    beats = [(float(second), 0, None) for second in range(int(ends_at) + 1)]
    sent = [(shot.sent_at, 1, None) for shot in run.shots]
    over = [(shot.over_at, -1, None) for shot in run.shots]
    firsts = [(shot.first_at, 0, shot.ttft_s) for shot in run.shots if shot.first_at is not None]
    for at, change, ttft_s in sorted([*beats, *sent, *over, *firsts], key=lambda event: event[0]):
        in_flight += change
        if ttft_s is not None:
            state.first(at, ttft_s)
        elif not change:
            state.beat(at, in_flight)
            if state.saturated():
                return at
    return None


def _rises(points: Sequence[tuple[float, float]], growth: float) -> bool:
    """Whether a line through these points rises by more than this, and by a good part."""
    slope, intercept = linear_regression(*zip(*points, strict=True))
    began, ended = (intercept + slope * x for x in (points[0][0], points[-1][0]))
    return ended - began > growth and ended >= GROWTH_MIN * began
