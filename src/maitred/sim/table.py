"""The figures as a table in the terminal. Imported only by who shows one, for rich takes its time to load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from maitred.sim.rows import FOOTNOTE, has_unbounded, overview
from maitred.sim.summary import Summary

WIDTH = 100


def show(summaries: Sequence[Summary], out: TextIO) -> None:
    """Write the overview, one column a configuration: with lines in a terminal, plain elsewhere."""
    console = Console(file=out, width=None if out.isatty() else WIDTH, highlight=False)
    table = Table(box=box.SIMPLE_HEAD if console.is_terminal else None, pad_edge=False)
    table.add_column("")
    for summary in summaries:
        table.add_column(Text(summary.name), justify="right", overflow="fold")
    sections = overview(summaries)
    for section in sections:
        table.add_row(Text(section.title, style="bold"))
        for row in section.rows:
            table.add_row(Text(f"  {row.label}"), *map(Text, row.cells))
        table.add_row()
    console.print(table)
    if has_unbounded(sections):
        console.print(Text(FOOTNOTE))
