"""The figures as rows of text, one column a configuration: what the terminal and the report both show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TypeVar

from msgspec import Struct

from maitred.sim.measure import PERCENTILES, Figure, Figures, Part
from maitred.sim.summary import Change, Summary, compare

SECTIONS_MAX = 40
ROWS_MAX = 20
NOTHING = "–"
UNBOUNDED = "*"
FOOTNOTE = f"{UNBOUNDED} no upper bound: too few requests for this percentile"

Name = TypeVar("Name", str, int)


class Row(Struct, frozen=True):
    """One line: what is shown, and a cell for each configuration."""

    label: str
    cells: list[str]


class Section(Struct, frozen=True):
    """Rows under one title."""

    title: str
    rows: list[Row]


Scale = tuple[float, int, str]
"""How a figure is written: times this, with so many decimals, and this unit."""


def count(value: float) -> Scale:
    """A number of things, or of things a second."""
    return 1, 0 if value >= 100 or value == int(value) else 1, ""


def share(_: float) -> Scale:
    """A part of a whole."""
    return 100, 1, " %"


def seconds(value: float) -> Scale:
    """A duration, to about three digits."""
    if value < 1:
        return 1000, 1 if value < 0.1 else 0, " ms"
    return 1, 2 if value < 10 else 1, " s"


Shown = tuple[str, str, Callable[[float], Scale]]
"""A figure in a table: its label, its name, and how it is written."""

COUNTS: tuple[Shown, ...] = (
    ("requests", "requests", count),
    ("completed", "completed", count),
    ("refused", "refused", count),
    ("failed", "failed", count),
    ("left by the client", "left", count),
    ("goodput, of all sent", "goodput_share", share),
    ("goodput, per s", "goodput_per_s", count),
    ("output tokens, per s", "output_tokens_per_s", count),
    ("prompt tokens cached", "cached_share", share),
    ("preemptions", "preemptions", count),
)
TIMES: tuple[Shown, ...] = tuple(
    (f"{label} {of}", f"{name}_{of}_s", seconds)
    for label, name in (("TTFT", "ttft"), ("TPOT", "tpot"), ("end to end", "e2e"), ("in the queue", "queue"))
    for of in ("mean", *PERCENTILES)
)
BUSY: Shown = ("GPU busy", "busy_share", share)


def overview(summaries: Sequence[Summary]) -> list[Section]:
    """What is asked first: the whole of each configuration, what was refused to whom, who was busy."""
    wholes = [summary.whole.figures for summary in summaries]
    tenants = [summary.tenants for summary in summaries]
    bands = [{name: part for name, part in summary.bands.items() if name} for summary in summaries]
    sections = [
        Section("All requests", _rows((*COUNTS, BUSY, *TIMES), wholes)),
        Section(f"Against {summaries[0].name}", _against(summaries)),
        Section("Refused, by tenant", _outcomes(tenants, lambda part: part.refused)),
        Section("Refused, by band", _outcomes(bands, lambda part: part.refused)),
        Section("Failed, by tenant", _outcomes(tenants, lambda part: part.failed)),
        Section("GPU busy, by endpoint", _busy(summaries)),
    ]
    return [section for section in sections if section.rows]


def details(summaries: Sequence[Summary]) -> list[Section]:
    """The figures of each model, tenant, band and stage, wherever there are several."""
    groups = chain(
        _groups("Model", [summary.models for summary in summaries]),
        _groups("Tenant", [summary.tenants for summary in summaries]),
        _groups("Band", [summary.bands for summary in summaries]),
        _groups("Stage", [summary.stages for summary in summaries]),
    )
    return list(groups)


def has_unbounded(sections: Sequence[Section]) -> bool:
    """Whether any cell needs the footnote."""
    return any(UNBOUNDED in cell for section in sections for row in section.rows for cell in row.cells)


def _rows(shown: Sequence[Shown], columns: Sequence[Figures]) -> list[Row]:
    return [
        Row(label, [_cell(column.get(name), scale) for column in columns])
        for label, name, scale in shown
        if any(name in column for column in columns)
    ]


def _cell(figure: Figure | None, scale: Callable[[float], Scale]) -> str:
    if figure is None:
        return NOTHING
    factor, decimals, unit = scale(figure.mean)
    mean, low, high = (f"{factor * value:,.{decimals}f}" for value in (figure.mean, figure.low, figure.high))
    spread = "" if low == high else f" ({low}–{high})"
    return f"{mean}{unit}{'' if figure.bounded else UNBOUNDED}{spread}"


def _against(summaries: Sequence[Summary]) -> list[Row]:
    base, *others = summaries
    changes = [compare(base, other) for other in others]
    return [
        Row(label, [NOTHING, *(_change(change.get(name)) for change in changes)])
        for label, name, _ in (*COUNTS, *TIMES)
        if any(name in change for change in changes)
    ]


def _change(change: Change | None) -> str:
    if change is None:
        return NOTHING
    return f"{100 * change.share:+,.0f} % {change.verdict}" if change.share else change.verdict


def _outcomes(columns: Sequence[Mapping[str, Part]], of: Callable[[Part], Figures]) -> list[Row]:
    """One row for each name and outcome, the most frequent first."""
    cells: dict[tuple[str, str], list[Figure | None]] = {}
    for index, parts in enumerate(columns):
        for name, part in parts.items():
            for outcome, figure in of(part).items():
                cells.setdefault((name, outcome), [None] * len(columns))[index] = figure
    most = sorted(cells.items(), key=lambda item: -sum(figure.mean for figure in item[1] if figure))
    return [
        Row(f"{name or NOTHING}: {outcome}", [_cell(figure or Figure(0, 0, 0), count) for figure in figures])
        for (name, outcome), figures in most[:ROWS_MAX]
    ]


def _busy(summaries: Sequence[Summary]) -> list[Row]:
    names = list(dict.fromkeys(name for summary in summaries for name in summary.endpoints))
    return [
        Row(name, [_cell(summary.endpoints.get(name, {}).get("busy_share"), share) for summary in summaries])
        for name in names[:ROWS_MAX]
    ]


def _groups(kind: str, columns: Sequence[Mapping[Name, Part]]) -> list[Section]:
    names = sorted({name for parts in columns for name in parts})
    if len(names) < 2:
        return []
    empty = Part({}, {}, {})
    return [
        Section(
            f"{kind} {name}",
            _rows((*COUNTS, *TIMES), [parts.get(name, empty).figures for parts in columns]),
        )
        for name in names[:SECTIONS_MAX]
    ]
