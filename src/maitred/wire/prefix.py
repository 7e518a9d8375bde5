"""By which keys a prompt is known: chained hashes, so that equal keys mean equal beginnings.

The keys are our own. Engines hash their blocks in ways of theirs; what they say of a block (its tokens, its
parent, what else it depends on) is enough to make our key of it, whatever their hash and seed are.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TypeAlias

from msgspec.json import encode
from xxhash import xxh3_64_intdigest

TOKEN_BYTES = 4
"""Tokens are hashed as little-endian u32."""
BLOCKS_MAX = 8192
"""Most keys of one prompt: 131,072 tokens in blocks of 16. What lies beyond has none."""

Tokens: TypeAlias = "bytes | memoryview | array[int]"
"""Little-endian u32, or an array of type I."""


def root(pool: str, adapter: str = "") -> int:
    """What chains of tokens begin with: a model's prompts are nothing to another, nor to its adapters."""
    return xxh3_64_intdigest(f"{pool}\0{adapter}".encode())


def extra(keys: Sequence[object]) -> bytes:
    """What a block depends on besides its tokens, in vLLM's words: hashes of media, the salt in the first.

    The adapter's name, which vLLM puts there too, has to be left out: it is in the root.
    """
    return encode(keys) if keys else b""


def block_key(parent: int, tokens: Tokens, extra: bytes = b"") -> int:
    """The key of a full block, after the key of the one before it or the root."""
    key = xxh3_64_intdigest(tokens, parent)
    return xxh3_64_intdigest(extra, key) if extra else key


def blocks_of(root: int, ids: Tokens, block_tokens: int, salt: str = "") -> tuple[int, ...]:
    """The keys of a prompt's full blocks."""
    view = memoryview(ids).cast("B")
    size = block_tokens * TOKEN_BYTES
    keys = []
    key, more = root, extra([salt] if salt else ())
    for end in range(size, min(view.nbytes, BLOCKS_MAX * size) + 1, size):
        key = block_key(key, view[end - size : end], more)
        keys.append(key)
        more = b""
    return tuple(keys)
