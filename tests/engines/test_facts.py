"""What engines say of themselves: captured, in the words of their versions, and strange."""

from __future__ import annotations

import json

import pytest

from maitred.core.words import Facts
from maitred.engines.dialect import ModelCard, read_models
from maitred.engines.facts import QUESTIONS, read_facts
from tests.engines.captures import captured

METRICS = captured("vllm_metrics_under_load.txt")


def card(engine: str) -> ModelCard:
    return ModelCard("q", engine, 4096, {}, ("sql",))


def facts(engine: str, about: object = None, metrics: str | None = None) -> Facts:
    answers = {} if about is None else {QUESTIONS[engine][0]: json.dumps(about).encode()}
    return read_facts(card(engine), answers, None if metrics is None else metrics.encode())


def cache(**labels: object) -> str:
    text = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return f"vllm:cache_config_info{{{text}}} 1.0\n"


def test_a_captured_vllm() -> None:
    (known,) = read_models(captured("vllm_models.txt"))
    answers = {"/version": captured("vllm_version.txt")}
    assert read_facts(known, answers, METRICS) == Facts(
        engine="vllm",
        model="smollm2",
        context_tokens=2048,
        version="0.32.0",
        kv_tokens=46592,
        prefix_caching=True,
        started_at=1795965928.75,
    )


def test_a_captured_llamacpp() -> None:
    (known,) = read_models(captured("llamacpp_models.txt"))
    answers = {"/props": captured("llamacpp_props.txt")}
    assert read_facts(known, answers, captured("llamacpp_metrics.txt")) == Facts(
        engine="llamacpp",
        model="smollm2-135m",
        context_tokens=2048,
        version="b0-unknown",
        kv_tokens=4 * 2048,
        slots=4,
    )


def test_an_older_vllm_tells_blocks_and_each_rank_has_its_own() -> None:
    ranks = [
        cache(engine=rank, block_size=16, num_gpu_blocks=100, enable_prefix_caching=False) for rank in (0, 1)
    ]
    told = facts("vllm", metrics="".join(ranks))
    assert (told.kv_tokens, told.prefix_caching) == (3200, False)


def test_a_pooling_vllm_has_no_cache_and_so_no_prefixes() -> None:
    """It tells `enable_prefix_caching="False"`, of which nothing follows."""
    none = cache(block_size=128, num_gpu_blocks=1, kv_cache_size_tokens=None, enable_prefix_caching=False)
    told = facts("vllm", metrics=none)
    assert (told.kv_tokens, told.prefix_caching) == (None, None)


def test_sglang() -> None:
    state = {"effective_max_running_requests_per_dp": 128, "memory_usage": {"token_capacity": 20480}}
    about = {"version": "0.5.19", "disable_radix_cache": False, "internal_states": [state, state]}
    told = facts("sglang", about)
    assert (told.version, told.prefix_caching, told.slots, told.kv_tokens) == ("0.5.19", True, 256, 40960)
    metrics = "".join(
        f'sglang:max_total_num_tokens{{dp_rank="{dp}",tp_rank="{tp}"}} 1000\n'
        for dp in (0, 1)
        for tp in (0, 1)
    )
    assert facts("sglang", about, metrics).kv_tokens == 2000


def test_an_older_sglang_is_asked_at_another_path_and_says_less() -> None:
    about = {"max_total_num_tokens": 1000, "max_running_requests": 64, "disable_radix_cache": True}
    told = read_facts(card("sglang"), {"/get_server_info": json.dumps(about).encode()}, None)
    assert (told.kv_tokens, told.slots, told.prefix_caching) == (1000, 64, False)


def test_trtllm() -> None:
    metrics = (
        'trtllm_kv_cache_max_blocks{model_name="q"} 10\ntrtllm_kv_cache_tokens_per_block{model_name="q"} 32\n'
        'trtllm_max_num_active_requests{model_name="q"} 8\n'
    )
    told = facts("trtllm", {"version": "1.2.0"}, metrics)
    assert (told.version, told.kv_tokens, told.slots) == ("1.2.0", 320, 8)


@pytest.mark.parametrize("engine", QUESTIONS)
def test_what_is_not_told_is_not_known(engine: str) -> None:
    bare = Facts(engine=engine, model="q", context_tokens=4096, adapters=("sql",))
    assert facts(engine) == bare
    assert read_facts(card(engine), dict.fromkeys(QUESTIONS[engine], b"<html>"), b"\xff") == bare


@pytest.mark.parametrize(
    ("engine", "about"),
    [
        ("vllm", []),
        ("vllm", {"version": 7}),
        ("vllm", {"version": None}),
        ("sglang", {"internal_states": "none", "disable_radix_cache": "no", "max_running_requests": True}),
        (
            "sglang",
            {"internal_states": [7, {"memory_usage": [], "effective_max_running_requests_per_dp": -1}]},
        ),
        ("sglang", {"max_total_num_tokens": 1e300, "max_running_requests": "²"}),
        ("llamacpp", {"total_slots": 0, "default_generation_settings": {"n_ctx": 2048}}),
        ("llamacpp", {"total_slots": "four", "default_generation_settings": []}),
    ],
)
def test_strange_answers_tell_nothing(engine: str, about: object) -> None:
    assert facts(engine, about) == facts(engine)


def test_a_version_is_not_longer_than_a_line() -> None:
    assert len(facts("vllm", {"version": "9" * 10_000}).version) == 64


def test_an_answer_nested_too_deep_tells_nothing() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    assert read_facts(card("vllm"), {"/version": deep}, None) == facts("vllm")
