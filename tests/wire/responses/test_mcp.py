"""Items of tools that the gateway runs: their events, their names, lists of them."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from maitred.wire.mcp import Tool
from maitred.wire.responses.events import Events
from maitred.wire.responses.items import McpCall, McpListTools, keep
from maitred.wire.responses.mcp import CALLING, LISTING, Listed, Told, listed, listed_before, raw
from maitred.wire.responses.tools import function_name
from tests.wire.responses.parts import EVENT


def of_tools() -> bytes:
    """All events there are, of a list and a call that are well and of those that fail."""
    events = Events()
    told = b""
    for failed in (False, True):
        listing, calling = Told(events, LISTING, "mcpl_1"), Told(events, CALLING, "mcp_1")
        tools = McpListTools(id="mcpl_1", server_label="s", tools=[], error="away" if failed else None)
        call = McpCall(id="mcp_1", server_label="s", name="t", arguments="", status="in_progress")
        told += listing.begin(tools) + calling.begin(call) + calling.arguments("{}")
        told += listing.end(keep(tools, "mcpl_1"), failed=failed) + calling.end(
            keep(call, "mcp_1"), failed=failed
        )
    return told


def test_the_official_client_reads_all_events() -> None:
    blocks = of_tools().split(b"\n\n")[:-1]
    events = [json.loads(block.split(b"\ndata: ")[1]) for block in blocks]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    for event in events:
        assert EVENT.validate_python(event).type == event["type"]


def test_a_tool_is_listed_and_found_again() -> None:
    schema = Raw(b'{"type":"object"}')
    tool = listed(Tool("t", schema, "does", Raw(b'{"readOnlyHint":true}')))
    assert (tool.read_only, tool.parameters) == (True, {"type": "object"})
    item = McpListTools(server_label="s", tools=raw([tool]))
    [found] = listed_before(item) or []
    assert (found.name, found.description, found.read_only) == ("t", "does", True)


@pytest.mark.parametrize("tools", [[b"1"], [b'{"name":"t"}'], [b'{"name":1,"input_schema":{}}']])
def test_a_list_that_is_none_is_not_gone_by(tools: list[bytes]) -> None:
    item = McpListTools(server_label="s", tools=[Raw(tool) for tool in tools])
    assert listed_before(item) is None
    assert listed_before(McpListTools(server_label="s", tools=[], error="away")) is None


@pytest.mark.parametrize("odd", [b"[]", b"1", b'"x"', b"null"])
def test_what_a_server_says_oddly_is_taken_for_nothing(odd: bytes) -> None:
    tool = Listed("t", Raw(odd), None, Raw(odd))
    assert tool.parameters == {"type": "object"}
    assert not tool.read_only


@given(st.text(min_size=1, max_size=128), st.text(max_size=300))
def test_functions_have_names_that_engines_take(label: str, tool: str) -> None:
    name = function_name(label, tool)
    assert re.fullmatch("[A-Za-z0-9_-]{1,64}", name)
    assert name == function_name(label, tool)


def test_names_that_had_to_be_changed_stay_apart() -> None:
    assert function_name("s", "t") == "s__t"
    names = {function_name("s", tool) for tool in ("a.b", "a b", "a/b", "a_b", "é", "x" * 90, "x" * 91)}
    assert len(names) == 7
