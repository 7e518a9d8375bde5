"""What is to be expected, learned as requests end: lengths, waits, and how often a repeat helps.

Each number is one float that moves with what is seen; nothing here grows with the number of requests.
"""

from __future__ import annotations

import math

OUTPUT_GUESS = 256.0
"""Tokens of an answer of which nothing is known."""
QUANTILE, STEP = 0.75, 0.1
"""Three answers of four are no longer than predicted; the step is that of the logarithm."""
PREDICTED_MAX = 4096
"""Tenants (each with each model) whose answers are remembered; the oldest are forgotten."""
MODELS_MAX = 1024
"""Names of one pool, aliases and adapters, whose answers are told apart."""
UP, DOWN = math.exp(STEP * QUANTILE), math.exp(STEP * (QUANTILE - 1))
RATIO_WEIGHT = 0.05
WINDOW_S = 10.0
RETRY_SHARE, RETRY_FLOOR = 0.1, 10
"""Repeats after an error answer: a tenth of the requests of the last ten seconds or so, and some more."""
SEATS_MIN = 3.0
FADE_MIN = 0.8
"""A slow queue is known by its last five seats or so, however long ago they were."""
MEMORY_S = 10.0
"""Time constant of the pace at which a queue moves."""


class Outputs(dict[str, float]):
    """How many tokens a model's next answer gets, by tenant: an online quantile of each.

    By stochastic approximation (Robbins and Monro, 1951) of the logarithm: up by QUANTILE of a step when an
    answer was longer than predicted, down by the rest when it was not. Those of a new tenant are thought to
    be like those of all.
    """

    __slots__ = ("_of_all",)

    def __init__(self) -> None:
        super().__init__()
        self._of_all = OUTPUT_GUESS

    def __missing__(self, tenant: str) -> float:
        return self._of_all

    def seen(self, tenant: str, tokens: int) -> None:
        """An answer had so many."""
        before, of_all = self.get(tenant), self._of_all
        if before is None:
            if not self:
                of_all = float(tokens or 1)
            elif len(self) >= PREDICTED_MAX:
                del self[next(iter(self))]
            self[tenant] = float(tokens or 1)
        elif tokens > before:
            self[tenant] = before * UP
        elif before > 1.0:
            self[tenant] = before * DOWN
        if tokens > of_all:
            self._of_all = of_all * UP
        elif of_all > 1.0:
            self._of_all = of_all * DOWN
        else:
            self._of_all = of_all


class Answers(dict[str, Outputs]):
    """The same of several models, by the names asked for; the oldest are forgotten."""

    def __missing__(self, model: str) -> Outputs:
        outputs = self[model] = Outputs()
        if len(self) > MODELS_MAX:
            del self[next(iter(self))]
        return outputs


class Pace:
    """How fast a queue moves while it is one: seconds from one seat to the next, a fading mean.

    The first seat counts from when its ticket began to wait.
    """

    __slots__ = ("_last_at", "_seats", "_time_s")

    def __init__(self) -> None:
        self._seats = self._time_s = 0.0
        self._last_at: float | None = None

    def begin(self, at: float | None) -> None:
        """Somebody waits, the first, since then; None where that is not known."""
        self._last_at = at

    def seated(self, now: float) -> None:
        """Somebody who had to wait was seated."""
        if self._last_at is not None:
            passed_s = now - self._last_at
            fade = max(FADE_MIN, math.exp(-passed_s / MEMORY_S))
            self._seats, self._time_s = self._seats * fade + 1, self._time_s * fade + passed_s
        self._last_at = now

    def seat_s(self, now: float, pause_s: float = 0.0) -> float | None:
        """Seconds a seat, as long as they have become by now; None until that is known.

        `pause_s` of the time since the last seat say nothing.
        """
        if self._seats < SEATS_MIN:
            return None
        since_s = max(0.0, now - self._last_at - pause_s) if self._last_at is not None else 0.0
        return max(self._time_s / self._seats, (self._time_s + since_s) / (self._seats + 1))


class RetryBudget:
    """How many repeats a pool may have, so that an outage is not multiplied by hopeful clients."""

    __slots__ = ("_before", "_requests", "_retries", "_retries_before", "_since")

    def __init__(self) -> None:
        self._since = 0.0
        self._requests = self._retries = self._before = self._retries_before = 0

    def request(self, now: float) -> None:
        """A request has come in."""
        if now - self._since >= WINDOW_S:
            self._turn(now)
        self._requests += 1

    def take(self, now: float) -> bool:
        """Whether one more repeat may be, and count it."""
        if now - self._since >= WINDOW_S:
            self._turn(now)
        allowed = RETRY_FLOOR + RETRY_SHARE * (self._requests + self._before)
        if self._retries + self._retries_before >= allowed:
            return False
        self._retries += 1
        return True

    def _turn(self, now: float) -> None:
        gone = now - self._since >= 2 * WINDOW_S
        self._before, self._retries_before = (0, 0) if gone else (self._requests, self._retries)
        self._requests = self._retries = 0
        self._since = now
