"""Ranges of members: they re-assemble the body and say what ordinary decoding says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from maitred.core.outcome import Refusal
from maitred.wire.members import Member, members
from tests.wire.bodies import OBJECTS


def loads(text: bytes) -> Any:
    """Decode with objects as lists of pairs, which keeps duplicates."""
    return json.loads(text, object_pairs_hook=list)


def test_ranges_by_example() -> None:
    body = rb' { "a" : [1, {"b": "}"}] , "\u0061":"x\\" }'
    assert members(body) == [Member("a", 3, 9, 24), Member("a", 27, 36, 41)]


def test_an_empty_object_has_none() -> None:
    assert members(b" { } ") == []


def test_depth_beyond_the_stack_is_refused() -> None:
    with pytest.raises(Refusal):
        members(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}")


@given(OBJECTS)
def test_ranges_reassemble_the_body(body: bytes) -> None:
    found = members(body)
    pairs = [(member.key, loads(body[member.value_start : member.end])) for member in found]
    assert pairs == loads(body)
    gaps, done = b"", 0
    for member in found:
        assert body[member.start : member.start + 1] == b'"'
        gaps += body[done : member.start]
        done = member.end
    gaps += body[done:]
    assert b"".join(gaps.split()) == b"{" + b"," * (len(found) - 1) + b"}"
