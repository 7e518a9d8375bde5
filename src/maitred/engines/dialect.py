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

    `engine` is "vllm", "sglang", "llamacpp", "trtllm", or "" for anything else that speaks OpenAI's API.
    `context_tokens` is the longest prompt plus answer of one request, None where the engine does not tell.
    `raw` is the entry as the engine sent it. `adapters` are the LoRA adapters it has loaded for this model.
    """

    id: str
    engine: str
    context_tokens: int | None
    raw: dict[str, Any]
    adapters: tuple[str, ...] = ()


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


_DIALECTS: dict[str, tuple[str, type[_MaxModelLen | _LlamaCpp]]] = {
    "vllm": ("vllm", _MaxModelLen),
    "sglang": ("sglang", _MaxModelLen),
    "llamacpp": ("llamacpp", _LlamaCpp),
    "tensorrt_llm": ("trtllm", _MaxModelLen),
}
"""By `owned_by`: the kind of engine, and where it tells the context length."""


class _Entry(Struct):
    """What is read of every entry; a strange server's other fields may be of any type."""

    id: Annotated[str, Meta(min_length=1)]
    owned_by: Any = None
    parent: Any = None
    root: Any = None


class _Models(Struct):
    data: list[Raw]


def read_models(body: bytes) -> list[ModelCard]:
    """Read the answer of `GET /v1/models`; adapters are parts of the model they name, not models.

    Raises ValueError with a one-line reason when it is not a list of models.
    """
    try:
        raws = msgspec.json.decode(body, type=_Models).data
        entries = [msgspec.json.decode(raw, type=_Entry) for raw in raws]
        roots = {entry.id: entry.root for entry in entries}
        adapters = [entry for entry in entries if isinstance(entry.parent, str) and entry.parent]
        return [
            _card(raw, entry, tuple(it.id for it in adapters if _is_for(it, entry, roots)))
            for raw, entry in zip(raws, entries, strict=True)
            if not entry.parent
        ]
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not a list of models: {error}") from error


def _is_for(adapter: _Entry, model: _Entry, roots: dict[str, Any]) -> bool:
    """Whether the parent is this model: one of its names, or the path it was loaded from (`root`)."""
    if adapter.parent in (model.id, model.root):
        return True
    return model.root is not None and roots.get(adapter.parent) == model.root


def _card(raw: Raw, entry: _Entry, adapters: tuple[str, ...]) -> ModelCard:
    fields: dict[str, Any] = msgspec.json.decode(raw)
    known = _DIALECTS.get(entry.owned_by) if isinstance(entry.owned_by, str) else None
    if known is None:
        return ModelCard(entry.id, "", None, fields, adapters)
    engine, dialect = known
    return ModelCard(entry.id, engine, msgspec.convert(fields, dialect).context_tokens, fields, adapters)
