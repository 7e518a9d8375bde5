"""`docs/responses.md` says what the code does: every member, item, part, tool and event, and no others."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec import UNSET, structs

from maitred.core.outcome import Outcome, Refusal
from maitred.wire.responses.create import Said
from maitred.wire.responses.events import Events
from maitred.wire.responses.items import Part, ReasoningText, SaidItem, SummaryText
from maitred.wire.responses.response import begin
from maitred.wire.responses.tools import Tool
from tests.wire.responses.parts import asked
from tests.wire.responses.test_create import SUPPORTED
from tests.wire.responses.test_items import KINDS
from tests.wire.responses.test_mcp import of_tools
from tests.wire.responses.test_stream import EVERYTHING, streamed

DOC = (Path(__file__).parents[3] / "docs" / "responses.md").read_text()


def table(head: str) -> dict[str, str]:
    """Rows of the table with this first column: its names, and the rest."""
    rows = DOC[DOC.index(f"\n| {head} |") :].split("\n\n")[0].strip().splitlines()[2:]
    told = {}
    for row in rows:
        first, rest = row.strip("| ").split(" | ", 1)
        told.update(dict.fromkeys(re.findall(r"`([^`]+)`", first), rest))
    return told


def tags(union: Any) -> set[str]:
    return {str(kind.__struct_config__.tag) for kind in get_args(union)}


def test_members() -> None:
    rows = table("member")
    fields = {field.name: field for field in structs.fields(Said)}
    assert set(rows) == set(fields)
    refused = {name for name, rest in rows.items() if rest == "refused"}
    assert refused == {name for name, field in fields.items() if field.default is UNSET}
    assert set(SUPPORTED) == set(rows) - refused


@pytest.mark.parametrize("name", [name for name, rest in table("member").items() if rest == "refused"])
def test_refused(name: str) -> None:
    values: tuple[Any, ...] = ("x", 1, True, {}, [])
    for value in values:
        with pytest.raises(Refusal) as caught:
            asked(**{name: value})
        assert (caught.value.outcome, caught.value.param) == (Outcome.BAD_REQUEST, name)
    asked(**{name: None})


def test_items_and_parts() -> None:
    rows = table("item")
    assert set(rows) == tags(SaidItem)
    assert {item["type"] for item in KINDS} | {"item_reference"} == set(rows)
    assert set(table("part")) == tags(Part) | {
        str(kind.__struct_config__.tag) for kind in (ReasoningText, SummaryText)
    }


def test_tools() -> None:
    assert set(table("tool")) == tags(Tool)


def test_events() -> None:
    told, _ = streamed(EVERYTHING)
    writer, response = Events(), begin(asked(), "resp_1", 5)
    ends = ("created", "queued", "in_progress", "completed", "incomplete", "failed")
    last = [writer.response(kind, response) for kind in ends] + [writer.error("server_error", "away")]
    last += [event for event in of_tools().split(b"\n\n") if event]
    names = {json.loads(event.split(b"\ndata: ")[1])["type"] for event in last}
    assert set(table("event")) == {event["type"] for event in told} | names
