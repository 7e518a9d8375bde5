"""A search for goodput, probe by probe: what was tried, what it said, and what came of it."""

from __future__ import annotations

from msgspec import Struct


class Probe(Struct, frozen=True):
    """One rate that was tried (requests/s)."""

    rate: float
    attempted: int
    good: int
    said: str
    ttft_p90_s: float | None
    tpot_p50_s: float | None
    output_tokens_per_s: float


class Probed(Struct, frozen=True):
    """A whole search."""

    probes: list[Probe]
    lines: list[str]
