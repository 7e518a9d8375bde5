"""What tests of Responses share: ids that count, requests and answers, and the official client's models."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from typing import Any

from openai.types.responses import ResponseItem, ResponseStreamEvent
from pydantic import BaseModel, ConfigDict, TypeAdapter

from maitred.wire.responses.create import Create, decode
from maitred.wire.responses.input import settle
from maitred.wire.responses.items import Item, Mint
from maitred.wire.seal import Seal

SEAL = Seal(b"secret")
FUNCTION = {"type": "function", "name": "look", "parameters": {"type": "object"}}
CUSTOM = {"type": "custom", "name": "shell"}

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
ITEM: TypeAdapter[Any] = TypeAdapter(ResponseItem)


def minting() -> Mint:
    """Ids that count up."""
    numbers = itertools.count(1)
    return lambda prefix: f"{prefix}_{next(numbers)}"


def asked(**members: Any) -> Create:
    """A request, read."""
    return decode(json.dumps({"model": "m", "input": "hi", **members}).encode())


def settled(items: list[dict[str, Any]] | str) -> list[Item]:
    """Items of an input as they are kept."""
    return settle(asked(input=items).input, minting(), unseal=unseal)


def unseal(sealed: str) -> str:
    """What was sealed for the tenant of the tests."""
    return SEAL.open("a", sealed)


def data(items: Iterable[Item]) -> list[bytes]:
    """Their JSON."""
    return [item.data for item in items]


def parsed(item: bytes) -> Any:
    """Read an item as the official client does, strictly."""
    return known(ITEM.validate_json(item, strict=True))


def known(value: Any) -> Any:
    """Return the value; fail where the client's model has no name for something in it."""
    if isinstance(value, BaseModel):
        assert isinstance(type(value).model_config, dict | ConfigDict)
        assert not value.model_extra, (type(value), value.model_extra)
        for name in type(value).model_fields:
            known(getattr(value, name))
    elif isinstance(value, list):
        for one in value:
            known(one)
    return value


def events(stream: bytes) -> list[dict[str, Any]]:
    """The events of a stream; each has its name twice, and is one of the official client's."""
    told = []
    for block in stream.split(b"\n\n")[:-1]:
        name, line = block.split(b"\n")
        payload = line.removeprefix(b"data: ")
        event = json.loads(payload)
        assert name == b"event: " + event["type"].encode()
        EVENT.validate_json(payload, strict=True)
        told.append(event)
    return told


def chunk(finish: str | None = None, logprobs: Any = None, **delta: Any) -> bytes:
    """One event of a chat stream."""
    choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
    return sent({"choices": [choice]})


def call(index: int, *, arguments: str = "", name: str | None = None, id: str | None = None) -> bytes:  # noqa: A002
    """One event of a chat stream, with a piece of a call."""
    function = {"name": name, "arguments": arguments}
    return chunk(tool_calls=[{"index": index, "id": id, "type": "function", "function": function}])


def sent(event: dict[str, Any]) -> bytes:
    """One event of a chat stream."""
    return b"data: " + json.dumps(event).encode() + b"\n\n"


USAGE = sent({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}})
END = b"data: [DONE]\n\n"


def whole(finish: str = "stop", usage: Any = None, logprobs: Any = None, **message: Any) -> bytes:
    """A chat answer in one piece."""
    choice = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": finish}
    return json.dumps({"choices": [choice], "usage": usage}).encode()
