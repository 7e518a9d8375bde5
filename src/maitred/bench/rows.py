"""The figures as tables of text: what the terminal and the page both show."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from maitred.bench.during import Course
from maitred.bench.figures import PERCENTILES, Figure, Part, Summary, Times
from maitred.bench.probes import Searched
from maitred.bench.shot import Run
from maitred.bench.spans import Spans
from maitred.bench.verdict import Verdict
from maitred.sim.rows import NOTHING, UNBOUNDED, Scale, count, seconds, share

ROWS_MAX = 40
TITLE_MAX = 60
NEVER = "failed"
"""A percentile that no time can be told of, since more requests than that were not served."""
FOOTNOTES = {
    UNBOUNDED: f"{UNBOUNDED} no upper bound: too few requests for this percentile, or they hang together",
    NEVER: f"{NEVER}: so many were not served that this percentile has no time",
}


class Cell(Struct, frozen=True):
    """A value, and under it how sure it is."""

    text: str
    interval: str = ""


class Row(Struct, frozen=True):
    """One line of a table."""

    label: str
    cells: list[Cell]


class Table(Struct, frozen=True):
    """Rows under one title, and what the columns are called."""

    title: str
    columns: list[str]
    rows: list[Row]


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
    tables = [
        Table("Requests", ["", "share"], list(_counts(summary.whole))),
        Table("Rates", [""], list(_rates(summary.whole))),
        Table("Where the time goes", ["mean", "share"], list(_where(summary.whole, spans))),
        Table("Times", ["mean", *PERCENTILES, "longest"], list(_times(summary.whole))),
        _groups("By class", summary.classes),
        _groups("By tenant", summary.tenants),
        _groups("By stage", {_stage(number, run): part for number, part in summary.stages.items()}),
    ]
    return [table for table in tables if table.rows]


def comparison(verdicts: Sequence[Verdict], names: tuple[str, str]) -> Table:
    """How B differs from A, figure by figure; a change is infinite where only one side was served at all."""
    rows = []
    for verdict in verdicts:
        scale = _scale(verdict.name)
        sides = [_bare(value if math.isfinite(value) else None, scale) for value in (verdict.a, verdict.b)]
        known = math.isfinite(verdict.a) and math.isfinite(verdict.b)
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


def probes(searched: Searched) -> Table:
    """What a search for goodput tried, by rate."""
    rows = []
    for probe, rung in zip(searched.found.probes, searched.rungs, strict=True):
        goodput = probe.good / probe.attempted if probe.attempted else None
        cells = [
            Cell(f"{probe.attempted:,}"),
            _cell(Figure(goodput, probe.low, probe.high), share),
            _if_any(rung.ttft_p90_s),
            _if_any(rung.tpot_p90_s),
            Cell(_text(rung.output_tokens_per_s, count)),
            Cell(probe.said),
        ]
        rows.append(Row(f"{probe.rate:.3g}/s", cells))
    columns = ["sent", "goodput", "TTFT p90", "TPOT p90", "output tokens, per s", "keeps the SLO"]
    return Table("Search for goodput", columns, rows)


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
    """What the marks in these tables mean."""
    texts = [cell.text for table in tables for row in table.rows for cell in row.cells]
    return [note for mark, note in FOOTNOTES.items() if any(text.endswith(mark) for text in texts)]


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
    columns = ["sent", "done", "refused", "failed", *(["goodput"] if promised else []), *shown]
    rows = []
    for name, part in list(parts.items())[:ROWS_MAX] if len(parts) > 1 else []:
        cells = [Cell(f"{number:,}") for number in (part.requests, part.completed, part.refused, part.failed)]
        if promised:
            cells.append(_bare(part.rates["goodput_share"].value, share))
        cells += [_grouped(part.times.get(time), percentile) for time, percentile in shown.values()]
        rows.append(Row(name, cells))
    return Table(title, columns, rows)


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


def _if_any(value_s: float | None) -> Cell:
    return Cell(NOTHING if value_s is None else _text(value_s, seconds))


def _text(value: float, scale: Callable[[float], Scale], *, with_unit: bool = True) -> str:
    factor, decimals, unit = scale(value)
    return f"{factor * value:,.{decimals}f}{unit if with_unit else ''}"
