"""The twin's tokens: four bytes of UTF-8 each, so that counting is a length and no vocabulary is needed.

Tokens are kept packed, as the bytes they stand for; a text's last token is filled up with zeros, which mean
nothing. The id of a token is its four bytes as a little-endian number. Each part of a conversation begins
with a token of its own, so an answer that comes back as a message has the tokens it was made of, and is found
in the prefix cache.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

import xxhash

TOKEN_BYTES = 4
ID_MAX = 2**32 - 1

END = b"<|end|>\0"
ASSISTANT = b"<|assistant|>\0\0\0"
"""What an answer follows."""


def encode(text: str) -> bytes:
    """The packed tokens of a text."""
    raw = text.encode(errors="replace")
    return raw + b"\0" * (-len(raw) % TOKEN_BYTES)


def decode(packed: bytes) -> str:
    """The text of packed tokens."""
    return packed.replace(b"\0", b"").decode(errors="replace")


def count(packed: bytes) -> int:
    """How many tokens there are."""
    return len(packed) // TOKEN_BYTES


def ids(packed: bytes) -> tuple[int, ...]:
    """The ids of packed tokens."""
    return struct.unpack(f"<{count(packed)}I", packed)


def pack(token_ids: Sequence[int]) -> bytes:
    """The tokens of these ids. Raises struct.error where one is no number from 0 to ID_MAX."""
    return struct.pack(f"<{len(token_ids)}I", *token_ids)


def conversation(messages: Iterable[tuple[str, str]], tools: bytes = b"") -> bytes:
    """The prompt made of messages (role, text) and the JSON of tools: what the chat template would make."""
    parts = [encode("<|tools|>"), encode(tools.decode(errors="replace")), END] if tools else []
    for role, text in messages:
        parts += (encode(f"<|{role}|>"), encode(text), END)
    return b"".join([*parts, ASSISTANT])


def block_keys(packed: bytes, block_tokens: int, root: str = "") -> list[int]:
    """The chained keys of the full blocks, 64 bits each; texts with another `root` share none of them."""
    size = block_tokens * TOKEN_BYTES
    key = xxhash.xxh3_64_intdigest(root.encode()) if root else 0
    digest = xxhash.xxh3_64_intdigest
    keys = []
    for at in range(0, len(packed) - size + 1, size):
        key = digest(packed[at : at + size], key)
        keys.append(key)
    return keys
