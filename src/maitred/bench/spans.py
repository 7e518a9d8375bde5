"""Where the time of requests goes, as the engines tell: the growth of their metrics over a run.

What a client sees before the first token is queue and prefill in one. vLLM counts both apart (histograms
`vllm:request_queue_time_seconds`, `…_prefill_…`, `…_decode_…`); of other engines nothing is told. The means
are of all requests that ended in that time, whoever sent them.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from maitred.engines.metrics import METRICS_PATH, samples
from maitred.net.fetch import fetch
from maitred.net.pool import ConnectFailed, Pool

NAMES = ("queue", "prefill", "decode")
ANSWER_S = 5.0


class Spans(Struct, frozen=True):
    """Mean seconds of a request in an engine, over so many requests."""

    requests: int
    queue_s: float
    prefill_s: float
    decode_s: float


class Totals(Struct, frozen=True):
    """What engines have counted since they started: requests, and the seconds of each span."""

    requests: float
    sums_s: tuple[float, ...]


async def look(pool: Pool, engines: Sequence[str]) -> Totals | None:
    """The totals of these engines (URLs) together; None where one of them does not tell."""
    requests, sums_s = 0.0, [0.0] * len(NAMES)
    for url in engines:
        try:
            status, body = await fetch(pool, url, METRICS_PATH["vllm"], ANSWER_S)
        except ConnectFailed:
            return None
        counts = _all(body, f"{NAMES[0]}_time_seconds_count")
        if status != 200 or not counts:
            return None
        requests += sum(counts)
        for index, name in enumerate(NAMES):
            sums_s[index] += sum(_all(body, f"{name}_time_seconds_sum"))
    return Totals(requests, tuple(sums_s))


def between(before: Totals | None, after: Totals | None) -> Spans | None:
    """The means over what was added; None where nothing was, or an engine started anew."""
    if before is None or after is None:
        return None
    requests = after.requests - before.requests
    grown_s = [late - early for early, late in zip(before.sums_s, after.sums_s, strict=True)]
    if requests <= 0 or min(grown_s) < 0:
        return None
    queue_s, prefill_s, decode_s = (grown / requests for grown in grown_s)
    return Spans(int(requests), queue_s, prefill_s, decode_s)


def _all(body: bytes, name: str) -> list[float]:
    return [value for _, value in samples(body, f"vllm:request_{name}")]
