"""What an engine says of itself at `GET /v1/models`, read into one shape.

The list is OpenAI's; engines add their own fields to its entries, and `owned_by` tells which engine speaks.
The context length is the one addition worth reading, and each engine keeps it in another place.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

Tokens = Annotated[int, Meta(gt=0)]


class ModelCard(Struct, frozen=True):
    """One model an engine serves.

    `engine` is "vllm", "sglang", "llamacpp", or "" for anything else that speaks OpenAI's API.
    `context_tokens` is the longest prompt plus answer of one request, None where the engine does not tell.
    `raw` is the entry as the engine sent it.
    """

    id: str
    engine: str
    context_tokens: int | None
    raw: dict[str, Any]


class _MaxModelLen(Struct):
    max_model_len: Tokens | None = None

    @property
    def context_tokens(self) -> int | None:
        return self.max_model_len


class _Meta(Struct):
    n_ctx: Tokens | None = None


class _LlamaCpp(Struct):
    """`n_ctx` is what one slot has, not the sum of all; `n_ctx_train` is the model's and promises nothing."""

    meta: _Meta | None = None

    @property
    def context_tokens(self) -> int | None:
        return self.meta.n_ctx if self.meta else None


_DIALECTS: dict[str, type[_MaxModelLen | _LlamaCpp]] = {
    "vllm": _MaxModelLen,
    "sglang": _MaxModelLen,
    "llamacpp": _LlamaCpp,
}


class _Entry(Struct):
    """What is read of every entry; a strange server's other fields may be of any type."""

    id: Annotated[str, Meta(min_length=1)]
    owned_by: Any = None
    parent: Any = None


class _Models(Struct):
    data: list[Raw]


def read_models(body: bytes) -> list[ModelCard]:
    """Read the answer of `GET /v1/models`, without the adapters: they are parts of the model they name.

    Raises ValueError with a one-line reason when it is not a list of models.
    """
    try:
        entries = msgspec.json.decode(body, type=_Models).data
        return [_card(raw, entry) for raw in entries if not (entry := _entry(raw)).parent]
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not a list of models: {error}") from error


def _entry(raw: Raw) -> _Entry:
    return msgspec.json.decode(raw, type=_Entry)


def _card(raw: Raw, entry: _Entry) -> ModelCard:
    fields: dict[str, Any] = msgspec.json.decode(raw)
    dialect = _DIALECTS.get(entry.owned_by) if isinstance(entry.owned_by, str) else None
    if dialect is None:
        return ModelCard(entry.id, "", None, fields)
    return ModelCard(entry.id, entry.owned_by, msgspec.convert(fields, dialect).context_tokens, fields)
