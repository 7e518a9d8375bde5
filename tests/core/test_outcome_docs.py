"""Every outcome is documented as it is, and nothing else is."""

from __future__ import annotations

from pathlib import Path

from maitred.core.outcome import Outcome

DOCS = Path(__file__).parents[2] / "docs" / "outcomes.md"


def test_the_table_is_the_list() -> None:
    rows = [row.split("|")[1:6] for row in DOCS.read_text().splitlines() if row.startswith("| `")]
    told = [[cell.replace("`", "").strip() for cell in row] for row in rows]
    retry = {True: "true", False: "false", None: ""}
    assert told == [
        [o.label, str(o.status), o.code, f"{o.anthropic_status} {o.anthropic_kind}".strip(), retry[o.retry]]
        for o in Outcome
    ]
