"""Whether one side is really faster than another: each figure compared, with how sure that is.

Several runs a side are compared by the spread between runs, which is what decides: the same server gives
other figures tomorrow. Two single runs are cut into sections, and the sections compared one by one. Requests
of one run hang together (a queue makes all that wait in it late), so that intervals which count each request
for itself would be too narrow; sections much longer than a queue's memory are nearly independent. These are
the batch means of simulation (Schmeiser, Operations Research 30(3), 1982), in pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from statistics import fmean, median
from typing import Literal

from msgspec import Struct

from maitred.bench.shot import Ending, Run, Shot
from maitred.bench.statistics import (
    SECTION_REQUESTS_MIN,
    SECTIONS,
    adjusted,
    quantile,
    sections,
    student,
    variance,
)

CONFIDENCE = 0.99
"""Of each verdict. Higher than of other intervals: there are a dozen verdicts, and people act on them."""
ALIKE_MAX = 0.9
SPREAD_MIN = 1e-9
"""Figures are computed; values that differ by less than this are equal."""
PERCENTILES = {"p50": 0.50, "p90": 0.90, "p99": 0.99}

Said = Literal["better", "worse", "cannot tell"]


class Verdict(Struct, frozen=True):
    """One figure on two sides: `a` and `b` as measured, the median of several runs; infinite where it failed.

    `effect` is how much higher the figure of `b` is, as a share of that of `a` (-0.2: a fifth lower), on the
    average of the runs, or of the sections of single runs; `low` and `high` its confidence interval, None
    where there is too little for one, or where equal values have no spread to reckon with. `said` is of `b`.
    """

    name: str
    a: float
    b: float
    effect: float
    low: float | None
    high: float | None
    said: Said


class Stretch(Struct, frozen=True):
    """Requests that ended one after another within this span; `run` says which of them are good."""

    shots: Sequence[Shot]
    span_s: float
    run: Run


Figure = Callable[[Stretch], float | None]


def compare(a: Sequence[Run], b: Sequence[Run], confidence: float = CONFIDENCE) -> list[Verdict]:
    """How `b` differs from `a`, at least one run each, figure by figure; the SLO is that of the first of `a`.

    Percentiles are adjusted: a request that failed or was refused takes for ever. Figures that a run does
    not have, for it streamed nothing, are left out; so are runs that sent nothing.
    """
    ours, theirs = ([_whole(run, a[0]) for run in runs if run.measured()] for runs in (a, b))
    verdicts = []
    for name, figure in FIGURES.items():
        before = [value for part in ours if (value := figure(part)) is not None]
        after = [value for part in theirs if (value := figure(part)) is not None]
        if not before or not after or len(before) < len(ours) or len(after) < len(theirs):
            continue
        if len(ours) == len(theirs) == 1:
            difference, margin = _by_sections(figure, ours[0], theirs[0], confidence)
        else:
            difference, margin = _by_runs(before, after, confidence)
        low, high = difference - margin, difference + margin
        known = 0 < margin < math.inf
        verdicts.append(
            Verdict(
                name,
                median(before),
                median(after),
                _change(difference),
                _change(low) if known else None,
                _change(high) if known else None,
                _said(low, high, higher_is_better=not name.endswith("_s") or name.endswith("_per_s")),
            )
        )
    return verdicts


def doubts(a: Sequence[Run], b: Sequence[Run]) -> list[str]:
    """What speaks against a comparison of these, in sentences."""
    runs = [*a, *b]
    found = []
    if min(len(a), len(b)) == 1:
        found.append("A side has a single run, which does not tell how much runs differ: repeat it.")
    if len({run.workload for run in runs}) > 1:
        found.append("The workloads differ.")
    elif len({tuple(run.rates.items()) for run in runs}) > 1:
        found.append("The rates of requests differ.")
    if len({(run.slo_ttft_s, run.slo_tpot_s) for run in runs}) > 1:
        found.append("The limits differ; all are judged by those of the first run.")
    if any(run.ended_early for run in runs):
        found.append("A run was ended early.")
    return found


def _whole(run: Run, judge: Run) -> Stretch:
    shots = sorted(run.measured(), key=lambda shot: shot.over_at)
    return Stretch(shots, shots[-1].over_at - min(shot.due_at for shot in shots), judge)


def _sections(whole: Stretch) -> list[Stretch]:
    """The requests in order of their ends, cut into equal parts; each lasts from the end before it."""
    parts = []
    began_at = whole.shots[-1].over_at - whole.span_s
    for first, last in sections(len(whole.shots)):
        shots = whole.shots[first:last]
        parts.append(Stretch(shots, shots[-1].over_at - began_at, whole.run))
        began_at = shots[-1].over_at
    return parts


def _by_sections(figure: Figure, a: Stretch, b: Stretch, confidence: float) -> tuple[float, float]:
    """The mean difference of the sections, and its margin by Student's t.

    Neighbours that still differ alike tell less than as many strangers: the variance grows by
    (1 + r) / (1 - r), r their correlation (Bartlett 1946), of which an estimate is too low by 1 / sections.
    """
    if min(len(a.shots), len(b.shots)) < SECTIONS * SECTION_REQUESTS_MIN:
        return _difference(figure(a), figure(b)), math.inf
    pairs = zip(_sections(a), _sections(b), strict=True)
    differences = [_difference(figure(one), figure(other)) for one, other in pairs]
    difference = fmean(differences)
    spread = variance(differences)
    if math.sqrt(spread) < SPREAD_MIN:
        return difference, _of_equals(2**SECTIONS, confidence)
    products = math.fsum((x - difference) * (y - difference) for x, y in pairwise(differences))
    alike = min(ALIKE_MAX, max(0.0, products / spread / (SECTIONS - 1) + 1 / SECTIONS))
    margin = math.sqrt(spread / SECTIONS * (1 + alike) / (1 - alike))
    return difference, student(SECTIONS - 1, confidence) * margin


def _by_runs(a: Sequence[float], b: Sequence[float], confidence: float) -> tuple[float, float]:
    """The difference of the means and its margin by Welch (1947), the degrees of freedom rounded down.

    Means are of the differences from one and the same value. A single run is taken to spread as the others.
    """
    centre = median(a)
    ours, theirs = ([_difference(centre, value) for value in side] for side in (a, b))
    difference = fmean(theirs) - fmean(ours)
    if min(len(a), len(b)) == 1:
        several = ours if len(ours) > 1 else theirs
        spread = variance(several) * (1 + 1 / len(several))
        known = math.sqrt(spread) >= SPREAD_MIN
        return difference, student(len(several) - 1, confidence) * math.sqrt(spread) if known else math.inf
    part_a, part_b = variance(ours) / len(a), variance(theirs) / len(b)
    total = part_a + part_b
    if math.sqrt(total) < SPREAD_MIN:
        return difference, _of_equals(math.comb(len(a) + len(b), len(a)), confidence)
    degrees = total**2 / (part_a**2 / (len(a) - 1) + part_b**2 / (len(b) - 1))
    return difference, student(max(1, int(degrees)), confidence) * math.sqrt(total)


def _of_equals(orders: int, confidence: float) -> float:
    """The margin of a difference that is always the same: none, where that is no luck, else infinite.

    Were both sides alike, each of so many orders of their values (or of signs) would be as likely as this one
    and its reverse. Ten sections show a difference at 99 %, and so do five runs a side; four do not.
    """
    return 0.0 if 2 / orders <= 1 - confidence else math.inf


def _difference(a: float | None, b: float | None) -> float:
    """(b - a) / (b + a): from -1 to 1, about half the relative difference where that is small.

    It is bounded, so that a percentile that failed (an infinite one) counts like any other.
    """
    if a is None or b is None or a == b:
        return 0.0
    if math.isinf(a) or math.isinf(b):
        return 1.0 if b > a else -1.0
    return (b - a) / (b + a)


def _change(difference: float) -> float:
    """The relative change, b / a - 1, of such a difference."""
    if difference >= 1:
        return math.inf
    return 2 * difference / (1 - difference) if difference > -1 else -1.0


def _said(low: float, high: float, *, higher_is_better: bool) -> Said:
    if low <= 0 <= high:
        return "cannot tell"
    return "better" if (low > 0) is higher_is_better else "worse"


def _percentile(time: Callable[[Shot], float | None], q: float, part: Stretch) -> float | None:
    """Adjusted. None where nothing was completed that has such a time, though all was."""
    completed = [shot for shot in part.shots if shot.ending is Ending.COMPLETED]
    times_s = [time_s for shot in completed if (time_s := time(shot)) is not None]
    lost = len(part.shots) - len(completed)
    return quantile(adjusted(times_s, lost), q).value if times_s or lost else None


def _goodput_share(part: Stretch) -> float | None:
    return sum(map(part.run.good, part.shots)) / len(part.shots) if part.run.promises else None


def _goodput_per_s(part: Stretch) -> float | None:
    share = _goodput_share(part)
    return None if share is None or not part.span_s else share * len(part.shots) / part.span_s


def _output_tokens_per_s(part: Stretch) -> float | None:
    return sum(shot.tokens for shot in part.shots) / part.span_s if part.span_s else None


TIMES: Mapping[str, Callable[[Shot], float | None]] = {
    "ttft": lambda shot: shot.ttft_s,
    "tpot": lambda shot: shot.tpot_s,
    "e2e": lambda shot: shot.e2e_s,
}
FIGURES: Mapping[str, Figure] = {
    f"{time}_{name}_s": partial(_percentile, function, q)
    for time, function in TIMES.items()
    for name, q in PERCENTILES.items()
} | {
    "goodput_share": _goodput_share,
    "goodput_per_s": _goodput_per_s,
    "output_tokens_per_s": _output_tokens_per_s,
}
"""What is compared; all of it is 0 or more."""
