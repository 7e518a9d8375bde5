"""One HTML file that tells of a simulation: the figures first, then plots; it needs no network and no script.

Nothing in it depends on the clock or the machine, so the same runs give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from maitred.sim import plots
from maitred.sim.arrival import Record
from maitred.sim.measure import tpot_s
from maitred.sim.rows import FOOTNOTE, details, has_unbounded, overview
from maitred.sim.run import Run, Sample
from maitred.sim.summary import StageRow, Summary, ladder

Ladders = Mapping[str, Sequence[StageRow]]
"""Stages by rate, by the name in the legend."""


def html(
    summaries: Sequence[Summary],
    runs: Sequence[Sequence[Run]],
    rates: Mapping[int, float] | None = None,
    published: Ladders | None = None,
) -> str:
    """The report on some configurations; `runs` are those of each summary, in its order.

    `rates` (requests/s, by stage) where the workload is a ladder of rates; `published` are rows to hold it
    against.
    """
    ladders = {summary.name: ladder(summary, rates or {}) for summary in summaries}
    first, more = overview(summaries), details(summaries)
    template = Environment(loader=PackageLoader("maitred.sim"), autoescape=True).get_template("report.html")
    return template.render(
        names=[summary.name for summary in summaries],
        seeds=[", ".join(map(str, summary.seeds)) for summary in summaries],
        overview=first,
        details=more,
        footnote=FOOTNOTE if has_unbounded([*first, *more]) else "",
        plots=map(Markup, _plots(summaries, runs, ladders, published or {})),  # pygal has escaped them
    )


def ladder_plots(ladders: Ladders, published: Ladders | None = None) -> dict[str, str]:
    """Output rate and TTFT over the rates, as SVG by file name."""

    def lines(of: Ladders, value: Callable[[StageRow], float | None]) -> plots.Lines:
        found = {name: [(row.rate, value(row)) for row in rows] for name, rows in of.items()}
        return {name: [(x, y) for x, y in points if y is not None] for name, points in found.items()}

    def drawn(name: str, title: str, y_title: str, value: Callable[[StageRow], float | None]) -> str:
        return plots.by_rate(name, title, y_title, lines(ladders, value), lines(published or {}, value))

    return {
        "ladder-output.svg": drawn(
            "ladder-output",
            "How many tokens came out, by rate",
            "output tokens (per s)",
            lambda row: row.output_tokens_per_s,
        ),
        "ladder-ttft.svg": drawn(
            "ladder-ttft",
            "How long nine in ten waited for the first token, by rate",
            "TTFT p90 (s)",
            lambda row: row.ttft_p90_s,
        ),
    }


def _plots(
    summaries: Sequence[Summary], runs: Sequence[Sequence[Run]], ladders: Ladders, published: Ladders
) -> list[str]:
    """Those for which there is something to show."""
    drawn = [
        _times(
            "ttft",
            "How long until the first token came",
            "time to first token",
            runs,
            lambda record: record.ttft_s,
        ),
        _times("tpot", "How fast the tokens followed", "time per output token", runs, tpot_s),
    ]
    if any(ladders.values()):
        drawn += ladder_plots(ladders, published).values()
    drawn += [
        _over_time("waiting", "Requests waiting at the gateway", "requests", runs, lambda s: s.waiting),
        _over_time("running", "Requests at the engines", "requests", runs, lambda s: s.running),
        _over_time("kv", "KV cache in use, mean of the engines", "%", runs, lambda s: 100 * s.kv_use),
    ]
    busy = {
        summary.name: {name: 100 * figures["busy_share"].mean for name, figures in summary.endpoints.items()}
        for summary in summaries
    }
    refused = {
        summary.name: {
            name or "no tenant": part.figures["refused"].mean
            for name, part in summary.tenants.items()
            if part.refused
        }
        for summary in summaries
    }
    if any(busy.values()):
        drawn.append(plots.bars("busy", "How busy each endpoint was", "% of the time", busy))
    if any(refused.values()):
        drawn.append(plots.bars("refused", "Requests refused, by tenant", "requests", refused))
    return [plot for plot in drawn if plot]


def _times(
    name: str,
    title: str,
    x_title: str,
    runs: Sequence[Sequence[Run]],
    value: Callable[[Record], float | None],
) -> str:
    """The distribution over all seeds."""
    seconds = {}
    for seeds in runs:
        values = (value(record) for record in chain.from_iterable(run.records for run in seeds))
        seconds[seeds[0].name] = [known for known in values if known is not None]
    return plots.distribution(name, title, x_title, seconds) if any(seconds.values()) else ""


def _over_time(
    name: str, title: str, y_title: str, runs: Sequence[Sequence[Run]], value: Callable[[Sample], float]
) -> str:
    """The course of the first seed: a mean of courses would show what happened in none."""
    lines = {
        first.name: [(sample.at - first.began_at, value(sample)) for sample in first.samples]
        for first, *_ in runs
    }
    return plots.over_time(name, title, y_title, lines) if any(lines.values()) else ""
