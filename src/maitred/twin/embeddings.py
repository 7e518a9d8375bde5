"""Embeddings: a stand-in for what a real vLLM serves only of other models."""

from __future__ import annotations

import base64
import struct
from typing import Any

import xxhash

from maitred.twin.answers import Answer
from maitred.twin.book import Plan

EMBEDDING_SIZE = 384
EMBEDDED = Plan(b"", 1, "stop")
"""What the engine makes of a text that is embedded: nothing, once it has read it."""


class Embeddings(Answer):
    """Vectors of unit length that a text decides, and nothing else. The engine computes prompts for them."""

    prefix = "embd-"
    plan = EMBEDDED

    def whole(self) -> dict[str, Any]:
        """See Answer."""
        data = [
            {"index": choice.index, "object": "embedding", "embedding": self._vector(choice.prompt)}
            for choice in self.choices
        ]
        prompt = self.prompt_tokens
        usage = {
            "prompt_tokens": prompt,
            "total_tokens": prompt,
            "completion_tokens": 0,
            "prompt_tokens_details": None,
            "completion_tokens_details": None,
        }
        return {
            "id": self.id,
            "object": "list",
            "created": self.created,
            "model": self.ask.model,
            "data": data,
            "usage": usage,
        }

    def _vector(self, text: bytes) -> list[float] | str:
        signs = int.from_bytes(b"".join(xxhash.xxh3_64_digest(text, n) for n in range(EMBEDDING_SIZE // 64)))
        length = EMBEDDING_SIZE**-0.5
        vector = [length if signs >> bit & 1 else -length for bit in range(EMBEDDING_SIZE)]
        if not self.ask.base64:
            return vector
        return base64.b64encode(struct.pack(f"<{EMBEDDING_SIZE}f", *vector)).decode()
