"""By which keys a prompt is known: chained hashes, so that equal keys mean equal beginnings.

Of its bytes, as the client wrote what the engine's template renders, in the order of the template: so the
next turn of a conversation begins with the keys of this one. Or of its tokens, where these are known. What
changes little and late, as the arguments of templates do, is left out: that only misjudges a place.

The keys are our own. Engines hash their blocks in ways of theirs; what they say of a block (its tokens, its
parent, what else it depends on) is enough to make our key of it, whatever their hash and seed are.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from struct import Struct
from typing import TypeAlias

from msgspec.json import encode
from xxhash import xxh3_64_hexdigest, xxh3_64_intdigest

from maitred.core.prefix import BYTE_ENDS, PIECES
from maitred.wire.requests import Rendered

SESSION_BYTES_MAX = 128
"""What is longer is no name of a conversation."""
TOKEN_BYTES = 4
"""Tokens are hashed as little-endian u32."""
BLOCKS_MAX = 8192
"""Most keys of one prompt: 131,072 tokens in blocks of 16. What lies beyond has none."""

Tokens: TypeAlias = "bytes | memoryview | array[int]"
"""Little-endian u32, or an array of type I."""


_SIZES = [f"{size}s" for size in PIECES]
_LIMIT, _STEP = BYTE_ENDS[-1], PIECES[0]
# How a text is cut into all its pieces at once, by its whole steps: each piece is some of them.
_CUTS = tuple(
    Struct("".join(_SIZES[: bisect_right(BYTE_ENDS, size)])).unpack_from
    for size in range(0, _LIMIT + 1, _STEP)
)
# Anthropic's clients move this mark on from turn to turn, and no template renders it. No text can hold it:
# its quotes would have backslashes before them.
_marks = re.compile(rb',\s*+"cache_control"\s*+:\s*+(?:null|\{[^{}]*+\})')


@lru_cache(maxsize=4096)
def root(pool: str, adapter: str = "", salt: str = "") -> int:
    """What chains begin with: a model's prompts are nothing to another, nor to its adapters.

    Those of bytes begin with the salt, too; in those of tokens it belongs to the first block.
    """
    return xxh3_64_intdigest(f"{pool}\0{adapter}\0{salt}".encode())


def byte_keys(root: int, parts: Iterable[Rendered], bytes_max: int, marked: bool = False) -> tuple[int, ...]:
    """The keys of a prompt's bytes at BYTE_ENDS, given what is rendered of it and a bound of its size.

    `marked`: it may have marks of Anthropic's clients in it.
    """
    text = b"".join(parts if bytes_max <= _LIMIT else _beginning(parts))
    if marked and b'"cache_control"' in text:
        text = _marks.sub(b"", text)
    key, steps = root, len(text) // _STEP
    keys = []
    # Longer than its body, which says less of a message without a role, or content, than is rendered of it.
    for piece in _CUTS[steps if steps < len(_CUTS) else -1](text):
        key = xxh3_64_intdigest(piece, key)
        keys.append(key)
    return tuple(keys)


def _beginning(parts: Iterable[Rendered]) -> Iterator[memoryview]:
    left = _LIMIT
    for part in parts:
        view = memoryview(part)
        yield view[:left]
        left -= view.nbytes
        if left <= 0:
            return


def session(said: bytes, tenant: str) -> str:
    """What one tenant's conversation is known by here; "" for nothing said, or far too much."""
    if not said or len(said) > SESSION_BYTES_MAX:
        return ""
    return xxh3_64_hexdigest(said, xxh3_64_intdigest(tenant.encode()))


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
