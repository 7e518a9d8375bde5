"""What is known of an endpoint's KV events: whether they are gone by, how old they are, what went wrong."""

from __future__ import annotations

from msgspec import Struct

COUNTS: dict[str, str] = {
    "messages": "messages taken in",
    "stored": "keys of blocks that came",
    "removed": "keys of blocks that went",
    "gaps": "messages are missing",
    "replays": "what was missed was asked for",
    "replays_failed": "what was missed could not be had",
    "restarts": "its numbers began anew, so it is another process",
    "malformed": "messages or events that make no sense",
    "unknown": "events or fields that nobody knows here",
    "foreign": "messages of another engine",
    "orphans": "blocks whose beginning is not known",
    "strangers": "blocks went that were not known",
    "odd": "blocks of another size than the others",
    "dropped": "more blocks than are kept in mind",
}
"""What is counted of each endpoint, with what it means."""


class KvFigures(Struct):
    """One endpoint's events so far. `heard_at` is the gateway's clock at the last one, None before the first.

    `lag_s`: how old that was when it came, by the engine's wall clock. `blocks` keys are known, of
    `block_tokens` tokens each. `why` says why they are not gone by, "" while they are.
    """

    endpoint: str
    counts: dict[str, int]
    heard_at: float | None = None
    lag_s: float = 0.0
    blocks: int = 0
    block_tokens: int = 0
    why: str = ""


def figures(endpoint: str) -> KvFigures:
    """Those of an endpoint of which nothing was heard yet."""
    return KvFigures(endpoint, dict.fromkeys(COUNTS, 0))
