"""A straight line learned as it goes: how long something takes, from what it took before.

Recursive least squares of the logarithm: a reading counts by how many times it is off, be it of milliseconds
or of minutes. What is learned are the logarithms of the line's two parameters, so neither falls below nought.
An outlier counts less the further it is off (Huber, 1964). Knowledge fades by a drift that each reading adds,
as in a Kalman filter of a random walk: where nothing is seen, it fades slowly, and to no less than there was
at first.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log

UNKNOWN = 10.0
"""Variance of a parameter of which nothing is known, in that of a reading: the first one is believed."""
MEMORY = 200
"""About so many readings are remembered."""
DRIFT = MEMORY**-2
CLIP = 0.5
"""A reading that is further off, in logarithms, counts less."""
OFF_MAX = 3.0
"""The most that a reading may be off: a stall of an hour says no more than one of minutes."""
LEAST, MOST = 1e-7, 100.0
"""Bounds of both parameters, in seconds: less than any machine takes for anything, and more."""


@dataclass(slots=True)  # made seldom, set all the time
class Line:
    """`base + slope * x` seconds, from a guess of both.

    `told` counts the readings, `error` is how far predictions were off lately: the mean |log(thought / seen)|
    of about as many as are remembered.
    """

    base: float
    slope: float
    told: int = 0
    error: float = 0.0
    base_variance: float = UNKNOWN
    slope_variance: float = UNKNOWN
    covariance: float = 0.0

    def at(self, x: float) -> float:
        """What is to be expected."""
        return self.base + self.slope * x

    def doubt(self) -> None:
        """What was learned is old: the next reading is believed like the first."""
        self.base_variance = self.slope_variance = UNKNOWN
        self.covariance = 0.0

    def learn(self, x: float, seen: float) -> None:
        """At `x`, not below nought, it was so much, above it."""
        base, slope, covariance = self.base, self.slope, self.covariance
        thought = base + slope * x
        off = log(seen / thought)
        if not -OFF_MAX < off < OFF_MAX:
            off = OFF_MAX if off > 0 else -OFF_MAX
        away = off if off > 0 else -off
        self.told = told = self.told + 1
        if told > MEMORY:  # noqa: PLR1730 - a call takes ten times as long
            told = MEMORY
        self.error += (away - self.error) / told
        # How much of the prediction each parameter is: the gradient of its logarithm by theirs.
        base_part = base / thought
        slope_part = 1.0 - base_part
        base_gain = self.base_variance * base_part + covariance * slope_part
        slope_gain = covariance * base_part + self.slope_variance * slope_part
        noise = away / CLIP if away > CLIP else 1.0
        whole = noise + base_part * base_gain + slope_part * slope_gain
        base *= exp(off * base_gain / whole)
        slope *= exp(off * slope_gain / whole)
        # Nearly always within their bounds, so that they need not be put there.
        self.base = base if LEAST < base < MOST else min(MOST, max(LEAST, base))
        self.slope = slope if LEAST < slope < MOST else min(MOST, max(LEAST, slope))
        drift = DRIFT * noise  # one outlier changes little, many in a row say that it is another line now
        self.base_variance = variance = self.base_variance - base_gain * base_gain / whole + drift
        if variance > UNKNOWN:
            self.base_variance = UNKNOWN
        self.slope_variance = variance = self.slope_variance - slope_gain * slope_gain / whole + drift
        if variance > UNKNOWN:
            self.slope_variance = UNKNOWN
        self.covariance = covariance - base_gain * slope_gain / whole
