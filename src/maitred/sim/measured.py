"""Measured runs: what a real vLLM wrote of every request, one JSON object a line.

The fields are those of LLMServingSim's runs: `request_id`, `input_toks`, `output_toks`, `arrival_time` on the
client's clock, and `queued_ts`, `first_token_ts`, `last_token_ts` on the engine's.
"""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
from msgspec import Struct

BAD_ROWS_SHOWN = 3


class Measured(Struct, frozen=True):
    """One request of a run, on the engine's clock; `tokens` of its answer."""

    arrived_at: float
    prompt_tokens: int
    tokens: int
    queued_at: float
    first_at: float
    last_at: float

    @property
    def ttft_s(self) -> float:
        """From being queued in the engine to the first token."""
        return self.first_at - self.queued_at

    @property
    def e2e_s(self) -> float:
        """From being queued in the engine to the last token."""
        return self.last_at - self.queued_at

    @property
    def decode_s(self) -> float:
        """From the first token to the last."""
        return self.last_at - self.first_at

    @property
    def tpot_s(self) -> float:
        """Time per token after the first; NaN for an answer of one token."""
        return self.decode_s / (self.tokens - 1) if self.tokens > 1 else math.nan


class MeasuredRun(Struct):
    """Requests in order of arrival; how many rows were bad, and what was wrong with the first of them."""

    requests: list[Measured]
    bad: int = 0
    complaints: list[str] = []


class _Row(Struct):
    request_id: str
    input_toks: int
    output_toks: int
    arrival_time: float
    queued_ts: float
    first_token_ts: float
    last_token_ts: float

    def __post_init__(self) -> None:
        if self.input_toks < 1 or self.output_toks < 1:
            raise ValueError("input_toks and output_toks must be at least 1")
        if not self.queued_ts <= self.first_token_ts <= self.last_token_ts:
            raise ValueError("queued_ts, first_token_ts, last_token_ts must be in this order")
        if self.output_toks > 1 and self.first_token_ts == self.last_token_ts:
            raise ValueError("several tokens at one instant")


def read_run(path: Path) -> MeasuredRun:
    """Read a run. Raises OSError, and ValueError where no row is good.

    The clocks are taken to differ by the least of queued_ts - arrival_time: at least one request was queued
    as soon as it was sent.
    """
    decoder = msgspec.json.Decoder(_Row)
    rows: list[_Row] = []
    run = MeasuredRun([])
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                rows.append(decoder.decode(line))
            except ValueError as error:
                run.bad += 1
                if len(run.complaints) < BAD_ROWS_SHOWN:
                    run.complaints.append(f"{path.name}:{number}: {error}")
    if not rows:
        raise ValueError(f"{path}: no row of a measured run in it. {'; '.join(run.complaints)}".rstrip(" ."))
    rows.sort(key=lambda row: row.arrival_time)
    shift_s = min(row.queued_ts - row.arrival_time for row in rows)
    run.requests = [_measured(row, row.arrival_time + shift_s) for row in rows]
    return run


def _measured(row: _Row, arrived_at: float) -> Measured:
    stamps = row.queued_ts, row.first_token_ts, row.last_token_ts
    return Measured(arrived_at, row.input_toks, row.output_toks, *stamps)
