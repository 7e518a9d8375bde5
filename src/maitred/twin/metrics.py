"""The twin's /metrics: the families of vLLM 0.32 that gateways and dashboards read, by name, type and label.

Written here line by line: it is done on the loop that streams, and takes a fraction of a millisecond.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from maitred.observe.histogram import Histogram
from maitred.sim.engine import Engine
from maitred.twin.counts import HISTOGRAMS, Counts

CONTENT_LINES = b"server: uvicorn\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n"

Labels = dict[str, str]
Samples = Iterable[tuple[Labels, float]]


class Vitals(Struct, frozen=True):
    """What the metrics tell: of the engine, of its requests, of the process.

    `started_s` is wall time. `waiting_adapters` and `running_adapters` are names.
    """

    engine: Engine
    counts: Counts
    model: str
    started_s: float
    asleep: bool
    running_adapters: Iterable[str]
    waiting_adapters: Iterable[str]
    now_s: float


def render(vitals: Vitals) -> bytes:
    """All metrics as Prometheus text."""
    return "\n".join(_lines(vitals)).encode() + b"\n"


def _lines(vitals: Vitals) -> Iterator[str]:
    yield "# HELP process_start_time_seconds Start of the process, in seconds since the epoch."
    yield "# TYPE process_start_time_seconds gauge"
    yield f"process_start_time_seconds {vitals.started_s!r}"
    base = {"engine": "0", "model_name": vitals.model}
    for name, kind, text, read in FAMILIES:
        yield from _heading(name, kind, text)
        samples = [({**base, **labels}, value) for labels, value in read(vitals)]
        yield from (_sample(name, labels, value) for labels, value in samples)
        if kind == "counter":
            yield from _created(name.removesuffix("_total"), (labels for labels, _ in samples), vitals)
    for name, (_, text) in HISTOGRAMS.items():
        yield from _heading(name, "histogram", text)
        yield from _buckets(name, base, vitals.counts.histograms[name])
        yield from _created(name, [base], vitals)
    yield from _heading("cache_config_info", "gauge", "1; the labels say how the KV cache is configured.")
    yield _sample("cache_config_info", _cache(vitals.engine), 1)
    if vitals.engine.profile.adapters_max:
        yield from _heading(
            "lora_requests_info", "gauge", "When adapters were last counted; labels name them."
        )
        yield _sample("lora_requests_info", _adapters(vitals), vitals.now_s)


def _heading(name: str, kind: str, text: str) -> tuple[str, str]:
    return f"# HELP vllm:{name} {text}", f"# TYPE vllm:{name} {kind}"


def _sample(name: str, labels: Labels, value: float) -> str:
    said = ",".join(f'{key}="{_escape(labels[key])}"' for key in sorted(labels))
    return f"vllm:{name}{{{said}}} {float(value)!r}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _created(name: str, series: Iterable[Labels], vitals: Vitals) -> Iterator[str]:
    """When each series began, as prometheus_client tells of counters and histograms."""
    yield from _heading(f"{name}_created", "gauge", "When the series began.")
    for labels in series:
        yield _sample(f"{name}_created", labels, vitals.started_s)


def _buckets(name: str, base: Labels, histogram: Histogram) -> Iterator[str]:
    so_far = 0
    for bound, count in zip((*map(str, histogram.bounds), "+Inf"), histogram.counts, strict=True):
        so_far += count
        yield _sample(f"{name}_bucket", {**base, "le": bound}, so_far)
    yield _sample(f"{name}_count", base, so_far)
    yield _sample(f"{name}_sum", base, histogram.total)


def _cache(engine: Engine) -> Labels:
    profile = engine.profile
    return {
        "engine": "0",
        "block_size": str(profile.block_tokens),
        "cache_dtype": "auto",
        "enable_prefix_caching": str(profile.prefix_caching),
        "kv_cache_size_tokens": str(profile.kv_blocks * profile.block_tokens * profile.ranks),
        "num_cpu_blocks": "None",
        "num_gpu_blocks": str(profile.kv_blocks * profile.ranks),
        "prefix_caching_hash_algo": "xxh3",
        "sliding_window": "None",
    }


def _adapters(vitals: Vitals) -> Labels:
    return {
        "max_lora": str(vitals.engine.profile.adapters_max),
        "running_lora_adapters": ",".join(vitals.running_adapters),
        "waiting_lora_adapters": ",".join(vitals.waiting_adapters),
    }


def _one(read: Callable[[Engine], float]) -> Callable[[Vitals], Samples]:
    return lambda vitals: [({}, read(vitals.engine))]


def _count(read: Callable[[Counts], float]) -> Callable[[Vitals], Samples]:
    return lambda vitals: [({}, read(vitals.counts))]


def _by(label: str, **values: Callable[[Vitals], float]) -> Callable[[Vitals], Samples]:
    return lambda vitals: [({label: name}, read(vitals)) for name, read in values.items()]


def _nothing(_: object) -> float:
    return 0.0


FAMILIES: list[tuple[str, str, str, Callable[[Vitals], Samples]]] = [
    ("num_requests_running", "gauge", "Requests in the running batch.", _one(lambda e: e.running)),
    ("num_requests_waiting", "gauge", "Requests waiting to be scheduled.", _one(lambda e: e.waiting)),
    (
        "num_requests_waiting_by_reason",
        "gauge",
        "The same by reason.",
        _by("reason", capacity=lambda v: v.engine.waiting, deferred=_nothing),
    ),
    (
        "engine_sleep_state",
        "gauge",
        "Which of the states the engine is in.",
        _by(
            "sleep_state",
            awake=lambda v: not v.asleep,
            weights_offloaded=lambda v: v.asleep,
            discard_all=_nothing,
        ),
    ),
    ("kv_cache_usage_perc", "gauge", "Use of the KV cache, 1 is all of it.", _one(lambda e: e.kv_use)),
    ("prefix_cache_queries_total", "counter", "Tokens looked for in it.", _one(lambda e: e.queried_tokens)),
    ("prefix_cache_hits_total", "counter", "Tokens found in it.", _one(lambda e: e.hit_tokens)),
    (
        "external_prefix_cache_queries_total",
        "counter",
        "Tokens looked for elsewhere.",
        _count(lambda c: c.fetched),
    ),
    ("external_prefix_cache_hits_total", "counter", "Tokens found elsewhere.", _count(lambda c: c.fetched)),
    ("mm_cache_queries_total", "counter", "Media looked for in the cache.", _one(_nothing)),
    ("mm_cache_hits_total", "counter", "Media found in the cache.", _one(_nothing)),
    ("num_preemptions_total", "counter", "Preemptions.", _one(lambda e: e.preemptions)),
    (
        "prompt_tokens_total",
        "counter",
        "Tokens of prompts.",
        _count(lambda c: c.computed + c.cached + c.fetched),
    ),
    (
        "prompt_tokens_by_source_total",
        "counter",
        "Prompt tokens by where they came from.",
        _by(
            "source",
            local_compute=lambda v: v.counts.computed,
            local_cache_hit=lambda v: v.counts.cached,
            external_kv_transfer=lambda v: v.counts.fetched,
        ),
    ),
    (
        "prompt_tokens_cached_total",
        "counter",
        "Prompt tokens from caches.",
        _count(lambda c: c.cached + c.fetched),
    ),
    (
        "prompt_tokens_cached_by_source_total",
        "counter",
        "Prompt tokens from caches, by cache.",
        _by(
            "source",
            device=lambda v: v.counts.cached,
            host=_nothing,
            p2p=lambda v: v.counts.fetched,
            disk=_nothing,
            external_unspecified=_nothing,
        ),
    ),
    ("generation_tokens_total", "counter", "Tokens made.", _one(lambda e: e.generated_tokens)),
    (
        "request_success_total",
        "counter",
        "Finished requests by reason.",
        lambda v: [({"finished_reason": reason}, count) for reason, count in v.counts.ends.items()],
    ),
]
"""vLLM's gauges and counters: name without prefix, type, help, and a reader of its samples."""
