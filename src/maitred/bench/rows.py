"""The figures as tables of text: what the terminal and the page both show."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from maitred.bench.during import Course
from maitred.bench.figures import PERCENTILES, Figure, Part, Summary, Times
from maitred.bench.limits import Limit
from maitred.bench.probes import Searched
from maitred.bench.shot import Run
from maitred.bench.spans import Spans
from maitred.bench.verdict import Verdict
from maitred.sim.rows import NOTHING, UNBOUNDED, Scale, count, seconds, share

ROWS_MAX = 40
TITLE_MAX = 60
NEVER = "failed"
"""A percentile that no time can be told of, since more requests than that were not served."""
CUT_SHORT = "cut short"
FOOTNOTES = {
    UNBOUNDED: (
        f"{UNBOUNDED} no upper bound: too few independent requests for this percentile; those that hang "
        "together, as in a queue, count for fewer"
    ),
    CUT_SHORT: (
        f"{CUT_SHORT}: requests under way and TTFT rose on; the server got more than it can do; that is a no"
    ),
    NEVER: f"{NEVER}: so many were not served that this percentile has no time",
}


LIMITS_NOTE = (
    "The p99 is judged by MLPerf's early stopping, at 99 %; who was not served is over every limit. So many "
    "more requests would show it within, were none of them over."
)
ENGINES_NOTE = (
    "Queue, prefill and decode are means of the engines' own counters, over all {} requests that ended there "
    "meanwhile: those of the warm-up and of other clients, too."
)
WAITS_NOTE = (
    "The wait in the queue is not shown by class and tenant: the server tells it of no single request (vLLM "
    "does with --enable-per-request-metrics)."
)


class Cell(Struct, frozen=True):
    """A value, and under it how sure it is."""

    text: str
    interval: str = ""


class Row(Struct, frozen=True):
    """One line of a table."""

    label: str
    cells: list[Cell]


class Table(Struct, frozen=True):
    """Rows under one title, and what the columns are called; `note`: what must be known of its figures."""

    title: str
    columns: list[str]
    rows: list[Row]
    note: str = ""


RATES: dict[str, tuple[str, Callable[[float], Scale]]] = {
    "requests_per_s": ("requests sent, per s", count),
    "goodput_share": ("goodput, of all sent", share),
    "goodput_per_s": ("goodput, per s", count),
    "output_tokens_per_s": ("output tokens, per s", count),
    "cached_share": ("prompt tokens cached", share),
}
TIMES = {
    "ttft_s": "TTFT",
    "queue_s": "  in the queue",
    "prefill_s": "  prefill",
    "ttft_sent_s": "TTFT from when sent",
    "ttft_adjusted_s": "TTFT, adjusted",
    "answer_s": "first answer token",
    "tpot_s": "TPOT",
    "itl_s": "ITL",
    "gap_s": "longest gap",
    "decode_s": "decode",
    "e2e_s": "E2E",
    "e2e_adjusted_s": "E2E, adjusted",
    "connect_s": "new connections",
    "lag_s": "sent too late",
}
GROUPED: dict[str, tuple[str, str]] = {
    "TTFT p50": ("ttft_s", "p50"),
    "TTFT p90": ("ttft_s", "p90"),
    "TPOT p50": ("tpot_s", "p50"),
    "E2E p50": ("e2e_s", "p50"),
    "E2E p90": ("e2e_s", "p90"),
    "queue p90": ("queue_s", "p90"),
}


def overview(summary: Summary, run: Run, spans: Spans | None = None) -> list[Table]:
    """What is asked first: what became of the requests, where the time went, how long it took whom."""
    stages = "By stage" if run.rates_of == "requests" else f"By stage, of {run.rates_of} begun"
    tables = [
        Table("Requests", ["", "share"], list(_counts(summary.whole))),
        Table("Rates", [""], list(_rates(summary.whole))),
        _limits(summary.limits),
        Table(
            "Where the time goes",
            ["mean", "share"],
            list(_where(summary.whole, spans)),
            ENGINES_NOTE.format(f"{spans.requests:,}") if spans else "",
        ),
        Table("Times", ["mean", *PERCENTILES, "longest"], list(_times(summary.whole))),
        _groups("By class", summary.classes),
        _groups("By tenant", summary.tenants),
        _groups(stages, {_stage(number, run): part for number, part in summary.stages.items()}),
    ]
    return [table for table in tables if table.rows]


def comparison(verdicts: Sequence[Verdict], names: tuple[str, str]) -> Table:
    """How B differs from A, figure by figure; there is no relative change from nothing, nor from no time."""
    rows = []
    for verdict in verdicts:
        scale = _scale(verdict.name)
        sides = [_bare(value if math.isfinite(value) else None, scale) for value in (verdict.a, verdict.b)]
        known = all(map(math.isfinite, (verdict.a, verdict.b, verdict.effect)))
        change = f"{100 * verdict.effect:+,.1f} %" if known else NOTHING
        interval = _span(verdict.low, verdict.high, lambda value: f"{100 * value:+,.1f}") if known else ""
        rows.append(Row(_label(verdict.name), [*sides, Cell(change, interval), Cell(verdict.said)]))
    return Table("Compared", [*names, "B against A", "B is"], rows)


def _scale(name: str) -> Callable[[float], Scale]:
    if name in RATES:
        return RATES[name][1]
    return seconds


def _label(name: str) -> str:
    """`ttft_p90_s` as tables write it."""
    if name in RATES:
        return RATES[name][0]
    time, of = name.removesuffix("_s").rsplit("_", 1)
    return f"{TIMES[f'{time}_s']} {of}"


def probes(searched: Searched, rates_of: str) -> Table:
    """What a search for goodput tried, by rate; `rates_of` as the run has it."""
    rows = []
    for probe, rung in zip(searched.found.probes, searched.rungs, strict=True):
        goodput = probe.good / probe.attempted if probe.attempted else None
        cells = [
            _if_any(rung.requests_per_s, count),
            Cell(
                f"{probe.attempted:,}",
                f"worth {worth:,}" if (worth := probe.independent) < probe.attempted else "",
            ),
            Cell(NOTHING) if goodput is None else _cell(Figure(goodput, probe.low, probe.high), share),
            _if_any(rung.ttft_p90_s),
            _if_any(rung.tpot_p90_s),
            Cell(_text(rung.output_tokens_per_s, count)),
            Cell(f"{probe.said}, {CUT_SHORT}" if probe.overloaded else probe.said),
        ]
        rows.append(Row(f"{probe.rate:.3g}/s", cells))
    columns = [
        "requests, per s",
        "sent",
        "goodput",
        "TTFT p90",
        "TPOT p90",
        "output tokens, per s",
        "keeps the SLO",
    ]
    return Table(f"Search for goodput, by {rates_of} begun per s", columns, rows)


def course(happening: Course) -> Table:
    """What became of requests and conversations before, during and after a command."""
    rows = [
        Row(
            name,
            [
                *(Cell(f"{number:,}") for number in (window.requests, window.refused, window.failed)),
                _if_any(window.ttft_p50_s),
                Cell(f"{window.conversations:,}"),
                Cell(f"{window.broken:,}"),
            ],
        )
        for name, window in happening.windows.items()
    ]
    command = happening.command
    title = f"Around {command if len(command) <= TITLE_MAX else command[:TITLE_MAX] + '…'}"
    columns = ["requests", "refused", "failed", "TTFT p50", "conversations", "broken"]
    return Table(title, columns, rows)


def footnotes(tables: Sequence[Table]) -> list[str]:
    """What the marks in these tables mean, and what must be known of their figures."""
    texts = [cell.text for table in tables for row in table.rows for cell in row.cells]
    marks = [note for mark, note in FOOTNOTES.items() if any(text.endswith(mark) for text in texts)]
    return marks + list(dict.fromkeys(table.note for table in tables if table.note))


def _counts(part: Part) -> Iterator[Row]:
    def row(label: str, number: int) -> Row:
        return Row(label, [Cell(f"{number:,}"), Cell(f"{100 * number / part.requests:.1f} %")])

    if not part.requests:
        return
    yield row("sent", part.requests)
    for name in ("completed", "refused", "failed", "left"):
        number = getattr(part, name)
        if number or name in {"completed", "failed"}:
            yield row(name, number)
        reasons = part.why.get(name, {})
        yield from (row(f"  {why or 'no reason told'}", times) for why, times in list(reasons.items())[:10])


def _rates(part: Part) -> Iterator[Row]:
    for name, (label, scale) in RATES.items():
        if name in part.rates:
            yield Row(label, [_cell(part.rates[name], scale)])


def _limits(found: Mapping[str, Limit]) -> Table:
    """Whether the p99 is within each limit."""
    rows = []
    for name, limit in found.items():
        worth = f"worth {limit.independent:,}" if limit.independent < limit.requests else ""
        more = f": {limit.more:,} more requests" if limit.more else ""
        cells = [Cell(f"{limit.requests:,}", worth), Cell(f"{limit.over:,}"), Cell(limit.said + more)]
        rows.append(Row(f"{TIMES[name]} within {_text(limit.limit_s, seconds)}", cells))
    return Table("Limits", ["requests", "over it", "is the p99 within it"], rows, LIMITS_NOTE)


def _where(part: Part, spans: Spans | None) -> Iterator[Row]:
    """Queue, prefill and decode where engines or answers tell, else what lies around the first token."""
    means_s = {name: times.mean.value or 0.0 for name, times in part.times.items()}
    if spans is not None:
        shown_s = {"queue": spans.queue_s, "prefill": spans.prefill_s, "decode": spans.decode_s}
        shown_s["outside the engines"] = max(0.0, means_s.get("e2e_s", 0.0) - sum(shown_s.values()))
    elif "prefill_s" in means_s:
        names = {"queue": "queue_s", "prefill": "prefill_s", "decode": "decode_s"}
        shown_s = {label: means_s[name] for label, name in names.items() if name in means_s}
    else:
        names = {"queue and prefill": "ttft_sent_s", "decode": "decode_s"}
        shown_s = {label: means_s[name] for label, name in names.items() if name in means_s}
    whole_s = sum(shown_s.values())
    for label, mean_s in shown_s.items() if whole_s else ():
        yield Row(label, [_bare(mean_s), Cell(f"{100 * mean_s / whole_s:.1f} %")])


def _times(part: Part) -> Iterator[Row]:
    for name, label in TIMES.items():
        if times := part.times.get(name):
            percentiles = [_cell(figure, seconds) for figure in times.percentiles.values()]
            yield Row(label, [_cell(times.mean, seconds), *percentiles, _bare(times.most)])


def _groups(title: str, parts: Mapping[str, Part]) -> Table:
    """A row for each group, where there are several."""
    shown = {
        label: of for label, of in GROUPED.items() if any(of[0] in part.times for part in parts.values())
    }
    promised = any("goodput_share" in part.rates for part in parts.values())
    columns = ["sent", "done", "refused", "failed", "left", *(["goodput"] if promised else []), *shown]
    rows = []
    for name, part in list(parts.items())[:ROWS_MAX] if len(parts) > 1 else []:
        counts = (part.requests, part.completed, part.refused, part.failed, part.left)
        cells = [Cell(f"{number:,}") for number in counts]
        if promised:
            cells.append(_bare(part.rates["goodput_share"].value, share))
        cells += [_grouped(part.times.get(time), percentile) for time, percentile in shown.values()]
        rows.append(Row(name, cells))
    waits_told = any("queue_s" in part.times for part in parts.values())
    return Table(title, columns, rows, "" if waits_told else WAITS_NOTE)


def _grouped(times: Times | None, percentile: str) -> Cell:
    """Without its interval, for there are many columns."""
    return Cell(_cell(times.percentiles[percentile], seconds).text if times else NOTHING)


def _stage(number: int, run: Run) -> str:
    return f"{number}: {run.rates[number]:g}/s" if number in run.rates else str(number)


def _cell(figure: Figure, scale: Callable[[float], Scale]) -> Cell:
    if figure.value is None:
        return Cell(NEVER)
    ends = [value for value in (figure.value, figure.low, figure.high) if value is not None]
    with_unit = len({scale(value)[2] for value in ends}) > 1
    interval = _span(figure.low, figure.high, lambda value: _text(value, scale, with_unit=with_unit))
    return Cell(_text(figure.value, scale) + ("" if figure.bounded else UNBOUNDED), interval)


def _span(low: float | None, high: float | None, text: Callable[[float], str]) -> str:
    if low is None:
        return ""
    return f"{text(low)} – {text(high)}" if high is not None and math.isfinite(high) else f"from {text(low)}"


def _bare(value: float | None, scale: Callable[[float], Scale] = seconds) -> Cell:
    return Cell(NEVER if value is None else _text(value, scale))


def _if_any(value: float | None, scale: Callable[[float], Scale] = seconds) -> Cell:
    return Cell(NOTHING if value is None else _text(value, scale))


def _text(value: float, scale: Callable[[float], Scale], *, with_unit: bool = True) -> str:
    factor, decimals, unit = scale(value)
    return f"{factor * value:,.{decimals}f}{unit if with_unit else ''}"
