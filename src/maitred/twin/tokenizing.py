"""The paths about tokens and prompts, which the engine is not asked for."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from maitred.net.exchange import HttpExchange
from maitred.twin import bodies, tokens
from maitred.twin.bodies import Ask
from maitred.twin.errors import Wrong
from maitred.twin.house import House, Route, respond
from maitred.twin.reading import read

POST = ("POST",)


class _Tokenize(Struct):
    model: str = ""
    prompt: str | None = None
    messages: list[Any] | None = None
    return_token_strs: bool = False


class _Detokenize(Struct, kw_only=True):
    model: str = ""
    tokens: list[int]


def _tokenize(house: House, exchange: HttpExchange) -> None:
    said = read(exchange.body, _Tokenize)
    house.service.find_model(Ask(said.model, []))
    if said.messages is not None:
        packed = bodies.chat(exchange.body).prompts[0]
    else:
        packed = tokens.encode(said.prompt or "")
    size = tokens.TOKEN_BYTES
    strings = [tokens.decode(packed[at : at + size]) for at in range(0, len(packed), size)]
    respond(
        exchange,
        {
            "count": tokens.count(packed),
            "max_model_len": house.service.context_tokens,
            "tokens": tokens.ids(packed),
            "token_strs": strings if said.return_token_strs else None,
        },
    )


def _detokenize(house: House, exchange: HttpExchange) -> None:
    said = read(exchange.body, _Detokenize)
    house.service.find_model(Ask(said.model, []))
    try:
        packed = tokens.pack(said.tokens)
    except struct.error:
        raise Wrong(f"token ids are numbers from 0 to {tokens.ID_MAX}.", "tokens") from None
    respond(exchange, {"prompt": tokens.decode(packed)})


def _count_tokens(house: House, exchange: HttpExchange) -> None:
    ask = bodies.messages(exchange.body)
    house.service.find_model(ask)
    count = tokens.count(ask.prompts[0])
    respond(exchange, {"input_tokens": count, "context_management": {"original_input_tokens": count}})


def _rendering(read_ask: Callable[[bytes], Ask], prefix: str) -> Route:
    """What a prompt comes to, without running it; of text completions a list, one for each prompt."""

    def handle(house: House, exchange: HttpExchange) -> None:
        ask = read_ask(exchange.body)
        house.service.find_model(ask)
        rendered = [_rendered(house, ask, prompt, prefix) for prompt in ask.prompts]
        respond(exchange, rendered if prefix == "cmpl-" else rendered[0])

    return Route(POST, handle)


def _rendered(house: House, ask: Ask, prompt: bytes, prefix: str) -> dict[str, Any]:
    most = house.service.room(ask, prompt)
    return {
        "request_id": prefix + (ask.request_id or house.service.unique()),
        "token_ids": tokens.ids(prompt),
        "token_offsets": None,
        "features": None,
        "content_parts": None,
        "sampling_params": {"stop": ask.stops, "stop_token_ids": [], "max_tokens": most},
        "model": ask.model,
        "reasoning_ended": None,
        "reasoning_parser_kwargs": None,
        "return_token_ids": None,
        "output_mode": "tokens",
        "stream": ask.stream,
        "stream_options": None,
        "cache_salt": ask.salt or None,
        "priority": ask.priority,
        "kv_transfer_params": ask.transfer,
        "ec_transfer_params": None,
    }


ROUTES = {
    "/tokenize": Route(POST, _tokenize),
    "/detokenize": Route(POST, _detokenize),
    "/v1/messages/count_tokens": Route(POST, _count_tokens),
    "/v1/chat/completions/render": _rendering(bodies.chat, "chatcmpl-"),
    "/v1/completions/render": _rendering(bodies.completions, "cmpl-"),
    "/v1/messages/render": _rendering(bodies.messages, "chatcmpl-"),
    "/v1/responses/render": _rendering(bodies.responses, "resp_"),
}
