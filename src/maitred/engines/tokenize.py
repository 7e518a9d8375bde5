"""How each engine is asked for the token ids of a request: what to post where, and what comes back.

A conversation with an engine is a generator: it yields a path and a body to be posted, is sent the answer,
and returns the ids. Whoever drives it owns time and the network.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterable

from msgspec import Raw, Struct
from msgspec.json import decode, encode

from maitred.core.words import Api

Asking = Generator[tuple[str, bytes], bytes, bytes]

RENDER = {
    Api.CHAT: "/v1/chat/completions/render",
    Api.COMPLETIONS: "/v1/completions/render",
    Api.MESSAGES: "/v1/messages/render",
}


class _Tokens(Struct):
    tokens: list[int]


class _Rendered(Struct):
    token_ids: list[int]


class _Applied(Struct):
    prompt: str


class _Text(Struct):
    prompt: Raw


def packed(ids: Iterable[int]) -> bytes:
    """Token ids as they are kept: four bytes each, little-endian. Raises OverflowError where one is none."""
    return array("I", ids).tobytes()


def asking(engine: str, api: Api, body: bytes) -> Asking | None:
    """How this kind of engine is asked for the ids of a request; None where it cannot tell.

    The generator raises ValueError where an answer is not as expected.
    """
    if engine == "llamacpp":
        if api in (Api.CHAT, Api.COMPLETIONS):
            return _llamacpp(api, body)
    elif api is Api.COMPLETIONS or (api is Api.CHAT and engine == "vllm"):
        return _tokenize(body)
    return None


def rendering(api: Api, body: bytes) -> Asking | None:
    """How vLLM is asked what it would run."""
    return _render(RENDER[api], body) if api in RENDER else None


def _tokenize(body: bytes) -> Asking:
    """vLLM reads of the request what it needs, and no more; SGLang knows texts only."""
    return packed(decode((yield "/tokenize", body), type=_Tokens).tokens)


def _llamacpp(api: Api, body: bytes) -> Asking:
    if api is Api.CHAT:
        text = encode(decode((yield "/apply-template", body), type=_Applied).prompt)
    else:
        text = bytes(decode(body, type=_Text).prompt)
    ask = b'{"content":%b,"add_special":true,"parse_special":true}' % text
    return packed(decode((yield "/tokenize", ask), type=_Tokens).tokens)


def _render(path: str, body: bytes) -> Asking:
    answer = decode((yield path, body), type=_Rendered | list[_Rendered])
    (one,) = answer if isinstance(answer, list) else [answer]
    return packed(one.token_ids)
