"""The response object, as the official client reads it, kept and restored."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.responses import Response as Theirs

from maitred.core.outcome import Outcome
from maitred.wire.responses import response
from maitred.wire.responses.response import Response, Usage, begin, restore
from tests.wire.responses.parts import CUSTOM, FUNCTION, asked, data, known, settled
from tests.wire.responses.test_create import SUPPORTED

ITEMS = settled([{"role": "assistant", "content": "hello"}])
NOT_THEIRS = {"store", "presence_penalty", "frequency_penalty"}


def told(answer: Response) -> dict[str, Any]:
    """What clients see; the official one has a name for all of it, and knows all its values."""
    raw = answer.encode()
    theirs = Theirs.model_validate_json(raw, strict=True)
    assert set(theirs.model_extra or ()) == NOT_THEIRS
    for name in Theirs.model_fields:
        known(getattr(theirs, name))
    members: dict[str, Any] = json.loads(raw)
    return members


def started(**members: Any) -> Response:
    return begin(asked(**members), "resp_1", 5)


def test_the_least() -> None:
    members = told(started())
    assert members["status"] == "in_progress"
    assert (members["created_at"], members["completed_at"]) == (5, None)
    assert (members["output"], members["tools"], members["metadata"]) == ([], [], {})
    assert members["text"] == {"format": {"type": "text"}, "verbosity": "medium"}
    assert (members["tool_choice"], members["truncation"], members["store"]) == ("auto", "disabled", True)
    assert "conversation" not in members


@pytest.mark.parametrize("left_out", ["conversation", "previous_response_id"])
def test_what_was_said_is_told_back(left_out: str) -> None:
    said = {name: value for name, value in SUPPORTED.items() if name != left_out}
    members = told(begin(asked(**said), "resp_1", 5))
    not_told = {"include", "input", "stream", "stream_options", "tools", "text"}
    for name in said.keys() - not_told:
        assert members[name] == said[name]
    assert [tool["name"] for tool in members["tools"]] == [FUNCTION["name"], CUSTOM["name"]]
    assert members["text"]["format"] == {**said["text"]["format"], "description": None}


def test_secrets_of_servers_are_not_told_back() -> None:
    tool = {
        "type": "mcp", "server_label": "s", "server_url": "https://mcp.example.com/a?key=hush",
        "require_approval": "never", "authorization": "hush", "headers": {"x-key": "hush"},
        "allowed_tools": ["a"],
    }  # fmt: skip
    begun = started(tools=[tool])
    assert b"hush" not in begun.encode() + begun.snapshot()
    shown = {name: value for name, value in tool.items() if name not in ("authorization", "headers")}
    assert told(begun)["tools"] == [{**shown, "server_url": "https://mcp.example.com/a"}]


def test_whole() -> None:
    begun = started()
    begun.conclude(ITEMS, Usage(1, output_tokens=2, total_tokens=3), 9)
    members = told(begun)
    assert (members["status"], members["completed_at"]) == ("completed", 9)
    assert members["output"] == [json.loads(item.data) for item in ITEMS]
    assert members["usage"]["total_tokens"] == 3


@pytest.mark.parametrize("reason", ["max_output_tokens", "content_filter", None])
def test_ended_early(reason: str | None) -> None:
    begun = started()
    begun.conclude(ITEMS, None, 9, reason)
    members = told(begun)
    assert (members["status"], members["completed_at"]) == ("incomplete", None)
    assert members["incomplete_details"] == {"reason": reason}


@pytest.mark.parametrize("outcome", Outcome)
def test_failed(outcome: Outcome) -> None:
    begun = started()
    begun.fail(outcome, "it went wrong", ITEMS)
    members = told(begun)
    assert members["status"] == "failed"
    assert members["error"]["message"] == "it went wrong"
    assert len(members["output"]) == 1


@pytest.mark.parametrize("status", ["queued", "in_progress"])
def test_in_the_background(status: Any) -> None:
    assert told(begin(asked(background=True), "resp_1", 5, status=status))["status"] == status


@pytest.mark.parametrize("left_out", ["conversation", "previous_response_id"])
def test_kept_and_restored(left_out: str) -> None:
    begun = begin(asked(**{k: v for k, v in SUPPORTED.items() if k != left_out}), "resp_1", 5)
    begun.conclude(ITEMS, Usage(), 9)
    assert ITEMS[0].data not in begun.snapshot()
    assert told(restore(begun.snapshot(), data(ITEMS))) == told(begun)


def test_deleted() -> None:
    assert json.loads(response.deleted("resp_1")) == {"id": "resp_1", "object": "response", "deleted": True}
