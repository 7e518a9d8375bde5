"""How long an answer may be, and whether it fits into the model's context together with its prompt.

What is too long for the model is refused here, before it waits. But most prompts are known by their bytes
alone, and only the engine counts tokens: so an estimate refuses only what is over by far.
"""

from __future__ import annotations

from msgspec import Raw, Struct
from msgspec.json import Decoder

from maitred.control.models import TokenLimits
from maitred.core.outcome import Outcome, Refusal
from maitred.core.words import Api
from maitred.wire.requests import N_PREDICT, OUTPUT_KEYS, TOKEN_BYTES, Body

KEYS: dict[int, tuple[str, ...]] = {
    Api.CHAT: OUTPUT_KEYS,
    Api.COMPLETIONS: ("max_tokens",),
    Api.MESSAGES: ("max_tokens",),
    Api.RESPONSES: ("max_output_tokens",),
}
"""The APIs whose answers are as long as one likes, and the members that bound them."""
LIMITED_KEYS: dict[int, tuple[str, ...]] = {
    **KEYS,
    Api.CHAT: (*OUTPUT_KEYS, N_PREDICT),
    Api.COMPLETIONS: ("max_tokens", N_PREDICT),
}
"""Those that must be kept within a limit: by one of them an engine will go."""

COMPLETION_TOKENS = 16
"""What OpenAI and most engines give a completion that says nothing; a limit is no reason to give more."""

SURE_TOKEN_BYTES = 2 * TOKEN_BYTES
"""Bytes of text for each token that are nearly always enough."""
ESCAPE, ESCAPE_BYTES = b"\\u", 6
TRUNCATES = b'"truncate_prompt_tokens"'
"""Who says this has the engine cut the prompt to fit."""

_COMPLETIONS = Api.COMPLETIONS
_EMPTY = Raw()


class _Prompt(Struct):
    """What engines make a prompt of; all else may be as large as it likes."""

    messages: Raw = _EMPTY
    prompt: Raw = _EMPTY
    system: Raw = _EMPTY
    tools: Raw = _EMPTY
    instructions: Raw = _EMPTY
    input: Raw = _EMPTY


_decode = Decoder(_Prompt).decode


def output_max(api: Api, asked: Body, limits: TokenLimits) -> int:
    """Tokens that one answer may have: what was asked for, within the limit; 0 for no bound."""
    tokens = asked.output_tokens_max
    if not limits.output:
        return tokens or limits.output_default
    tokens = tokens or asked.output_tokens_most or limits.output_default
    if not tokens:
        tokens = COMPLETION_TOKENS if api is _COMPLETIONS else limits.output
    return min(tokens, limits.output)


def bounded(api: Api, asked: Body, limits: TokenLimits) -> tuple[int, int]:
    """Tokens that one answer may have, and the bound to write into the body; 0 for none."""
    output = output_max(api, asked, limits)
    unsaid = output != asked.output_tokens_max or (limits.output and asked.output_tokens_most > output)
    return output, output if unsaid else 0


def check_fits(api: Api, asked: Body, output: int, context: int, body: bytes) -> None:
    """Raise Refusal when the prompt and an answer of so many tokens are surely too long."""
    if asked.prompts > 1 or TRUNCATES in body:
        return
    prompt, about = asked.prompt_tokens, ""
    if not asked.prompt_exact:
        text_bytes = _prompt_bytes(body) - asked.media_bytes - body.count(ESCAPE) * (ESCAPE_BYTES - 1)
        prompt, about = max(0, text_bytes) // SURE_TOKEN_BYTES, "at least "
    if prompt + output <= context:
        return
    asked_for = f"{about}{prompt + output} tokens"
    message = f"this model's maximum context length is {context} tokens; {asked_for} were requested"
    if api.anthropic:
        message = f"prompt is too long: {asked_for} > {context} maximum"
    if output:
        message += f" ({prompt} in the prompt, {output} for the answer)"
    raise Refusal(Outcome.CONTEXT_TOO_LONG, message)


def _prompt_bytes(body: bytes) -> int:
    said = _decode(body)
    return sum(memoryview(getattr(said, name)).nbytes for name in _Prompt.__struct_fields__)
