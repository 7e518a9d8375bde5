"""The report in the terminal. Imported only by who shows one, for rich takes its time to load."""

from __future__ import annotations

from typing import TextIO

from rich import box
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table as Drawn
from rich.text import Text

from maitred.bench.report import Report
from maitred.bench.rows import Cell, Table, footnotes

WIDTH = 124


def show(report: Report, out: TextIO) -> None:
    """Write the report: what speaks against it first, then the tables; plain where it is no terminal."""
    console = Console(file=out, width=None if out.isatty() else WIDTH, highlight=False)
    console.print(Text(report.title, style="bold"))
    for line in report.lines:
        console.print(Text(line))
    if report.verdict:
        console.print(Text(report.verdict, style="bold red"))
    for doubt in report.doubts:
        console.print(Text(f"- {doubt.text}", style="red" if doubt.own else "yellow"))
    for table in report.tables:
        console.print()
        console.print(_drawn(table, lines=console.is_terminal))
    for note in (report.note, *footnotes(report.tables)):
        console.print(Text(note))


def _drawn(table: Table, *, lines: bool) -> Group:
    drawn = Drawn(box=box.SIMPLE_HEAD if lines else None, pad_edge=False, show_edge=False)
    drawn.add_column("", overflow="fold")
    for column in table.columns:
        drawn.add_column(Text(column), justify="right")
    for row in table.rows:
        drawn.add_row(Text(row.label), *map(_text, row.cells))
    return Group(Text(table.title, style="bold"), Padding(drawn, (0, 0, 0, 2), expand=False))


def _text(cell: Cell) -> Text:
    text = Text(cell.text)
    if cell.interval:
        text.append(f"\n{cell.interval}", style="dim")
    return text
