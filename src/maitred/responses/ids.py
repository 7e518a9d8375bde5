"""Ids of what is remembered. All are minted here: an engine's own ids never become keys.

48 hexadecimal digits: the time in milliseconds, so that rows that are made together lie together, and what
nobody can guess.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

RESPONSE, CONVERSATION = "resp", "conv"
SECRET_BYTES = 18

Mint = Callable[[str], str]
"""Makes an id of a kind: "resp" -> "resp_…"."""


def mint(kind: str) -> str:
    """A new id."""
    return f"{kind}_{time.time_ns() // 1_000_000:012x}{secrets.token_hex(SECRET_BYTES)}"
