"""What is known of every API's answers: whether they are JSON, and their usage near the end."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maitred.core.words import Usage
from maitred.wire import anthropic, openai
from maitred.wire.answers import Grammar, is_json, usage_near_end
from tests.wire.streams import captured

WHOLE = [
    ("vllm_chat_n2", openai.GRAMMAR, Usage(34, 32, 8)),
    ("llamacpp_chat_n2", openai.GRAMMAR, Usage(34, 33, 4)),
    ("vllm_messages", anthropic.GRAMMAR, Usage(34, 32, 16)),
    ("llamacpp_messages", anthropic.GRAMMAR, Usage(34, 24, 9)),
]


@pytest.mark.parametrize("name", ["vllm_chat_n2", "llamacpp_err_bad_type"])
def test_only_the_whole_of_it_is_json(name: str) -> None:
    body = captured(name).rstrip()
    assert [at for at in range(len(body) + 1) if is_json(body[:at])] == [len(body)]


@pytest.mark.parametrize(
    ("body", "told"),
    [(b"", False), (b"null", True), (b" {}\n", True), (b"{}{}", False), (b"[" * 100_000, False)],
)
def test_odd_json(body: bytes, told: bool) -> None:
    assert is_json(body) is told


# -- usage near the end -----------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "grammar", "usage"), WHOLE)
def test_usage_is_found_while_it_is_there(name: str, grammar: Grammar, usage: Usage) -> None:
    body = captured(name)
    named = body.index(b'"usage"')
    assert all(usage_near_end(body[at:], grammar.read_usage) == usage for at in range(named + 1))
    assert all(usage_near_end(body[at:], grammar.read_usage) is None for at in range(named + 1, len(body)))


@pytest.mark.parametrize(("name", "grammar", "usage"), WHOLE)
def test_usage_is_not_made_up_from_half_of_it(name: str, grammar: Grammar, usage: Usage) -> None:
    body = captured(name)
    whole = re.search(rb'"usage":\{([^{}]|\{[^{}]*\})*\}', body)
    assert whole
    for at in range(len(body)):
        assert usage_near_end(body[:at], grammar.read_usage) == (usage if at >= whole.end() else None)


@pytest.mark.parametrize(
    "tail",
    [
        b"",
        b'"usage"',
        b'"usage": null}',
        b'"usage":null,"timings":{"prompt_tokens":7}}',
        b'"usage":{"prompt_tokens":"many"}}',
        b'"usage":{"prompt_tokens":}}',
        b'{"choices":[{"message":{"content":"\\"usage\\":{\\"prompt_tokens\\":7}"}}]}',
        b'"usage":{"a":' + b"[" * 5000 + b"]" * 5000 + b"}}",
        b'"usage":' + b'{"a":' * 800 + b"7" + b"}" * 800,
    ],
    ids=lambda tail: repr(tail[:40]),
)
def test_no_usage_near_the_end(tail: bytes) -> None:
    assert usage_near_end(tail, openai.read_usage) is None
    assert usage_near_end(tail, anthropic.read_usage) is None


FRAGMENTS = st.sampled_from(
    [b'"usage"', b":", b"{", b"}", b"[", b'"prompt_tokens"', b"7", b",", b"null", b'"', b"\\", b"\xff", b"\n"]
)


@given(st.lists(FRAGMENTS, max_size=24).map(b"".join))
def test_looking_for_usage_never_fails(tail: bytes) -> None:
    usage_near_end(tail, openai.read_usage)
    usage_near_end(tail, anthropic.read_usage)
