"""What a client of the soak may ask for, and what an engine answers to it, so that both sides know the whole.

Every request has a tag of its own, which comes back in each event of its answer. The words of an answer are
numbers from 0 on and the last ends in a full stop, so a client sees what is missing, doubled or another's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

CHAT, COMPLETIONS, EMBEDDINGS, MESSAGES = (
    "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/messages"
)  # fmt: skip
MODELS = {"small": "org/small", "alias": "org/small", "plain": "plain"}
"""Names that clients say, and by which engines know them."""
DONE = b"data: [DONE]\n\n"
MANY_TOKENS = 300
WIDE = 2000
"""Spaces behind each word of an answer of many tokens: a long answer is a large one, too."""

_NAME = re.compile(rb'"model": ?"([^"]+)"')
_TAG = re.compile(rb'"user": ?"(soak-\d+)"')
_TOKENS = re.compile(rb'"max_tokens": ?(\d+)')
_STREAM = re.compile(rb'"stream": ?true')
_BEGINNING = 1024


class Wish(Struct, frozen=True):
    """One request. `usage`: the client asks a stream for the token counts; `model` is the name it says."""

    tag: str
    path: str = CHAT
    model: str = "plain"
    stream: bool = False
    tokens: int = 5
    usage: bool = False

    @property
    def anthropic(self) -> bool:
        """Whose API it is, where it matters."""
        return self.path == MESSAGES

    def body(self, prompt: str = "Count for me.", **more: Any) -> bytes:
        """The JSON, with what an engine has to know at its beginning."""
        said: dict[str, Any] = {"model": self.model, "user": self.tag, "max_tokens": self.tokens}
        if self.stream:
            said["stream"] = True
        if self.usage:
            said["stream_options"] = {"include_usage": True}
        if self.path in (CHAT, MESSAGES):
            said["messages"] = [{"role": "user", "content": prompt}]
        else:
            said["prompt" if self.path == COMPLETIONS else "input"] = prompt
        return json.dumps({**said, **more}).encode()


def understood(path: str, body: bytes) -> Wish | None:
    """What an engine reads of a request; None for one that is nobody's here, as a probe is."""
    tag, name = _TAG.search(body, 0, _BEGINNING), _NAME.search(body, 0, _BEGINNING)
    tokens = _TOKENS.search(body, 0, _BEGINNING)
    if tag is None or name is None or tokens is None:
        return None
    stream = _STREAM.search(body, 0, _BEGINNING) is not None
    return Wish(tag[1].decode(), path, name[1].decode(), stream, int(tokens[1]))


def answer_to(wish: Wish) -> list[bytes]:
    """The pieces of the whole answer: the events of a stream, or the JSON."""
    if not wish.stream:
        return [_whole(wish)]
    if wish.anthropic:
        return [b"event: %b\ndata: %b\n\n" % (said["type"].encode(), _compact(said)) for said in _story(wish)]
    return [b"data: %b\n\n" % _compact(said) for said in _chunks(wish)] + [DONE]


def words(wish: Wish) -> list[str]:
    """All words of its answer."""
    room = " " * WIDE if wish.tokens >= MANY_TOKENS else " "
    return [f"{number}{room}" for number in range(wish.tokens - 1)] + [f"{wish.tokens - 1}."]


def is_whole(wish: Wish, said: Sequence[str]) -> bool:
    """Whether these words are all there should be. AssertionError when they are not even its beginning."""
    got = "".join(said).split()
    assert got == "".join(words(wish)).split()[: len(got)], (wish, got[:3], got[-3:])
    return len(got) == wish.tokens


def _whole(wish: Wish) -> bytes:
    text = "".join(words(wish))
    counts = {"prompt_tokens": 3, "completion_tokens": wish.tokens, "total_tokens": 3 + wish.tokens}
    said: dict[str, Any]
    if wish.path == CHAT:
        said = {"choices": [{"index": 0, "message": {"role": "assistant", "content": text}}], "usage": counts}
    elif wish.path == COMPLETIONS:
        said = {"choices": [{"index": 0, "text": text}], "usage": counts}
    elif wish.path == EMBEDDINGS:
        said = {"object": "list", "data": [{"embedding": text}], "usage": counts}
    else:
        counts = {"input_tokens": 3, "output_tokens": wish.tokens}
        said = {"type": "message", "content": [{"type": "text", "text": text}], "usage": counts}
    return _compact({"id": wish.tag, "model": wish.model, **said})


def _chunks(wish: Wish) -> Iterator[dict[str, Any]]:
    """A stream of OpenAI's, the counts included that a gateway asks for."""
    common = {"id": wish.tag, "object": "chunk", "model": wish.model, "usage": None}
    if wish.path == CHAT:
        yield {**common, "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}
    for word in words(wish):
        said = {"delta": {"content": word}} if wish.path == CHAT else {"text": word}
        yield {**common, "choices": [{"index": 0, **said, "finish_reason": None}]}
    last: dict[str, Any] = {"delta": {}} if wish.path == CHAT else {"text": ""}
    yield {**common, "choices": [{"index": 0, **last, "finish_reason": "stop"}]}
    counts = {"prompt_tokens": 3, "completion_tokens": wish.tokens, "total_tokens": 3 + wish.tokens}
    yield {**common, "choices": [], "usage": counts}


def _story(wish: Wish) -> Iterator[dict[str, Any]]:
    """A stream of Anthropic's."""
    message = {"id": wish.tag, "model": wish.model, "content": [], "usage": {"input_tokens": 3}}
    yield {"type": "message_start", "message": message}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    for word in words(wish):
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}}
    yield {"type": "content_block_stop", "index": 0}
    counts = {"output_tokens": wish.tokens}
    yield {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": counts}
    yield {"type": "message_stop"}


def _compact(said: object) -> bytes:
    return json.dumps(said, separators=(",", ":")).encode()
