"""What engines say when they refuse, wherever it stands; a prompt that is too long by its numbers."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maitred.engines.errors import WORDS_MAX, overflow, words
from tests.engines.captures import captured


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"error": {"message": "no", "type": "BadRequestError", "code": 400}}, "no"),
        ({"type": "error", "error": {"type": "BadRequestError", "message": "no"}}, "no"),
        ({"object": "error", "message": "no", "type": "BadRequestError", "code": 400}, "no"),
        ({"error": {"message": "no"}, "message": "outer", "detail": "outer"}, "no"),
        ({"error": "no", "error_type": "validation"}, "no"),
        ({"detail": "no"}, "no"),
        ({"error": {"message": ""}, "detail": "no"}, "no"),
        ({"error": None, "message": None, "detail": "no"}, "no"),
    ],
)
def test_the_message_is_found_in_any_shape(body: object, said: str) -> None:
    assert words(json.dumps(body).encode()) == said


@pytest.mark.parametrize(
    "body",
    ["Not Found", "<html><h1>404</h1></html>", '{"detail":[{"loc":["body"],"msg":"x"}]}', "[]", "7", '{"a":'],
)
def test_where_there_is_none_the_text_speaks(body: str) -> None:
    assert words(f" {body}\n".encode()) == body


def test_text_is_bounded_and_always_text() -> None:
    assert words(b"x" * 5000) == "x" * WORDS_MAX
    assert words(b"\xff\x00no") == "\N{REPLACEMENT CHARACTER}\0no"
    assert words(b" \r\n") == ""
    assert words(b"[" * 100_000) == "[" * WORDS_MAX


def test_real_refusals_are_understood() -> None:
    assert words(captured("llamacpp_err_bad_type.txt")).startswith("Field 'temperature'")
    assert words(captured("vllm_err_unknown_model.txt")).startswith("The model `nope` does not exist.")
    assert words(captured("vllm_err_404.txt")) == "Not Found"


# -- a prompt that is too long ------------------------------------------------------------------------


def test_real_overflows_are_known_by_their_numbers() -> None:
    assert overflow(captured("vllm_err_overlong.txt")) == (2049, 2048)
    assert overflow(captured("llamacpp_err_overlong.txt")) == (6031, 2048)


VLLM = "This model's maximum context length is 4096 tokens"
SGLANG = (
    "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total"
)
SENTENCES = {
    f"{VLLM}. However, you requested 1000 output tokens and your prompt contains at least 3097 input tokens,"
    " for a total of at least 4097 tokens. Please reduce the length of the input prompt.": 4097,
    f"{VLLM}. However, you requested 1000 output tokens and your prompt contains 90000 characters (more than"
    " 30960 characters, which is the upper bound for 3096 input tokens).": 4097,
    "You passed 3097 input tokens and requested 1000 output tokens. However, the model's context length is"
    " only 4096 tokens, resulting in a maximum input length of 3096 tokens.": 4097,
    f"{VLLM}. However, your prompt contains 90000 characters (more than 40960 characters, which is the upper"
    " bound for 4096 input tokens). Please reduce the length of the input prompt.": 4097,
    f"{VLLM}. However, your request has 5000 input tokens. Please reduce the length of the messages.": 5000,
    f"{VLLM}. However, you requested 5100 tokens (5000 in the messages, 100 in the completion).": 5000,
    "The input (5000 tokens) is longer than the model's context length (4096 tokens).": 5000,
    f"{SGLANG} of 5100 tokens: 5000 tokens from the input messages and 100 tokens for the completion.": 5000,
    "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it": 5000,
    "request (4096 tokens) exceeds the available context size (4096 tokens), try increasing it": 4097,
}


@pytest.mark.parametrize("sentence", SENTENCES)
def test_engines_sentences_are_read(sentence: str) -> None:
    for body in ({"error": {"message": sentence}}, {"object": "error", "message": sentence}):
        assert overflow(json.dumps(body).encode()) == (SENTENCES[sentence], 4096)


@pytest.mark.parametrize(
    "sentence",
    [
        # the output is too long
        "max_tokens=5000 cannot be greater than max_model_len=4096. Please request fewer output tokens.",
        f"'max_tokens' is too large: 4000. {VLLM} and your request has 100 input tokens (4000 > 4096 - 100).",
        f"{VLLM}. However, you requested 4096 output tokens and your prompt contains at least 1 input tokens",
        f"{VLLM}. However, you requested 4100 tokens (100 in the messages, 4000 in the completion).",
        f"{SGLANG} of 4100 tokens: 100 tokens from the input messages and 4000 tokens for the completion.",
        # not both numbers
        f"{VLLM}. Please reduce the length of the messages.",
        "the request exceeds the available context size, try increasing it",
        f"{VLLM}. However, your request has {'9' * 5000} input tokens.",
        # already said
        "prompt is too long: 5000 tokens > 4096 maximum",
        "",
    ],
)
def test_other_errors_are_none(sentence: str) -> None:
    assert overflow(json.dumps({"error": {"message": sentence}}).encode()) is None


def test_members_tell_without_a_sentence() -> None:
    assert overflow(b'{"error":{"message":"too long","n_prompt_tokens":9,"n_ctx":8}}') == (9, 8)
    assert overflow(b'{"error":{"message":"too long","n_prompt_tokens":"9","n_ctx":8}}') is None


@given(st.binary())
def test_no_body_is_too_odd(body: bytes) -> None:
    assert isinstance(words(body), str)
    assert overflow(body) is None
