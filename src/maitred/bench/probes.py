"""What is told of a search for goodput: its probes beside what was measured at each rate, and its result."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from maitred.bench.figures import Part
from maitred.bench.search import Found
from maitred.bench.shot import Run


class Rung(Struct, frozen=True):
    """What the last run at one rate came to; None where nothing was sent, or nothing answered.

    `requests_per_s`: what that rate is in requests, by how many followed from each that was begun.
    """

    rate: float
    requests_per_s: float | None
    ttft_p90_s: float | None
    tpot_p90_s: float | None
    output_tokens_per_s: float


class Searched(Struct, frozen=True):
    """A whole search; `rungs` in order of their rates, as `found.probes`."""

    found: Found
    rungs: list[Rung]
    ended_early: bool


def rung(rate: float, run: Run, part: Part) -> Rung:
    """The rung of a run at this rate, of which `part` has the figures."""
    begun = sum(shot.turn <= 1 for shot in run.measured())
    times = {
        name: part.times[name].percentiles["p90"].value for name in ("ttft_s", "tpot_s") if name in part.times
    }
    output = part.rates.get("output_tokens_per_s")
    return Rung(
        rate,
        rate * part.requests / begun if begun else None,
        times.get("ttft_s"),
        times.get("tpot_s"),
        (output.value if output else None) or 0.0,
    )


def lines(searched: Searched, rates_of: str) -> Iterator[str]:
    """What was found, in sentences; `rates_of` as the run has it."""
    found = searched.found
    in_requests = {rung.rate: rung.requests_per_s for rung in searched.rungs}

    def per_s(rate: float) -> str:
        said, requests_per_s = f"{rate:.3g} {rates_of}/s", in_requests[rate]
        if rates_of == "requests" or requests_per_s is None:
            return said
        return f"{said} ({requests_per_s:.3g} requests/s)"

    yield _edge(found, per_s)
    yield (
        f"A probe says yes, or no, where an exact binomial test at {100 * found.confidence:.0f} % shows that "
        f"at least {100 * found.attainment:.0f} % of all requests sent are within the SLO, or fewer."
    )
    if found.knee is not None:
        yield f"The knee is at {per_s(found.knee)}: more of them bring little more goodput."


def _edge(found: Found, per_s: Callable[[float], str]) -> str:
    """Between which rates the SLO begins to break."""
    holds, fails = found.holds, found.fails
    if holds is not None and fails is not None:
        end = "" if found.resolved else "; where between them it turns is unresolved"
        return f"Goodput: {per_s(holds)} keep the SLO, {per_s(fails)} do not{end}."
    if holds is not None:
        return f"Goodput: {per_s(holds)} keep the SLO; no rate was shown to break it (unresolved)."
    if fails is not None:
        return f"Goodput: {per_s(fails)} do not keep the SLO, and no lower rate was shown to."
    return "Goodput: unresolved; no probe had enough requests. Probe for longer, with --duration."
