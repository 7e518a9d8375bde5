"""What else an engine tells of itself, beside its list of models: version, size of its cache, and the like.

Every kind of engine tells other things in another place, and none of them all. Whatever is missing or strange
is simply not known: facts help to decide and to explain, and nothing fails for want of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from maitred.core.words import Facts
from maitred.engines.dialect import ModelCard
from maitred.engines.metrics import COUNT_MAX, read_start, samples, total

QUESTIONS: dict[str, tuple[str, ...]] = {
    "vllm": ("/version",),
    "sglang": ("/server_info", "/get_server_info"),  # the second is what older ones call the first
    "llamacpp": ("/props",),
    "trtllm": ("/version",),
    "": (),
}
"""Paths at which each kind of engine answers GET with a JSON object of facts."""

PREFIX_CACHING_ON = {
    "vllm": "restart it without --no-enable-prefix-caching",
    "sglang": "restart it without --disable-radix-cache",
    "llamacpp": "restart it without --no-cache-prompt",
    "trtllm": "set enable_block_reuse in its kv_cache_config",
    "": "switch it on",
}
"""How each kind of engine is made to keep prefixes."""

SALT_UNHEEDED = {
    "sglang": (
        "its /v1/messages takes no cache_salt, so tenants that use it share their cache there",
        "have them use /v1/chat/completions, or give each tenant engines of its own",
    ),
    "llamacpp": (
        "it knows no cache_salt, so tenants share what its slots hold",
        "restart it with --no-cache-prompt, or give each tenant engines of its own",
    ),
    "": (
        "nobody knows whether this engine heeds cache_salt",
        "ask its documentation, or give each tenant engines of its own",
    ),
}
"""By kind of engine, where salts do not keep tenants apart, and what to do about it."""

TELLS_SALTS = ("vllm",)
"""Kinds of engine whose KV events tell the salt of a block."""

VERSION_CHARS_MAX = 64


def read_facts(card: ModelCard, answers: Mapping[str, bytes], metrics: bytes | None) -> Facts:
    """The facts of one model's engine, from its answers to QUESTIONS (path to body) and its metrics."""
    metrics = metrics or b""
    told = [_object(answers[path]) for path in QUESTIONS[card.engine] if path in answers]
    about = told[0] if told else {}
    known = _READERS[card.engine](about, metrics)
    return Facts(
        engine=card.engine,
        model=card.id,
        context_tokens=card.context_tokens,
        adapters=card.adapters,
        started_at=read_start(metrics),
        **known,
    )


def _vllm(about: dict[str, Any], metrics: bytes) -> dict[str, Any]:
    """An engine without a KV cache of its own (a pooling model) has no prefixes to keep either."""
    caches = [labels for labels, _ in samples(metrics, "vllm:cache_config_info")]
    sizes = [_cache_tokens(labels) for labels in caches]
    kv_tokens = sum(size for size in sizes if size) or None
    prefix_caching = caches[0].get("enable_prefix_caching") == "True" if kv_tokens else None
    return {"version": _version(about, "version"), "kv_tokens": kv_tokens, "prefix_caching": prefix_caching}


def _cache_tokens(labels: dict[str, str]) -> int | None:
    """Size of one rank's KV cache; newer ones say it outright, because blocks may hold unequal parts."""
    if (size := labels.get("kv_cache_size_tokens")) is not None:
        return _count(size)
    blocks, block_size = _count(labels.get("num_gpu_blocks")), _count(labels.get("block_size"))
    return blocks * block_size if blocks and block_size else None


def _sglang(about: dict[str, Any], metrics: bytes) -> dict[str, Any]:
    """Its ranks are in `internal_states`; what an old one does not say there it says once for all of them."""
    states = [state for state in _list(about.get("internal_states")) if isinstance(state, dict)]
    slots = [_count(state.get("effective_max_running_requests_per_dp")) for state in states]
    caches = [_count(_dict(state.get("memory_usage")).get("token_capacity")) for state in states]
    radix_off = about.get("disable_radix_cache")
    return {
        "version": _version(about, "version"),
        "kv_tokens": total(metrics, "sglang:max_total_num_tokens", "dp_rank")
        or sum(size for size in caches if size)
        or _count(about.get("max_total_num_tokens")),
        "prefix_caching": not radix_off if isinstance(radix_off, bool) else None,
        "slots": sum(count for count in slots if count) or _count(about.get("max_running_requests")),
    }


def _llamacpp(about: dict[str, Any], _metrics: bytes) -> dict[str, Any]:
    slots = _count(about.get("total_slots"))
    slot_tokens = _count(_dict(about.get("default_generation_settings")).get("n_ctx"))
    kv_tokens = slots * slot_tokens if slots and slot_tokens else None
    return {"version": _version(about, "build_info"), "kv_tokens": kv_tokens, "slots": slots}


def _trtllm(about: dict[str, Any], metrics: bytes) -> dict[str, Any]:
    blocks = total(metrics, "trtllm_kv_cache_max_blocks")
    block_size = total(metrics, "trtllm_kv_cache_tokens_per_block")
    return {
        "version": _version(about, "version"),
        "kv_tokens": blocks * block_size if blocks and block_size else None,
        "slots": total(metrics, "trtllm_max_num_active_requests") or None,
    }


def _unknown(_about: dict[str, Any], _metrics: bytes) -> dict[str, Any]:
    return {}


_READERS = {"vllm": _vllm, "sglang": _sglang, "llamacpp": _llamacpp, "trtllm": _trtllm, "": _unknown}


def _object(body: bytes) -> dict[str, Any]:
    try:
        return _dict(msgspec.json.decode(body))
    except (ValueError, RecursionError):
        return {}


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _count(value: object) -> int | None:
    """A whole number above zero, told as number or text."""
    if isinstance(value, str) and value.isdecimal():
        value = float(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value <= COUNT_MAX:
        return int(value)
    return None


def _version(about: dict[str, Any], key: str) -> str:
    version = about.get(key)
    return version[:VERSION_CHARS_MAX] if isinstance(version, str) else ""
