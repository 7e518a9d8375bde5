"""Length: limits lower, defaults fill in, and only what is surely too long for the model is refused."""

from __future__ import annotations

import json

import pytest

from maitred.control.models import TokenLimits
from maitred.core.outcome import Outcome, Refusal
from maitred.core.words import Api
from maitred.door.length import (
    COMPLETION_TOKENS,
    KEYS,
    LIMITED_KEYS,
    SURE_TOKEN_BYTES,
    check_fits,
    output_max,
)
from maitred.wire.requests import Body, decode

CONTEXT = 1000


def fits(body: object, output: int = 0, api: Api = Api.CHAT) -> bool:
    raw = json.dumps(body).encode()
    try:
        check_fits(api, decode(api, raw), output, CONTEXT, raw)
    except Refusal as refusal:
        return refusal.outcome is not Outcome.CONTEXT_TOO_LONG
    return True


def said(text_bytes: int, **more: object) -> dict[str, object]:
    """A body with so many bytes of messages."""
    message = {"role": "user", "content": ""}
    message["content"] = "x" * (text_bytes - len(json.dumps([message])))
    return {"model": "m", "messages": [message], **more}


@pytest.mark.parametrize(
    ("asked", "limits", "tokens"),
    [
        (0, TokenLimits(), 0),
        (50, TokenLimits(), 50),
        (50, TokenLimits(output=40), 40),
        (30, TokenLimits(output=40, output_default=10), 30),
        (0, TokenLimits(output=40, output_default=10), 10),
        (0, TokenLimits(output=40), 40),
        (0, TokenLimits(output=40, output_default=90), 40),
        (0, TokenLimits(output_default=10), 10),
    ],
)
def test_an_answer_is_lowered_to_the_limit_and_never_raised(
    asked: int, limits: TokenLimits, tokens: int
) -> None:
    assert output_max(Api.CHAT, Body("m", output_tokens_max=asked), limits) == tokens


def test_whatever_is_generated_has_members_that_bound_it() -> None:
    assert set(KEYS) == set(LIMITED_KEYS) == {api for api in Api if api.generates}


def test_a_limit_does_not_lengthen_completions() -> None:
    asked = Body("m")
    assert output_max(Api.COMPLETIONS, asked, TokenLimits(output=4000)) == COMPLETION_TOKENS
    assert output_max(Api.COMPLETIONS, asked, TokenLimits(output=4)) == 4
    assert output_max(Api.COMPLETIONS, asked, TokenLimits(output=4000, output_default=100)) == 100


def test_listed_tokens_are_refused_exactly() -> None:
    assert fits({"model": "m", "prompt": [7] * 900}, 100, Api.COMPLETIONS)
    assert not fits({"model": "m", "prompt": [7] * 901}, 100, Api.COMPLETIONS)


def test_an_estimate_refuses_only_what_is_over_by_far() -> None:
    assert fits(said(900 * SURE_TOKEN_BYTES), 100)
    assert not fits(said(901 * SURE_TOKEN_BYTES), 100)
    assert not fits(said(100), 1001)


@pytest.mark.parametrize("member", ["prompt", "system", "tools"])
def test_all_that_becomes_a_prompt_counts_and_nothing_else(member: str) -> None:
    api = {"prompt": Api.COMPLETIONS, "system": Api.MESSAGES}.get(member, Api.CHAT)
    assert not fits(said(100, **{member: "x" * 10_000}), api=api)
    assert fits(said(100, metadata="x" * 10_000), api=api)


def test_media_are_never_the_reason() -> None:
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBORw0KGgo" * 10_000}}
    assert fits({"model": "m", "messages": [{"role": "user", "content": [part] * 50}]})


def test_an_escaped_character_is_not_six() -> None:
    assert fits({"model": "m", "messages": [{"content": "\u4e2d" * 3000}]})
    assert not fits({"model": "m", "messages": [{"content": "x" * 18_000}]})


def test_what_others_judge_better_is_left_to_them() -> None:
    long = said(100_000)
    assert not fits(long)
    assert fits({**long, "truncate_prompt_tokens": -1})
    assert fits({"model": "m", "prompt": ["x" * 100_000] * 2}, api=Api.COMPLETIONS)


MOST = "this model's maximum context length is 1000 tokens"


@pytest.mark.parametrize(
    ("api", "body", "message"),
    [
        (Api.COMPLETIONS, {"model": "m", "prompt": [7] * 2000}, f"{MOST}; 2000 tokens were requested"),
        (Api.CHAT, said(16_000), f"{MOST}; at least 2000 tokens were requested"),
        (Api.MESSAGES, said(16_000), "prompt is too long: at least 2000 tokens > 1000 maximum"),
    ],
)
@pytest.mark.parametrize("output", [0, 100])
def test_the_refusal_has_the_words_of_the_api(
    api: Api, body: dict[str, object], message: str, output: int
) -> None:
    raw = json.dumps(body).encode()
    with pytest.raises(Refusal) as caught:
        check_fits(api, decode(api, raw), output, CONTEXT, raw)
    if output:
        message = message.replace("2000", "2100") + " (2000 in the prompt, 100 for the answer)"
    assert caught.value.message == message
