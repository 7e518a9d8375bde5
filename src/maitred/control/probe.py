"""Asking an engine how it is: which models it serves, what it says of itself, and for one generated token.

An engine that lists its models may still be hung or broken; one that has just made a token is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import msgspec
from msgspec import Struct

from maitred.core.outcome import FailureKind
from maitred.core.words import Facts
from maitred.engines.dialect import ModelCard, read_models
from maitred.engines.facts import QUESTIONS, read_facts
from maitred.engines.metrics import METRICS_PATH
from maitred.net.fetch import fetch
from maitred.net.pool import ConnectFailed, Pool

_TOKEN: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/v1/completions", {"prompt": "a", "max_tokens": 1, "stream": False}),
    (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "stream": False},
    ),
    ("/v1/embeddings", {"input": "a"}),
)
"""How to ask for one token, or what comes next to it; the first that the engine does is enough."""


class NotReady(Exception):  # noqa: N818 - names what was found
    """The engine cannot be given work; the message says why in one line.

    `kind` is what came in place of an answer, None where one came.
    """

    def __init__(self, why: str, kind: FailureKind | None = None) -> None:
        super().__init__(why)
        self.kind = kind

    @property
    def refused(self) -> bool:
        """Whether nobody there takes connections."""
        return self.kind in (FailureKind.CONNECT, FailureKind.TLS)


class Patience(Struct, frozen=True):
    """Seconds an engine may take for one question, and for one token, which may wait behind long prompts."""

    answer_s: float = 5.0
    token_s: float = 30.0


async def probe(
    pool: Pool, url: str, wanted: Collection[str], generate: bool, patience: Patience
) -> list[tuple[ModelCard, Facts]]:
    """Every model the engine at this address serves, with its facts. Raises NotReady, and nothing else.

    With `generate` it has made a token with the first of its models that is `wanted` (none named: that there
    is). One that has none of them is not asked to, and one that makes no tokens at all (it answers each try
    with 4xx or 501, as rerankers do) is ready all the same.
    """
    cards = await _cards(pool, url, patience.answer_s)
    fit = [card for card in cards if not wanted or card.id in wanted]
    if generate and fit:
        await _make_token(pool, url, fit[0].id, patience.token_s)
    engine = cards[0].engine
    paths = (*QUESTIONS[engine], METRICS_PATH[engine])
    bodies = await asyncio.gather(*(_told(pool, url, path, patience.answer_s) for path in paths))
    answers = {path: body for path, body in zip(paths, bodies, strict=True) if body is not None}
    metrics = answers.pop(METRICS_PATH[engine], None)
    return [(card, read_facts(card, answers, metrics)) for card in cards]


async def _cards(pool: Pool, url: str, timeout_s: float) -> list[ModelCard]:
    status, body = await _ask(pool, url, "/v1/models", timeout_s)
    if status != 200:
        raise NotReady(f"answers GET /v1/models with {status}")
    try:
        cards = read_models(body)
    except ValueError as error:
        raise NotReady(str(error)) from error
    if not cards:
        raise NotReady("serves no model")
    return cards


async def _make_token(pool: Pool, url: str, model: str, timeout_s: float) -> None:
    for path, ask in _TOKEN:
        status, body = await _ask(pool, url, path, timeout_s, msgspec.json.encode({"model": model, **ask}))
        if status == 200:
            if not _is_answer(body):
                raise NotReady(f"answers POST {path} with no answer")
            return
        if not (400 <= status < 500 or status == 501):
            raise NotReady(f"answers POST {path} with {status}")


def _is_answer(body: bytes) -> bool:
    try:
        answer = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(answer, dict) and not answer.get("error")


async def _told(pool: Pool, url: str, path: str, timeout_s: float) -> bytes | None:
    """What it answers to a question that need not be answered."""
    try:
        status, body = await _ask(pool, url, path, timeout_s)
    except NotReady:
        return None
    return body if status == 200 else None


async def _ask(
    pool: Pool, url: str, path: str, timeout_s: float, json: bytes | None = None
) -> tuple[int, bytes]:
    try:
        return await fetch(pool, url, path, timeout_s, json)
    except ConnectFailed as failed:
        raise NotReady(f"does not answer ({failed.detail})", failed.kind) from None
