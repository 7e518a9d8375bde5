"""When requests are sent: stages of a rate, or of users who wait for their answers.

A stage of a rate sends exactly rate x duration requests, as load generators do, so that runs can be compared
by counts. Within the stage they stand as the pattern says; Poisson arrivals of a known number are gaps with
an exponential distribution, stretched to fill the stage.
"""

from __future__ import annotations

import math
from itertools import accumulate
from random import Random
from typing import Annotated

from msgspec import Struct, structs

from maitred.config.kinds import GRACE, NUMBER, SWITCH, TIMEOUT, Kind, choice
from maitred.config.setting import Forms, Listed, Setting
from maitred.sim.kinds import FACTOR, RATE

REQUESTS_MAX = 1_000_000
"""Of one stage."""
CV_MAX = 20.0
"""Beyond this, gaps drawn from a gamma distribution are nearly all zero."""


class Constant(Struct, frozen=True):
    """Evenly apart."""

    def places(self, count: int, _rng: Random) -> list[float]:
        """Where `count` arrivals stand in the stage, in order: 0 is its begin, 1 its end."""
        return [number / count for number in range(count)]


class Gamma(Struct, frozen=True):
    """Gaps with a gamma distribution; a `cv` of 1 is Poisson, above it arrivals come in clusters."""

    cv: Annotated[float, Setting("cv", FACTOR, "Coefficient of variation of the gaps.")]

    def __post_init__(self) -> None:
        """ValueError where `cv` is out of range."""
        if self.cv > CV_MAX:
            raise ValueError(f"cv {self.cv:g} is too large; write at most {CV_MAX:g}")

    def places(self, count: int, rng: Random) -> list[float]:
        """Where `count` arrivals stand in the stage, in order: 0 is its begin, 1 its end."""
        shape = 1 / self.cv**2
        *sums, total = accumulate(rng.gammavariate(shape, 1.0) for _ in range(count + 1))
        if not total:  # all gaps are too small for a float; one of them is nearly the whole, whichever
            whole = rng.randrange(count + 1)
            return [float(number >= whole) for number in range(count)]
        return [place / total for place in sums]


class Bursts(Struct, frozen=True):
    """So many at once, and the bursts evenly apart."""

    burst: Annotated[int, Setting("burst", NUMBER, "Requests that come at once.")]

    def places(self, count: int, _rng: Random) -> list[float]:
        """Where `count` arrivals stand in the stage, in order: 0 is its begin, 1 its end."""
        return [number // self.burst * self.burst / count for number in range(count)]


Pattern = Constant | Gamma | Bursts

_BY_NAME: dict[str, Pattern] = {"poisson": Gamma(1.0), "constant": Constant()}
_NAME = choice(*_BY_NAME)
_NAMED = Kind(
    lambda text: _BY_NAME[_NAME.parse(text)],
    lambda pattern: next(name for name, known in _BY_NAME.items() if known == pattern),
    _NAME.schema,
    _NAME.example,
)


class RateStage(Struct, frozen=True):
    """Requests at a rate, whether answers come or not. `rate_to` is always filled in."""

    rate: Annotated[float, Setting("rate", RATE, "Requests, or conversations, begun per second.")]
    duration_s: Annotated[float, Setting("duration", TIMEOUT, "How long.")]
    rate_to: Annotated[float, Setting("to", RATE, "The rate at the end, when it changes.", "`rate`")] = 0.0
    warm_up: Annotated[bool, Setting("warm_up", SWITCH, "Whether reports leave this stage out.")] = False

    def __post_init__(self) -> None:
        """ValueError where the stage sends nothing, or more than anybody waits for."""
        if not self.rate_to:
            structs.force_setattr(self, "rate_to", self.rate)
        if not 1 <= self.count(1.0) <= REQUESTS_MAX:
            raise ValueError(f"rate x duration must be 1 to {REQUESTS_MAX:,} requests")

    def count(self, share: float) -> int:
        """Requests of a class that has this share of the rate."""
        return round(share * self.duration_s * (self.rate + self.rate_to) / 2)

    def offsets(self, pattern: Pattern, share: float, rng: Random) -> list[float]:
        """When the requests of such a class begin, in seconds from the begin of the stage, in order."""
        places = pattern.places(self.count(share), rng)
        low, high = self.rate, self.rate_to
        if low == high:
            return [place * self.duration_s for place in places]
        # A place is the part of all requests sent by then; the rate at that moment follows from its square.
        per_rate_s = self.duration_s / (high - low)
        return [(math.sqrt(low**2 + place * (high**2 - low**2)) - low) * per_rate_s for place in places]


class UserStage(Struct, frozen=True):
    """Users who each wait for their answer, think, and ask again, until the time is up."""

    users: Annotated[int, Setting("users", NUMBER, "How many.")]
    duration_s: Annotated[float, Setting("duration", TIMEOUT, "How long they begin anything new.")]
    think_s: Annotated[float, Setting("think", GRACE, "From an answer to the next request.")] = 0.0
    warm_up: Annotated[bool, Setting("warm_up", SWITCH, "Whether reports leave this stage out.")] = False

    def __post_init__(self) -> None:
        """ValueError where there are too many."""
        if self.users > REQUESTS_MAX:
            raise ValueError(f"users must be 1 to {REQUESTS_MAX:,}")

    def count(self, share: float) -> int:
        """Users of a class that has this share of them."""
        return round(share * self.users)

    def offsets(self, _pattern: Pattern, share: float, rng: Random) -> list[float]:
        """When those users ask first, in seconds from the begin of the stage, in order: not all at once."""
        within_s = min(self.think_s, self.duration_s)
        return sorted(rng.random() * within_s for _ in range(self.count(share)))


Stage = RateStage | UserStage


class Between(Struct, frozen=True):
    """What happens between two stages."""

    drain: Annotated[bool, Setting("drain", SWITCH, "Wait until everything sent is over.")] = False
    pause_s: Annotated[float, Setting("pause", GRACE, "Then wait this long.")] = 0.0


class Arrivals(Struct, frozen=True):
    """Stages, one after another."""

    stages: Annotated[
        tuple[Stage, ...],
        Setting(
            "stages",
            Listed(
                Forms(
                    (RateStage, UserStage),
                    "{rate: 15/s, duration: 50s} or {users: 50, think: 5s, duration: 10m}",
                ),
                length_min=1,
            ),
            "One after another.",
        ),
    ]
    pattern: Annotated[
        Pattern,
        Setting(
            "pattern",
            Forms((_NAMED, Gamma, Bursts), "poisson, constant, {cv: 3} or {burst: 20}"),
            "How the requests of a rate are spread.",
            "`poisson`",
        ),
    ] = _BY_NAME["poisson"]
    between: Annotated[Between, Setting("between", Between)] = Between()
    begin_s: Annotated[float, Setting("begin", GRACE, "When the first stage begins.")] = 0.0
