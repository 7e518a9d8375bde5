"""Answers captured from real engines."""

from __future__ import annotations

from pathlib import Path

DATA = Path(__file__).parents[1] / "data" / "engines"


def captured(name: str) -> bytes:
    """The body of a captured exchange: all after its last blank line."""
    return (DATA / name).read_bytes().rpartition(b"\n\n")[2]
