"""How long a text is, in tokens: always the same, or drawn from a distribution.

Every distribution has an upper end (`tokens_max`), so that what fits no engine is known before a run.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import pairwise
from random import Random
from statistics import NormalDist
from typing import Annotated

from msgspec import Struct, structs

from maitred.config.kinds import NUMBER, Kind
from maitred.config.setting import Forms, Listed, Setting
from maitred.sim.kinds import SHARE

TAIL = 4
"""Where a lognormal length is cut unless told: at so many times its 95th percentile."""

_Z95 = NormalDist().inv_cdf(0.95)


class Fixed(Struct, frozen=True):
    """Always `tokens_max`."""

    tokens_max: int

    def draw(self, _rng: Random) -> int:
        """The length."""
        return self.tokens_max


class Uniform(Struct, frozen=True):
    """Every length between two is as likely."""

    tokens_min: Annotated[int, Setting("min", NUMBER, "The shortest.")]
    tokens_max: Annotated[int, Setting("max", NUMBER, "The longest.")]

    def __post_init__(self) -> None:
        """ValueError where the two ends are not in order."""
        if self.tokens_min > self.tokens_max:
            raise ValueError(f"min {self.tokens_min} is above max {self.tokens_max}; exchange them")

    def draw(self, rng: Random) -> int:
        """A length."""
        return rng.randint(self.tokens_min, self.tokens_max)


class Lognormal(Struct, frozen=True):
    """Lognormal, by two figures that a dashboard shows. `tokens_max` is always filled in."""

    median: Annotated[int, Setting("median", NUMBER, "Half are shorter.")]
    p95: Annotated[int, Setting("p95", NUMBER, "Of a hundred, 95 are shorter.")]
    tokens_max: Annotated[int, Setting("max", NUMBER, "Longer ones are cut to this.", f"{TAIL} x `p95`")] = 0

    def __post_init__(self) -> None:
        """ValueError where the figures are not in order."""
        if not self.tokens_max:
            structs.force_setattr(self, "tokens_max", TAIL * self.p95)
        if not self.median < self.p95 <= self.tokens_max:
            raise ValueError("median must be below p95, and p95 not above max")

    def draw(self, rng: Random) -> int:
        """A length."""
        mu = math.log(self.median)
        sigma = (math.log(self.p95) - mu) / _Z95
        return max(1, min(self.tokens_max, round(rng.lognormvariate(mu, sigma))))


class Point(Struct, frozen=True):
    """One point of a distribution: this share of all texts has at most so many tokens."""

    tokens: Annotated[int, Setting("tokens", NUMBER, "So many at most")]
    share: Annotated[float, Setting("share", SHARE, "has this share of all.")]


class Cdf(Struct, frozen=True):
    """A measured distribution, by points; between two it is a straight line."""

    points: Annotated[
        tuple[Point, ...],
        Setting("cdf", Listed(Point, length_min=1), "Points in rising order, the last at 100%."),
    ]

    def __post_init__(self) -> None:
        """ValueError where the points make no distribution."""
        if any(a.tokens >= b.tokens or a.share > b.share for a, b in pairwise(self.points)):
            raise ValueError("cdf must rise: each point with more tokens and no smaller share than the last")
        if self.points[-1].share != 1:
            raise ValueError("cdf must end with share: 100%")

    @property
    def tokens_max(self) -> int:
        """The longest."""
        return self.points[-1].tokens

    def draw(self, rng: Random) -> int:
        """A length."""
        share = rng.random()
        index = bisect_left(self.points, share, key=lambda point: point.share)
        above = self.points[index]
        below = self.points[index - 1] if index else Point(0, 0.0)
        part = (share - below.share) / (above.share - below.share) if above.share > below.share else 1.0
        return max(1, round(below.tokens + part * (above.tokens - below.tokens)))


Length = Fixed | Uniform | Lognormal | Cdf

_FIXED = Kind(
    lambda text: Fixed(NUMBER.parse(text)), lambda length: length.tokens_max, NUMBER.schema, NUMBER.example
)
LENGTH = Forms(
    (_FIXED, Uniform, Lognormal, Cdf),
    "a number of tokens, {min: 100, max: 2k}, {median: 350, p95: 700} or {cdf: [{tokens: 4k, share: 100%}]}",
)
