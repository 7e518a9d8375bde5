"""Token buckets: a rate with a burst of one minute's worth, kept as a single instant.

A bucket is its `full_at`, the instant at which it is full again (the generic cell rate algorithm). Time alone
refills it, so nothing has to be done for a bucket that nobody uses.
"""

from __future__ import annotations

from math import trunc  # `int` takes several times as long

from msgspec import Struct

MINUTE_S = 60.0
SLACK_S = 1e-6
"""So far off may sums of seconds be."""
REQUESTS, TOKENS, PROMPT_TOKENS, OUTPUT_TOKENS = range(4)
"""What a bucket counts: the place of its amount in the tuple of what a request takes."""


class Level(Struct, frozen=True):
    """Where a bucket stands: `remaining` of `limit`, and full again in `reset_s`."""

    limit: int
    remaining: int
    reset_s: float


class Bucket:
    """What may be taken in a minute, `limit` units of one `kind`, each flowing in within `unit_s`.

    What is taken moves `full_at` away from now, what is given back brings it nearer. Further away than a
    minute it is in debt. `was_at` is where it was before the last was taken, which may not have come in.
    `full` is its level when it is.
    """

    __slots__ = ("full", "full_at", "kind", "limit", "unit_s", "was_at")

    def __init__(self, kind: int, limit: int, now: float) -> None:
        self.kind = kind
        self.limit = limit
        self.unit_s = MINUTE_S / limit
        self.full_at = self.was_at = now
        self.full = Level(limit, limit, 0.0)

    def missing_s(self, units: int, now: float) -> float:
        """How long until so many are there: not positive when they are, over a minute if they never are."""
        needed_s = units * self.unit_s
        if units > self.limit:
            return max(needed_s, self.full_at - now)
        return max(self.full_at, now) + needed_s - now - MINUTE_S

    def level(self, now: float) -> Level:
        """Where it stands; a debt shows as nothing remaining."""
        if self.full_at <= now:
            return self.full
        reset_s = self.full_at - now
        remaining = trunc((MINUTE_S - reset_s) / self.unit_s + 1e-6)
        return Level(self.limit, remaining if remaining > 0 else 0, reset_s)  # noqa: FURB136 - a call is slow

    def resized(self, limit: int, now: float) -> Bucket:
        """The same bucket under another limit: it keeps what it held, as far as that fits."""
        bucket = Bucket(self.kind, limit, now)
        held = (MINUTE_S - max(0.0, self.full_at - now)) / self.unit_s
        bucket.full_at = now + MINUTE_S - held * bucket.unit_s
        return bucket
