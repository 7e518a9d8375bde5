"""Length: limits lower, defaults fill in, and only what is surely too long for the model is refused."""

from __future__ import annotations

import pytest

from maitred.control.models import TokenLimits
from maitred.core.outcome import Outcome, Refusal
from maitred.core.words import Api
from maitred.door.length import COMPLETION_TOKENS, check_fits, output_max
from maitred.wire.requests import MEDIA_TOKENS, Body

CONTEXT = 1000


def fits(asked: Body, output: int = 0, body: bytes = b"", api: Api = Api.CHAT) -> bool:
    try:
        check_fits(api, asked, output, CONTEXT, body)
    except Refusal as refusal:
        return refusal.outcome is not Outcome.CONTEXT_TOO_LONG
    return True


@pytest.mark.parametrize(
    ("said", "limits", "tokens"),
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
    said: int, limits: TokenLimits, tokens: int
) -> None:
    assert output_max(Api.CHAT, Body("m", output_tokens_max=said), limits) == tokens


def test_a_limit_does_not_lengthen_completions() -> None:
    asked = Body("m")
    assert output_max(Api.COMPLETIONS, asked, TokenLimits(output=4000)) == COMPLETION_TOKENS
    assert output_max(Api.COMPLETIONS, asked, TokenLimits(output=4)) == 4
    assert output_max(Api.COMPLETIONS, asked, TokenLimits(output=4000, output_default=100)) == 100


def test_listed_tokens_are_refused_exactly() -> None:
    assert fits(Body("m", prompt_tokens=900, prompt_exact=True), 100)
    assert not fits(Body("m", prompt_tokens=901, prompt_exact=True), 100)


def test_an_estimate_refuses_only_what_is_over_by_far() -> None:
    assert fits(Body("m", prompt_tokens=1800), 100)
    assert not fits(Body("m", prompt_tokens=1802), 100)
    assert not fits(Body("m", prompt_tokens=1), 1001)


def test_media_are_never_the_reason() -> None:
    assert fits(Body("m", prompt_tokens=50 * MEDIA_TOKENS + 10, media=50))


def test_an_escaped_character_is_not_six() -> None:
    body = b"\\u4e2d" * 3000  # estimated at 4,500 tokens
    assert fits(Body("m", prompt_tokens=len(body) // 4), body=body)
    assert not fits(Body("m", prompt_tokens=len(body) // 4), body=b"x" * len(body))


def test_what_others_judge_better_is_left_to_them() -> None:
    long = Body("m", prompt_tokens=100_000, prompt_exact=True)
    assert not fits(long)
    assert fits(long, body=b'{"truncate_prompt_tokens":-1}')
    assert fits(Body("m", prompt_tokens=100_000, prompt_exact=True, prompts=200))


MOST = "this model's maximum context length is 1000 tokens"


@pytest.mark.parametrize(
    ("api", "exact", "message"),
    [
        (Api.COMPLETIONS, True, f"{MOST}; 4000 tokens were requested"),
        (Api.CHAT, False, f"{MOST}; at least 2000 tokens were requested"),
        (Api.MESSAGES, False, "prompt is too long: at least 2000 tokens > 1000 maximum"),
    ],
)
@pytest.mark.parametrize("output", [0, 100])
def test_the_refusal_has_the_words_of_the_api(api: Api, exact: bool, message: str, output: int) -> None:
    with pytest.raises(Refusal) as caught:
        check_fits(api, Body("m", prompt_tokens=4000, prompt_exact=exact), output, CONTEXT, b"")
    prompt = 4000 if exact else 2000
    if output:
        message = message.replace(str(prompt), str(prompt + output))
        message += f" ({prompt} in the prompt, {output} for the answer)"
    assert caught.value.message == message
