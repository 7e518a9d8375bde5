"""What was measured of one request: the words between the load, the statistics and the reports.

All instants are float seconds on one monotonic clock, counted from the begin of the run. A request that was
never sent (the run was ended) leaves no shot.
"""

from __future__ import annotations

import math
from enum import IntEnum

from msgspec import Struct

UNFINISHED = "run ended"
"""Why we left a request that the end of the run cut off."""


class Ending(IntEnum):
    """How it ended for the client."""

    COMPLETED = 0
    REFUSED = 1
    """The server said no before any answer: 429, 503 or 529."""
    FAILED = 2
    """Any other status, a broken connection, a stream without its end, an error event."""
    LEFT = 3
    """We left: the class's patience was over, or the run was ended."""


class Shot(Struct, gc=False):
    """One request.

    `due_at` is when the schedule wanted it sent, `sent_at` when its last byte was given to the system;
    `first_at` the first token (text or reasoning), `answer_at` the first token of the answer itself,
    `over_at` the end. `gap_max_s`, `gaps`: the longest time between two reads that brought tokens, and how
    many gaps.
    `reads_at` holds the instants of such reads where it is asked for, else nothing.
    `tokens`: of the answer, by the server's usage, else by events counted (`counted`). `cached_tokens`,
    `queue_s`, `prefill_s`: where the server tells. `connect_s`: how long it waited for a new connection.
    `why`: the outcome or error in a word or two, "" where it completed. Of a stage that warms up
    (`warm_up`) it is in no figure.
    """

    number: int
    kind: str
    tenant: str
    stage: int
    due_at: float
    sent_at: float
    over_at: float
    ending: Ending
    status: int = 0
    why: str = ""
    first_at: float | None = None
    answer_at: float | None = None
    prompt_tokens: int = 0
    tokens: int = 0
    counted: bool = False
    cached_tokens: int | None = None
    queue_s: float | None = None
    gap_max_s: float = 0.0
    gaps: int = 0
    reads_at: tuple[float, ...] = ()
    conversation: int = 0
    turn: int = 0
    connect_s: float = 0.0
    prefill_s: float | None = None
    warm_up: bool = False

    @property
    def lag_s(self) -> float:
        """How late it was sent, by the load generator's own fault."""
        return self.sent_at - self.due_at - self.connect_s

    @property
    def ttft_s(self) -> float | None:
        """From when it should have been sent to the first token; None where nobody saw that."""
        return None if self.first_at is None else self.first_at - self.due_at

    @property
    def e2e_s(self) -> float:
        """From when it should have been sent to the end."""
        return self.over_at - self.due_at

    @property
    def tpot_s(self) -> float | None:
        """Seconds for each token after the first, (E2E - TTFT) / (n - 1); None where there was no second."""
        if self.ending is not Ending.COMPLETED or self.first_at is None or self.tokens < 2:
            return None
        return (self.over_at - self.first_at) / (self.tokens - 1)

    def within(self, ttft_s: float | None, tpot_s: float | None) -> bool:
        """Whether it was completed within these limits; None limits nothing.

        An answer that is not streamed shows neither its first token nor its pace, so the whole must come
        within the time a stream at the limits would have taken.
        """
        if self.ending is not Ending.COMPLETED:
            return False
        if self.first_at is not None:
            return self.first_at - self.due_at <= (ttft_s or math.inf) and (self.tpot_s or 0.0) <= (
                tpot_s or math.inf
            )
        later_tokens = max(0, self.tokens - 1)
        if ttft_s is None or (tpot_s is None and later_tokens):
            return True
        return self.e2e_s <= ttft_s + later_tokens * (tpot_s or 0.0)


class Own(Struct):
    """How the load generator itself fared, over one run or one second of it.

    `cpu_share`: of its core, 0 to 1; `cpu_share_max` in the busiest second. `stall_s`: the longest time its
    loop was late. `connects`: connections opened, `connect_failures`: those that could not be.
    `buffered_bytes`: the most that waited in its own write buffers.
    """

    cpu_share: float = 0.0
    cpu_share_max: float = 0.0
    stall_s: float = 0.0
    connects: int = 0
    connect_failures: int = 0
    buffered_bytes: int = 0


class Run(Struct):
    """One run: its shots in the order of their ends, and what the client says of itself.

    `target`: the URL; `workload`: its name; `slo_*`: limits in seconds, None promises nothing. `began_unix`
    is wall time in seconds, for people. `ended_early`: by Ctrl-C; `overloaded`: by a search, for the server
    got more than it can do. `workers_lost`: of the workers, those that died with what they had seen.

    `rates`: what was begun per second, by number of the common stages; `rates_of` says of what. Classes that
    are `apart` have arrivals of their own, or a trace, so that these stages are not theirs.
    """

    target: str
    workload: str
    seed: int
    shots: list[Shot]
    own: Own
    duration_s: float
    slo_ttft_s: float | None = None
    slo_tpot_s: float | None = None
    rates: dict[int, float] = {}
    rates_of: str = "requests"
    apart: tuple[str, ...] = ()
    workers: int = 1
    workers_lost: int = 0
    began_unix: float = 0.0
    ended_early: bool = False
    overloaded: bool = False
    version: str = ""

    @property
    def promises(self) -> bool:
        """Whether there is an SLO to keep."""
        return self.slo_ttft_s is not None or self.slo_tpot_s is not None

    def good(self, shot: Shot) -> bool:
        """Whether this one was completed within the SLO."""
        return shot.within(self.slo_ttft_s, self.slo_tpot_s)

    def measured(self) -> list[Shot]:
        """The shots that figures are made of: not those of stages that warm up, nor what the end cut off."""
        return [shot for shot in self.shots if not shot.warm_up and shot.why != UNFINISHED]
