"""What is told of a search for goodput: its probes beside what was measured at each rate, and its result."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from maitred.bench.figures import Part
from maitred.bench.search import Found


class Rung(Struct, frozen=True):
    """What the last run at one rate (requests/s) came to; None where nothing was answered."""

    rate: float
    ttft_p90_s: float | None
    tpot_p90_s: float | None
    output_tokens_per_s: float


class Searched(Struct, frozen=True):
    """A whole search; `rungs` in order of their rates, as `found.probes`."""

    found: Found
    rungs: list[Rung]
    ended_early: bool


def rung(rate: float, part: Part) -> Rung:
    """The rung of a run at this rate."""
    times = {
        name: part.times[name].percentiles["p90"].value for name in ("ttft_s", "tpot_s") if name in part.times
    }
    output = part.rates.get("output_tokens_per_s")
    return Rung(rate, times.get("ttft_s"), times.get("tpot_s"), (output.value if output else None) or 0.0)


def lines(found: Found) -> Iterator[str]:
    """What was found, in sentences."""
    holds, fails = found.holds, found.fails
    if holds is not None and fails is not None:
        end = "" if found.resolved else "; where between them it turns is unresolved"
        yield f"Goodput: {holds:.3g} requests/s keep the SLO, {fails:.3g}/s do not{end}."
    elif holds is not None:
        yield f"Goodput: {holds:.3g} requests/s keep the SLO; no rate was shown to break it (unresolved)."
    elif fails is not None:
        yield f"Goodput: {fails:.3g} requests/s do not keep the SLO, and no lower rate was shown to."
    else:
        yield "Goodput: unresolved; no probe had enough requests. Probe for longer, with --duration."
    if found.knee is not None:
        yield f"The knee is at {found.knee:.3g} requests/s: more of them bring little more goodput."
