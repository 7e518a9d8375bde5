"""Events: their numbers, and how a stream that was kept is told again."""

from __future__ import annotations

import pytest

from maitred.wire.responses.events import DONE, Events, after, number
from maitred.wire.responses.response import begin
from tests.wire.responses.parts import asked, data, events, settled

RESPONSE = begin(asked(), "resp_1", 5)


@pytest.mark.parametrize("kind", ["created", "queued", "in_progress", "completed", "incomplete", "failed"])
def test_the_response_as_it_is(kind: str) -> None:
    [told] = events(Events(7).response(kind, RESPONSE))
    assert (told["type"], told["sequence_number"]) == (f"response.{kind}", 7)
    assert told["response"]["id"] == "resp_1"


def test_an_item_that_is_there_at_once() -> None:
    [item] = settled([{"type": "mcp_list_tools", "server_label": "s", "tools": []}])
    writer = Events(output_index=2)
    added, done = events(writer.item(item))
    assert added["item"] == done["item"]
    assert (added["output_index"], done["sequence_number"]) == (2, 1)
    assert writer.output_index == 3


def test_an_error_that_no_response_tells() -> None:
    [told] = events(Events().error("server_error", "away"))
    assert told == {
        "type": "error", "code": "server_error", "message": "away", "param": None, "sequence_number": 0
    }  # fmt: skip


@pytest.mark.parametrize("sequence", range(-1, 5))
def test_told_again_after_a_number(sequence: int) -> None:
    writer = Events()
    parts = [
        writer.response("created", RESPONSE),
        writer.event("response.output_text.delta", {"delta": 'a: 3}\n\n"sequence_number":9}'}),
        writer.item(settled("hi")[0]),
    ]
    again = after(b"".join(parts), sequence)
    assert [number(event) for event in again.split(b"\n\n")[:-1]] == list(range(sequence + 1, 4))
    assert b"".join(parts).endswith(again)


def test_the_last_word_is_what_clients_stop_at() -> None:
    assert DONE == b"data: [DONE]\n\n"
    assert data(settled("hi"))
