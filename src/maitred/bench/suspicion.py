"""How far a run may be trusted: what speaks against the client itself, and against too few requests.

A load generator that cannot keep up measures itself. So whatever it did late or waited for on its own side
is told, and told first where it changes the figures.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from msgspec import Struct

from maitred.bench.figures import PERCENTILES
from maitred.bench.saturation import saturated_at
from maitred.bench.shot import UNFINISHED, Ending, Run, Shot
from maitred.bench.statistics import quantile
from maitred.core.outcome import FailureKind
from maitred.sim.measure import samples_min
from maitred.sim.rows import seconds

CPU_SHARE_MAX = 0.9
"""Of its core in its busiest second: above this the client's own queue makes itself felt."""
LAG_SHARE_MAX = 0.05
"""Late by more than this part of the time that is measured, percentile by percentile, changes it."""
LAG_S_MAX = 0.005
"""Less than this is a timer's, and nobody's fault."""
STALL_S_MAX = 0.1
BUFFERED_BYTES_MAX = 1024 * 1024


class Doubt(Struct, frozen=True):
    """One reason not to trust the figures. `own`: the client was in the way, so the server may be better."""

    text: str
    own: bool = False


def doubts(run: Run) -> list[Doubt]:
    """What speaks against this run, the client's own faults first."""
    shots = run.measured()
    return [Doubt(text, own=True) for text in _of_client(run, shots)] + [
        Doubt(text) for text in _of_measurement(run, shots)
    ]


def verdict(found: Sequence[Doubt]) -> str:
    """One line, to stand above all figures; "" where the client kept up."""
    if any(doubt.own for doubt in found):
        return "This client was a bottleneck: what follows is worse than what the server did."
    return ""


def _of_client(run: Run, shots: Sequence[Shot]) -> Iterator[str]:
    own = run.own
    waits_s = sorted(_waits_s(shots))
    lags_s = sorted(shot.lag_s for shot in shots)
    for name, q in (("p50", 0.5), ("p99", 0.99)):
        lag_s = _at(lags_s, q)
        if lag_s > max(LAG_S_MAX, LAG_SHARE_MAX * _at(waits_s, q)):
            yield f"requests were sent late, the {name} by {_text(lag_s)}; use --workers, or a lower rate"
            break
    if own.cpu_share_max > CPU_SHARE_MAX:
        yield f"the client's busiest second took {100 * own.cpu_share_max:.0f} % of its core; use --workers"
    if own.stall_s > max(STALL_S_MAX, LAG_SHARE_MAX * _at(waits_s, 0.99)):
        yield f"the client stood still for {_text(own.stall_s)}; something else uses this machine"
    if own.buffered_bytes > BUFFERED_BYTES_MAX:
        yield f"{own.buffered_bytes / 1e6:.1f} MB of requests waited in the client's own buffers"
    if run.workers_lost:
        yield f"{run.workers_lost} of {run.workers} workers died, and what they sent is in no figure"
    if local := _of_local_limit(run):
        yield (
            f"{local:,} of {own.connects + own.connect_failures:,} connections could not be opened, for this "
            "machine has too few open files or ports (ulimit -n)"
        )


def _of_measurement(run: Run, shots: Sequence[Shot]) -> Iterator[str]:
    completed = [shot for shot in shots if shot.ending is Ending.COMPLETED]
    if not completed:
        yield "no request was completed; there is nothing to measure"
    elif unbounded := list(_unbounded(_waits_s(shots))):
        yield (
            f"{len(completed):,} requests were completed, too few independent ones for an upper bound of "
            f"{', '.join(unbounded)}"
        )
    if remote := run.own.connect_failures - _of_local_limit(run):
        yield (
            f"{remote:,} of {run.own.connects + run.own.connect_failures:,} connections could not be opened: "
            "the server, or what is before it, refused or did not answer"
        )
    if (at := saturated_at(run)) is not None:
        yield (
            f"from {at:.0f} s on the server got more than it can do: requests under way and TTFT rose on, "
            "so the figures depend on how long this went on"
        )
    counted = sum(shot.counted for shot in completed)
    if counted:
        yield (
            f"{counted:,} answers came without usage: their tokens are events counted, and TPOT is too long "
            "where one event holds several"
        )
    if run.ended_early or run.overloaded:
        cut = sum(shot.why == UNFINISHED for shot in run.shots)
        how = "cut short, for the server got more than it can do" if run.overloaded else "ended early"
        yield f"the run was {how}; what was under way then ({cut:,}) is in no figure"


def _of_local_limit(run: Run) -> int:
    """How many requests found no open file or port on this machine."""
    return sum(shot.why == FailureKind.LOCAL_LIMIT.label for shot in run.shots)


def _unbounded(in_order: Sequence[float]) -> Iterator[str]:
    """The percentiles without an upper bound, and how many independent requests each needs."""
    known = sorted(in_order)
    for name, q in PERCENTILES.items():
        found = quantile(known, q, in_order=in_order)
        if found.high is None:
            worth = found.independent
            yield f"the {name} ({samples_min(q)}{f'; these are worth {worth}' if worth < len(known) else ''})"


def _waits_s(shots: Sequence[Shot]) -> list[float]:
    """Times to the first token, or to the whole answer where nothing is streamed, in order of the ends."""
    return [
        shot.e2e_s if (ttft_s := shot.ttft_s) is None else ttft_s
        for shot in shots
        if shot.ending is Ending.COMPLETED
    ]


def _at(values: Sequence[float], q: float) -> float:
    return values[math.ceil(q * len(values)) - 1] if values else 0.0


def _text(value_s: float) -> str:
    factor, decimals, unit = seconds(value_s)
    return f"{factor * value_s:.{decimals}f}{unit}"
