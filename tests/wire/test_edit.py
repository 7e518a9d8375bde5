"""Edits: exactly the named bytes change, whatever the body looks like and wherever the answer is cut."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.json import encode

from maitred.core.outcome import Outcome, Refusal
from maitred.core.words import Api
from maitred.wire.edit import Edits, Renamer, apply
from maitred.wire.members import MEMBERS_MAX, TOO_MANY
from maitred.wire.requests import KEYS_READ, N_PREDICT, OUTPUT_KEYS, decode
from tests.wire.bodies import BLANKS, TEXTS, VALUES, holed, member

INSERTED = b'"stream_options":{"include_usage":true},'
USAGE = Edits(include_usage=True)
CHAT = Edits(output_tokens=8, output_keys=OUTPUT_KEYS)
MODELS = TEXTS.filter(lambda text: text != '""')
OPTIONS = st.lists(member(st.sampled_from(["x", "continuous_usage_stats"]), VALUES), max_size=3)


def applied(body: bytes, edits: Edits) -> bytes:
    return b"".join(apply(body, edits))


@given(holed("model", MODELS), st.text(max_size=5))
def test_the_model_alone_changes(body: tuple[bytes, bytes, bytes], served: str) -> None:
    before, model, after = body
    whole = before + model + after
    decode(Api.COMPLETIONS, whole)
    parts = apply(whole, Edits(model=served))
    assert b"".join(parts) == before + encode(served) + after
    assert json.loads(b"".join(parts)) == json.loads(whole) | {"model": served}
    assert b"".join(part for part in parts if isinstance(part, memoryview)) == before + after


@given(holed("model", MODELS))
def test_include_usage_is_put_in_first(body: tuple[bytes, bytes, bytes]) -> None:
    whole = b"".join(body)
    result = applied(whole, USAGE)
    head, brace, tail = whole.partition(b"{")
    assert result == head + brace + INSERTED + tail
    assert json.loads(result) == json.loads(whole) | {"stream_options": {"include_usage": True}}


@given(holed("stream_options", st.just("null"), '"model":"m"'))
def test_include_usage_replaces_null(body: tuple[bytes, bytes, bytes]) -> None:
    before, _, after = body
    assert applied(b"".join(body), USAGE) == before + b'{"include_usage":true}' + after


@given(holed("stream_options", st.just("HOLE"), '"model":"m"'), BLANKS, OPTIONS)
def test_include_usage_joins_other_options(
    body: tuple[bytes, bytes, bytes], blanks: str, options: list[str]
) -> None:
    before, _, after = body
    inside = (blanks + ",".join(options) + "}").encode()
    comma = b"," if options else b""
    whole = before + b"{" + inside + after
    assert applied(whole, USAGE) == before + b'{"include_usage":true' + comma + inside + after


@given(
    holed("stream_options", st.just("HOLE"), '"model":"m"'),
    holed("include_usage", st.just("false") | st.just("null")),
)
def test_include_usage_becomes_true(
    body: tuple[bytes, bytes, bytes], options: tuple[bytes, bytes, bytes]
) -> None:
    before, _, after = body
    head, value, tail = before + options[0].lstrip(), options[1], options[2].rstrip() + after
    assert applied(head + value + tail, USAGE) == head + b"true" + tail
    assert apply(head + b"true" + tail, USAGE) == [head + b"true" + tail]


@given(holed("model", MODELS, '"stream_options": {"include_usage": false, "x": 1e5}'))
def test_both_edits_at_once(body: tuple[bytes, bytes, bytes]) -> None:
    before, model, after = body
    whole = before + model + after
    wanted = (before + b'"a/b"' + after).replace(b'{"include_usage": false,', b'{"include_usage": true,')
    assert applied(whole, Edits("a/b", include_usage=True)) == wanted


@given(st.integers(0, 60), st.binary(max_size=3) | st.sampled_from([b'"x":0,', b'"model":"n",', b"\n"]))
def test_whatever_was_read_can_be_edited(at: int, damage: bytes) -> None:
    whole = b'{"model":"m","stream_options":{"x":0},"prompt":["a",1e5]}'
    body = whole[:at] + damage + whole[at:]
    try:
        decode(Api.COMPLETIONS, body)
        result = json.loads(applied(body, Edits("s", include_usage=True)))
    except Refusal:
        return
    assert (result["model"], result["stream_options"]["include_usage"]) == ("s", True)


@given(holed("x", st.just("1"), '"model":"m"'))
def test_a_bound_of_the_answer_is_put_in_first(body: tuple[bytes, bytes, bytes]) -> None:
    whole = b"".join(body)
    head, brace, tail = whole.partition(b"{")
    assert applied(whole, CHAT) == head + brace + b'"max_completion_tokens":8,' + tail
    result = applied(whole, Edits(include_usage=True, output_tokens=8, output_keys=("max_tokens",)))
    assert result == head + brace + INSERTED + b'"max_tokens":8,' + tail


@pytest.mark.parametrize("key", ["max_tokens", "max_completion_tokens"])
@given(st.data())
def test_a_bound_that_is_there_is_replaced(key: str, data: st.DataObject) -> None:
    before, _, after = data.draw(holed(key, st.sampled_from(["null", "4096"]), '"model":"m"'))
    assert applied(before + b"4096" + after, CHAT) == before + b"8" + after


def test_of_two_bounds_both_are_replaced() -> None:
    body = b'{"max_tokens":9,"model":"m","max_completion_tokens":null}'
    assert applied(body, CHAT) == b'{"max_tokens":8,"model":"m","max_completion_tokens":8}'
    edits = Edits(model="s", include_usage=True, output_tokens=8, output_keys=("max_tokens",))
    assert json.loads(applied(body, edits)) == {
        "max_tokens": 8,
        "model": "s",
        "max_completion_tokens": None,
        "stream_options": {"include_usage": True},
    }


def test_a_bound_is_only_ever_lowered() -> None:
    keys = (*OUTPUT_KEYS, N_PREDICT)
    for said, got in ((b"7", b"7"), (b"8", b"8"), (b"9", b"8"), (b"0", b"0"), (b"-1", b"8"), (b"null", b"8")):
        body = b'{"model":"m","max_tokens":5,"n_predict":' + said + b"}"
        assert applied(body, Edits(output_tokens=8, output_keys=keys)) == body.replace(
            said + b"}", got + b"}"
        )


def test_where_only_one_engine_s_word_is_said_another_is_put_in() -> None:
    edits = Edits(output_tokens=8, output_keys=("max_tokens", N_PREDICT))
    assert applied(b'{"model":"m","n_predict":9}', edits) == b'{"max_tokens":8,"model":"m","n_predict":8}'


def test_nothing_to_do_is_the_same_bytes() -> None:
    body = b'{"model":"m","model":"m"}'
    assert apply(body, Edits())[0] is body


@pytest.mark.parametrize("edits", [USAGE, CHAT, Edits(model="x")])
@pytest.mark.parametrize("key", KEYS_READ)
def test_a_key_we_read_that_comes_twice_is_refused(key: str, edits: Edits) -> None:
    for again in (key, f"\\u{ord(key[0]):04x}{key[1:]}"):
        body = f'{{"model":"m","{key}":null,"x":"{key}","{again}":null}}'.encode()
        with pytest.raises(Refusal) as caught:
            apply(body, edits)
        assert (caught.value.outcome, caught.value.param) == (Outcome.BAD_REQUEST, key)


def test_include_usage_that_comes_twice_is_refused() -> None:
    body = b'{"model":"m","stream_options":{"include_usage":true,"include_usage":false}}'
    with pytest.raises(Refusal) as caught:
        apply(body, USAGE)
    assert caught.value.param == "stream_options.include_usage"


@pytest.mark.parametrize("edits", [USAGE, Edits(model="x")])
def test_too_many_members_are_refused(edits: Edits) -> None:
    for body in (b'{"model":"m"%b}', b'{"model":"m","stream_options":{"x":0%b}}'):
        crowded = body % (b',"x":0' * MEMBERS_MAX)
        if edits == USAGE or b"options" not in body:
            with pytest.raises(Refusal) as caught:
                apply(crowded, edits)
            assert (caught.value.outcome, caught.value.message) == (Outcome.BAD_REQUEST, TOO_MANY)


def test_other_duplicates_pass() -> None:
    body = b'{"x":1,"model":"m","x":{"model":1,"model":2}}'
    assert applied(body, Edits(model="y")) == b'{"x":1,"model":"y","x":{"model":1,"model":2}}'


EVENT = b'data: {"id":"1","model":"Qwen/Q","choices":[{"delta":{"content":"\\"model\\":\\"Qwen/Q\\""}}]}\n\n'


def test_an_event_gets_its_alias_and_never_waits() -> None:
    renamer = Renamer("Qwen/Q", 'my "q"')
    renamed = EVENT.replace(b'"model":"Qwen/Q"', rb'"model":"my \"q\""')
    assert renamer.feed(EVENT) == renamed != EVENT
    assert renamer.feed(EVENT.replace(b'el":"', b'el": "')) == renamed.replace(b'el":"', b'el": "')
    assert renamer.flush() == b""


@pytest.mark.parametrize(
    "data",
    [
        b'{"model":"Qwen/Q2"}',
        b'{"model":  "Qwen/Q"}',
        b'{"content":"\\"model\\":\\"Qwen/Q\\""}',
        b'{"ends in \\"model":"Qwen/Q"}',
        b'"model":"Qwen/Q',
    ],
)
def test_what_is_not_the_member_stays(data: bytes) -> None:
    renamer = Renamer("Qwen/Q", "q")
    assert renamer.feed(data) + renamer.flush() == data
    pieces = [renamer.feed(data[at : at + 1]) for at in range(len(data))]
    assert b"".join(pieces) + renamer.flush() == data


def test_only_a_possible_start_is_held() -> None:
    renamer = Renamer('a"b', "q")
    assert renamer.feed(b'{"id":1,"model": "a\\') == b'{"id":1,'
    assert renamer.feed(b'"c"}') == b'"model": "a\\"c"}'
    assert renamer.feed(b"text \\") == b"text "
    assert renamer.feed(b'"model":"a\\"b"') == b'\\"model":"a\\"b'
    assert renamer.flush() == b'"'


@pytest.mark.parametrize("member", [b'"model":"a\\"b"', b'"model": "a\\"b"'])
def test_every_start_is_held_and_no_whole(member: bytes) -> None:
    renamer = Renamer('a"b', "q")
    for cut in range(1, len(member)):
        assert renamer.feed(b"{" + member[:cut]) == b"{"
        assert renamer.feed(member[cut:]) == member.replace(b'a\\"b', b"q")
    assert renamer.flush() == b""


FRAGMENTS = st.sampled_from(
    [b'"model":', b'"model": ', b'"a\\"b"', b'"a', b'\\"b"', b'"', b"\\", b"mod", b'el":', b" ", b"\n", b"x"]
)


@example(b'\\"model":"a\\"b"model":"a\\"b"', [26])
@given(st.lists(FRAGMENTS, max_size=12).map(b"".join), st.lists(st.integers(0, 60), max_size=6))
def test_cuts_make_no_difference(data: bytes, cuts: list[int]) -> None:
    whole = Renamer('a"b', "model")
    wanted = whole.feed(data) + whole.flush()
    renamer = Renamer('a"b', "model")
    edges = [0, *sorted(cuts), len(data)]
    given_out = b"".join(renamer.feed(data[edge:end]) for edge, end in pairwise(edges))
    assert given_out + renamer.flush() == wanted


@given(holed("cache_salt", TEXTS, '"model":"m"'))
def test_the_clients_salt_gives_way_to_ours(body: tuple[bytes, bytes, bytes]) -> None:
    before, _, after = body
    assert applied(b"".join(body), Edits(cache_salt="ours")) == before + b'"ours"' + after


def test_a_salt_is_put_in_beside_what_else_changes() -> None:
    body = b' {"model":"m"}'
    assert applied(body, Edits(cache_salt="ours")) == b' {"cache_salt":"ours","model":"m"}'
    everything = Edits("n", True, 8, OUTPUT_KEYS, "ours")
    assert json.loads(applied(body, everything)) == {
        "model": "n",
        "stream_options": {"include_usage": True},
        "max_completion_tokens": 8,
        "cache_salt": "ours",
    }
