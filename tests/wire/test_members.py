"""Ranges of members: they re-assemble the body and say what ordinary decoding says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from maitred.core.outcome import Outcome, Refusal
from maitred.wire.members import (
    AGAIN,
    GAPS_BYTES_MAX,
    MEMBERS_MAX,
    SMALL_BYTES_MAX,
    TOO_MANY,
    TOO_WIDE,
    Member,
    members,
    scan,
)
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


def many(count: int) -> bytes:
    """An object of so many members, its end still missing."""
    return b"{" + b",".join([b'"":0'] * count)


def refused(body: bytes) -> str:
    with pytest.raises(Refusal) as caught:
        members(body)
    assert caught.value.outcome is Outcome.BAD_REQUEST
    return caught.value.message


def test_too_many_members_are_refused_where_they_become_too_many() -> None:
    assert len(members(many(MEMBERS_MAX) + b"}")) == MEMBERS_MAX
    assert refused(many(MEMBERS_MAX + 1) + b"}") == TOO_MANY
    assert refused(many(MEMBERS_MAX + 1) + b", what follows is not even looked at") == TOO_MANY


@pytest.mark.parametrize("gap", [b'%b"a":', b'"%b":', b'"a"%b:', b'"a":%b'])
def test_no_more_than_so_much_may_stand_between_values(gap: bytes) -> None:
    assert b"%b" in gap
    fill = b" " * (GAPS_BYTES_MAX // 2)
    twice = b"{" + gap % fill + b'"x",' + gap % fill + b'"x"}'
    spare = len(twice) - 2 * len(b'"x"') - GAPS_BYTES_MAX
    assert len(members(twice.replace(b" " * spare, b"", 1))) == 2
    assert refused(twice) == TOO_WIDE


def test_values_may_be_as_large_as_they_like() -> None:
    assert len(members(b'{"a":"' + b" " * 2 * GAPS_BYTES_MAX + b'","b":1}')) == 2


COMPACT = OBJECTS.map(lambda body: body.translate(None, b" \t\r\n"))
"""Blanks inside of texts go, too; so most of it is written as briefly as can be."""


@given(OBJECTS | COMPACT)
def test_no_key_that_comes_twice_is_missed(body: bytes) -> None:
    names, values, spare = scan(body)
    keys = [key for key, _ in loads(body)]
    assert spare >= AGAIN or len(set(keys)) == len(keys)
    assert list(names) == keys
    assert [loads(bytes(value)) for value in values] == [value for _, value in loads(body)]


def test_only_what_leaves_no_room_for_a_key_that_came_before_is_known_to_have_none() -> None:
    plain = b'{"a":1,"n":2}'
    bodies = plain, b" " * 4 + plain, b" " * 5 + plain, rb'{"\u0061":1}', '{"é":1}'.encode(), b"{}"
    assert [scan(each)[2] for each in bodies] == [0, 4, AGAIN, AGAIN, 1, 1]
    assert scan(b'{"":0,"":0}')[2] == AGAIN
    assert scan(b'{"a":"%b"}' % (b"x" * SMALL_BYTES_MAX))[2] == AGAIN


@given(OBJECTS | COMPACT)
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
