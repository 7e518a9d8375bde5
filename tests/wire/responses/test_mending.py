"""Characters that an engine cut in two."""

from __future__ import annotations

import json

import pytest
from msgspec import DecodeError
from msgspec.json import decode

from maitred.wire.responses.answer import read
from maitred.wire.responses.mending import mending
from maitred.wire.responses.native_said import event
from tests.wire.responses.parts import asked, minting

HALVES = {
    r"\ud83d": "\ufffd",
    r"a\ud83d b": "a\ufffd b",
    r"\ude00\ud83d": "\ufffd\ufffd",
    r"\uD83D\uDE00\uD83D": "😀\ufffd",
    r"\ud83d\ud83d\ude00": "\ufffd😀",
    r"\\ud83d \ud83d": r"\ud83d" + " \ufffd",
    r"\n\"\ud83d\"": '\n"\ufffd"',
}


@pytest.mark.parametrize("said", HALVES)
def test_half_a_pair_is_read_as_what_cannot_be(said: str) -> None:
    assert mending(decode)(f'"{said}"'.encode()) == HALVES[said]


def test_what_is_no_json_still_is_none() -> None:
    for wrong in (b"{", rb'"\ud83d', b'"\\'):
        with pytest.raises(DecodeError):
            mending(decode)(wrong)


def test_neither_tongue_breaks_an_answer_for_it() -> None:
    body = {"choices": [{"message": {"content": "a\ud83d"}, "finish_reason": "stop"}]}
    answer = read(json.dumps(body).encode(), asked(), minting())
    assert (answer.error, json.loads(answer.items[0].data)["content"][0]["text"]) == ("", "a\ufffd")
    assert event(rb'{"type": "response.output_text.delta", "delta": "a\ud83d"}').delta == "a\ufffd"
