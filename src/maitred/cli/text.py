"""How the commands print what others have a say in."""

from __future__ import annotations

from collections.abc import Sequence


def columns(lines: Sequence[Sequence[str]]) -> str:
    """A table, the columns two spaces apart."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def plain(value: object) -> str:
    """Text without what a terminal would obey: engines and files have a say in it."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(value))
