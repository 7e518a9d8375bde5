"""Request bodies of the APIs the twin speaks, and what each asks for in the end: answers to prompts.

Unknown members are ignored, as vLLM ignores them.
"""

from __future__ import annotations

import struct
from typing import Any

from msgspec import Raw, Struct

from maitred.twin import tokens
from maitred.twin.errors import Wrong, refuse
from maitred.twin.reading import read

SEQUENCES_MAX = 128
"""Bound of the answers one request may ask for, prompts times `n`: their texts are made beforehand."""


class Ask(Struct):
    """What a request wants: `sequences` answers to each of its prompts, which are packed tokens.

    `output_param` is what the API calls `output_tokens_max` (None: as many as fit). `salt` and `adapter` keep
    prompts apart in the prefix cache. `transfer` is `kv_transfer_params`. `base64`: so vectors are wanted.
    """

    model: str
    prompts: list[bytes]
    output_param: str = "max_tokens"
    output_tokens_max: int | None = None
    output_tokens_min: int = 0
    endless: bool = False
    sequences: int = 1
    stops: tuple[str, ...] = ()
    seed: int = 0
    priority: int = 0
    salt: str = ""
    adapter: str = ""
    stream: bool = False
    usage: bool = False
    usage_always: bool = False
    token_ids: bool = False
    transfer: dict[str, Any] | None = None
    request_id: str = ""
    base64: bool = False


class _Part(Struct):
    type: str = "text"
    text: str = ""


class _Message(Struct):
    role: str
    content: str | list[_Part] | None = None


class _StreamOptions(Struct):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class _Body(Struct):
    """What all generating APIs share. `priority` and the like are vLLM's own."""

    model: str | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    temperature: float | None = None
    logprobs: bool | int | None = None
    prompt_logprobs: int | None = None
    return_token_ids: bool | None = None
    priority: int | None = None
    cache_salt: str | None = None
    kv_transfer_params: dict[str, Any] | None = None
    request_id: str | None = None

    def ask(
        self, prompts: list[bytes], output_tokens_max: int | None, output_param: str, n: int | None = None
    ) -> Ask:
        """What it comes to, with `n` answers to each prompt. Raises Wrong for values vLLM does not take."""
        self._check(output_tokens_max, output_param)
        sequences = 1 if n is None else n
        if sequences < 1:
            refuse("n", n, f"n must be at least 1, got {n}.")
        if sequences * len(prompts) > SEQUENCES_MAX:
            most = SEQUENCES_MAX // len(prompts)
            refuse("n", n, f"n must be at most {most} for {len(prompts)} prompt(s), got {n}.")
        options = self.stream_options or _StreamOptions()
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return Ask(
            self.model or "",
            prompts,
            output_param,
            output_tokens_max,
            output_tokens_min=self.min_tokens or 0,
            endless=bool(self.ignore_eos),
            sequences=sequences,
            stops=tuple(stop for stop in stops if stop),
            seed=self.seed or 0,
            priority=self.priority or 0,
            salt=self.cache_salt or "",
            stream=bool(self.stream),
            usage=bool(options.include_usage),
            usage_always=bool(options.include_usage and options.continuous_usage_stats),
            token_ids=bool(self.return_token_ids),
            transfer=self.kv_transfer_params,
            request_id=self.request_id or "",
        )

    def _check(self, output_tokens_max: int | None, output_param: str) -> None:
        if self.temperature is not None and self.temperature < 0:
            given = self.temperature
            refuse("temperature", given, f"temperature must be non-negative, got {given}.")
        if output_tokens_max is not None and output_tokens_max < 1:
            sentence = f"{output_param} must be at least 1, got {output_tokens_max}."
            refuse(output_param, output_tokens_max, sentence)
        if self.stream_options is not None and not self.stream:
            raise Wrong("Stream options can only be defined when `stream=True`.", "stream_options")
        if self.logprobs not in (None, False) or self.prompt_logprobs is not None:
            raise Wrong("logprobs is not supported: this engine computes no probabilities.", "logprobs")


class _Chat(_Body, kw_only=True):
    messages: list[_Message]
    n: int | None = None
    max_completion_tokens: int | None = None
    tools: Raw | None = None


class _Completions(_Body):
    prompt: str | list[Any] | None = None
    n: int | None = None


class _Responses(_Body, kw_only=True):
    input: str | list[_Message]
    instructions: str | None = None
    max_output_tokens: int | None = None
    tools: Raw | None = None


class _Messages(_Body, kw_only=True):
    messages: list[_Message]
    system: str | list[_Part] | None = None
    stop_sequences: list[str] | None = None
    tools: Raw | None = None


class _Embeddings(_Body, kw_only=True):
    input: str | list[Any]
    dimensions: int | None = None
    encoding_format: str | None = None


def chat(body: bytes) -> Ask:
    """A chat completion's."""
    said = read(body, _Chat)
    if not said.messages:
        raise Wrong("Cannot apply chat template to an empty conversation. Provide at least one message.")
    newer = said.max_completion_tokens is not None
    most = said.max_completion_tokens if newer else said.max_tokens
    return said.ask([_conversation(said.messages, said.tools)], most, "max_tokens", said.n)


def completions(body: bytes) -> Ask:
    """A text completion's; without `max_tokens` it has 16, as OpenAI's has."""
    said = read(body, _Completions)
    if not said.prompt:
        raise Wrong("Either prompt or prompt_embeds must be provided and non-empty.")
    most = 16 if said.max_tokens is None else said.max_tokens
    return said.ask(prompts(said.prompt), most, "max_tokens", said.n)


def responses(body: bytes) -> Ask:
    """A response's, which is not stored."""
    said = read(body, _Responses)
    messages = [_Message("user", said.input)] if isinstance(said.input, str) else said.input
    if said.instructions:
        messages = [_Message("system", said.instructions), *messages]
    return said.ask([_conversation(messages, said.tools)], said.max_output_tokens, "max_output_tokens")


def messages(body: bytes) -> Ask:
    """Of Anthropic's API: a message's, or what is to be counted."""
    said = read(body, _Messages)
    system = [_Message("system", said.system)] if said.system else []
    said.stop = said.stop_sequences
    return said.ask([_conversation(system + said.messages, said.tools)], said.max_tokens, "max_tokens")


def embeddings(body: bytes) -> Ask:
    """What is to be embedded."""
    said = read(body, _Embeddings)
    if said.dimensions is not None:
        raise Wrong(
            f"Model '{said.model}' does not support Matryoshka embeddings; dimensions must be unset "
            f"(received dimensions={said.dimensions})."
        )
    if not said.input:
        raise Wrong("The input must not be empty.", "input")
    ask = said.ask(prompts(said.input), 1, "max_tokens")
    ask.base64 = said.encoding_format == "base64"
    return ask


def prompts(given: str | list[Any]) -> list[bytes]:
    """One or many prompts, each a text or a list of token ids, as packed tokens. Raises Wrong."""
    one = isinstance(given, str) or all(isinstance(it, int) for it in given)
    many = [given] if one else list(given)
    if len(many) > SEQUENCES_MAX:
        raise Wrong(f"at most {SEQUENCES_MAX} prompts may come in one request, got {len(many)}.", "prompt")
    try:
        packed = [tokens.encode(it) if isinstance(it, str) else tokens.pack(it) for it in many]
    except (struct.error, TypeError):
        raise Wrong("Each prompt must be a text or a list of token ids.", "prompt") from None
    if not all(packed):
        raise Wrong("The decoder prompt cannot be empty.", "prompt")
    return packed


def _conversation(said: list[_Message], tools: Raw | None) -> bytes:
    return tokens.conversation(((it.role, _text(it.content)) for it in said), bytes(tools or b""))


def _text(content: str | list[_Part] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    for part in content:
        if "image" in part.type or "audio" in part.type or "video" in part.type:
            raise Wrong(f"This model is not a multimodal model; it takes no {part.type}.")
    return "".join(part.text for part in content)
