"""What an engine's Prometheus metrics say of its work, read into one shape.

Each kind of engine has its own names and its own label for data-parallel ranks. Only the few lines wanted
are looked for: this is done for every engine each second, and a full parser would read the other thousand.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from msgspec import Struct

from maitred.core.words import Load

COUNT_MAX = 2.0**53
"""No figure of an engine is larger; above it floats are not whole numbers any more either."""

METRICS_ON = {
    "vllm": "start vLLM without --disable-log-stats",
    "sglang": "start SGLang with --enable-metrics",
    "llamacpp": "start llama.cpp's server with --metrics",
    "trtllm": "set return_perf_metrics and enable_iter_perf_stats in the configuration of trtllm-serve",
    "": "see what it answers there",
}
"""How each kind of engine is made to tell its metrics."""

METRICS_PATH = {
    "vllm": "/metrics",
    "sglang": "/metrics",
    "llamacpp": "/metrics",
    "trtllm": "/prometheus/metrics",
    "": "/metrics",
}
"""Where each kind of engine has its metrics; an unknown one is tried like vLLM."""


class _Names(Struct, frozen=True):
    """Families of one kind of engine, each by its possible names; `rank` labels independent engines in it."""

    running: tuple[str, ...]
    waiting: tuple[str, ...]
    kv_use: tuple[str, ...] = ()
    preemptions: tuple[str, ...] = ()
    rank: str = ""


_VLLM = _Names(
    running=("vllm:num_requests_running",),
    waiting=("vllm:num_requests_waiting",),
    kv_use=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    preemptions=("vllm:num_preemptions_total",),
    rank="engine",
)
_NAMES = {
    "vllm": _VLLM,
    "": _VLLM,
    "sglang": _Names(
        running=("sglang:num_running_reqs",),
        waiting=("sglang:num_queue_reqs",),
        kv_use=("sglang:token_usage",),
        rank="dp_rank",
    ),
    "llamacpp": _Names(
        running=("llamacpp:requests_processing",),
        waiting=("llamacpp:requests_deferred",),
        kv_use=("llamacpp:kv_cache_usage_ratio",),
    ),
    "trtllm": _Names(
        running=("trtllm_num_requests_running",),
        waiting=("trtllm_num_requests_waiting",),
        kv_use=("trtllm_kv_cache_utilization",),
    ),
}

_REST = re.compile(rb"(\{[^\n]*\})?[ \t]+(\S+)")
"""A sample behind its name. A label's value may hold braces; what follows the last one may not."""
_LABEL = re.compile(rb'(\w{1,64})="((?:[^"\\\n]|\\.)*)"')


def read_load(engine: str, body: bytes) -> Load:
    """What the metrics of this kind of engine ("" is taken for vLLM's) say of its work.

    Data-parallel ranks are added up, their use of the KV cache is averaged. Raises ValueError with a one-line
    reason when the number of running or of waiting requests is not told.
    """
    names = _NAMES[engine]
    running = _by_rank(body, names.running, names.rank)
    waiting = _by_rank(body, names.waiting, names.rank)
    for family, values in ((names.running, running), (names.waiting, waiting)):
        if not values:
            raise ValueError(f"tells no {family[0]}")
    kv_use = _by_rank(body, names.kv_use, names.rank)
    preemptions = _by_rank(body, names.preemptions, names.rank)
    return Load(
        running=int(sum(running)),
        waiting=int(sum(waiting)),
        kv_use=min(1.0, sum(kv_use) / len(kv_use)) if kv_use else None,
        preemptions=int(sum(preemptions)) if preemptions else None,
    )


def read_start(body: bytes) -> float | None:
    """Wall time in seconds at which the engine's process started; None where its metrics do not tell."""
    return next((value for _, value in samples(body, "process_start_time_seconds")), None)


def total(body: bytes, name: str, rank: str = "") -> int | None:
    """One family added up over its ranks; None where it has no sample."""
    values = _by_rank(body, (name,), rank)
    return int(sum(values)) if values else None


def samples(body: bytes, name: str) -> Iterator[tuple[dict[str, str], float]]:
    """The samples of one family: labels and value. What is no count (NaN, infinite, negative) is left out."""
    wanted = name.encode()
    at = body.find(wanted)
    while at >= 0:
        end = at + len(wanted)
        rest = _REST.match(body, end) if at == 0 or body[at - 1] == 0x0A else None
        if rest and (value := _value(rest[2])) is not None:
            labels = _LABEL.findall(rest[1] or b"")
            yield {key.decode(): text.decode(errors="replace") for key, text in labels}, value
        at = body.find(wanted, end)


def _value(text: bytes) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value <= COUNT_MAX else None


def _by_rank(body: bytes, names: tuple[str, ...], rank: str) -> list[float]:
    """One value for each rank, of the first of the names that is there.

    The rank's own figure is the largest: SGLang's workers (`tp_rank`) repeat it, and the figures of its
    priorities (`priority`) are parts of it.
    """
    for name in names:
        ranks: dict[str, float] = {}
        for labels, value in samples(body, name):
            of = labels.get(rank, "")
            ranks[of] = max(value, ranks.get(of, 0.0))
        if ranks:
            return list(ranks.values())
    return []
