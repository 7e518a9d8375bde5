"""What is told of a run, or of two sides compared: once as values, then as JSON, CSV and one HTML file.

The HTML file needs no network and no script. The JSON of a run holds its requests too, so that runs can be
compared later.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import msgspec
from jinja2 import Environment, PackageLoader
from markupsafe import Markup
from msgspec import Struct, structs

from maitred.bench import drawings
from maitred.bench.during import Course
from maitred.bench.figures import Summary, summarize
from maitred.bench.probes import Searched, lines
from maitred.bench.rows import Table, comparison, course, footnotes, overview, probes
from maitred.bench.shot import Run, Shot
from maitred.bench.spans import Spans
from maitred.bench.suspicion import Doubt, doubts, verdict
from maitred.bench.verdict import Verdict
from maitred.sim.rows import seconds
from maitred.wire.answers import UNREADABLE

FORMAT = 2
NO_TIME = ""
"""An instant that never came, in CSV."""


class ReportError(Exception):
    """A file is no run that can be read."""


class Report(Struct, frozen=True):
    """What every form of it shows. `verdict` and `doubts`: how far to trust it; they come first."""

    title: str
    lines: list[str]
    verdict: str
    doubts: list[Doubt]
    tables: list[Table]
    plots: list[str]
    note: str


class Document(Struct, frozen=True, omit_defaults=True):
    """A run as JSON: how far to trust it, its figures, what engines told, what came of a command or a search.

    The run itself, with every request, comes last.
    """

    format: int
    verdict: str
    doubts: list[Doubt]
    figures: Summary
    spans: Spans | None
    during: Course | None
    goodput: Searched | None
    run: Run

    @property
    def ended_early(self) -> bool:
        """Whether Ctrl-C ended it."""
        return self.run.ended_early or (self.goodput is not None and self.goodput.ended_early)


class _Written(Struct):
    """What is the same in all formats."""

    format: int


def of_run(document: Document) -> Report:
    """The report on one run."""
    run = document.run
    tables = overview(document.figures, run, document.spans)
    told = [_about(run)]
    if document.during is not None:
        tables.insert(0, course(document.during))
        told.append(document.during.line)
    if document.goodput is not None:
        tables.insert(0, probes(document.goodput, run.rates_of))
        told += lines(document.goodput, run.rates_of)
    return Report(
        title=f"{run.workload} at {run.target}",
        lines=told,
        verdict=document.verdict,
        doubts=document.doubts,
        tables=tables,
        plots=drawings.of_run(run, document.figures),
        note="Times count from when a request was due. Under a figure stands its 95 % confidence interval.",
    )


def document(
    run: Run, spans: Spans | None = None, during: Course | None = None, goodput: Searched | None = None
) -> Document:
    """A run with all that is told of it."""
    found = doubts(run)
    return Document(FORMAT, verdict(found), found, summarize(run), spans, during, goodput, run)


def of_sides(
    a: Sequence[Run],
    b: Sequence[Run],
    names: tuple[str, str],
    verdicts: Sequence[Verdict],
    caveats: Sequence[str],
) -> Report:
    """The report on two sides compared."""
    found = [doubt for run in (*a, *b) for doubt in doubts(run) if doubt.own]
    return Report(
        title=f"{names[1]} against {names[0]}",
        lines=[f"{name}: {_about(run)}" for name, runs in zip(names, (a, b), strict=True) for run in runs],
        verdict=verdict(found),
        doubts=[*found, *map(Doubt, caveats)],
        tables=[comparison(verdicts, names)],
        plots=drawings.of_sides(dict(zip(names, (a, b), strict=True))),
        note="Percentiles are adjusted: who was not served takes for ever. Intervals are at 99 %.",
    )


def to_json(document: Document) -> bytes:
    """The document as JSON, compact, without the instants of single reads."""
    run = document.run
    shots = [structs.replace(shot, reads_at=()) for shot in run.shots]
    return msgspec.json.encode(structs.replace(document, run=structs.replace(run, shots=shots)))


def verdicts_json(verdicts: Sequence[Verdict]) -> bytes:
    """A comparison as JSON; what is infinite is null."""
    return msgspec.json.format(msgspec.json.encode(verdicts), indent=2)


def read(path: Path) -> Run:
    """The run in a JSON file that `to_json` wrote. Raises ReportError."""
    try:
        content = path.read_bytes()
        written = msgspec.json.decode(content, type=_Written)
        if written.format != FORMAT:
            raise ReportError(f"{path}: has format {written.format}; this program reads {FORMAT}")
        return msgspec.json.decode(content, type=Document).run
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror}") from error
    except UNREADABLE as error:
        raise ReportError(f"{path}: is no run that --out or --json wrote: {error}") from error


def to_csv(run: Run) -> str:
    """One row a request, in the order of their ends, by the names of `Shot`; instants in seconds."""
    out = StringIO()
    names = [name for name in Shot.__struct_fields__ if name != "reads_at"]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*names, "good"])
    for shot in run.shots:
        cells = [_csv(getattr(shot, name)) for name in names]
        writer.writerow([*cells, int(run.good(shot)) if run.promises else NO_TIME])
    return out.getvalue()


def html(report: Report) -> str:
    """The report as one page, whole by itself."""
    environment = Environment(loader=PackageLoader("maitred.bench"), autoescape=True)
    return environment.get_template("report.html").render(
        report=report,
        footnotes=footnotes(report.tables),
        plots=map(Markup, report.plots),  # pygal has escaped them
    )


def _about(run: Run) -> str:
    limits = {"TTFT": run.slo_ttft_s, "TPOT": run.slo_tpot_s}
    promised = [f"{name} {_text(limit_s)}" for name, limit_s in limits.items() if limit_s is not None]
    words = [
        f"{run.duration_s:,.1f} s",
        f"seed {run.seed}",
        f"SLO {' and '.join(promised)}" if promised else "no SLO",
    ]
    if len(run.rates) == 1:
        words.insert(0, f"{next(iter(run.rates.values())):.3g} {run.rates_of}/s")
    if run.workers > 1:
        words.append(f"{run.workers} workers")
    return ", ".join(words)


def _text(value_s: float) -> str:
    factor, _, unit = seconds(value_s)
    return f"{factor * value_s:g}{unit}"


def _csv(value: object) -> object:
    if value is None:
        return NO_TIME
    if isinstance(value, float):
        return f"{value:.6f}" if math.isfinite(value) else NO_TIME
    return getattr(value, "name", value)
