"""What engines' metrics say of their work: captured, of several ranks, and garbled."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maitred.core.words import Load
from maitred.engines.metrics import METRICS_PATH, read_load, read_start, samples, total
from tests.engines.captures import captured

VLLM = captured("vllm_metrics_under_load.txt")
LLAMACPP = captured("llamacpp_metrics.txt")


def vllm(running: object = 1, waiting: object = 2, more: str = "") -> bytes:
    lines = f"vllm:num_requests_running {running}\nvllm:num_requests_waiting {waiting}\n{more}"
    return lines.encode()


def sglang(name: str, value: object, **labels: object) -> str:
    text = ",".join(f'{key}="{label}"' for key, label in {"model_name": "q", **labels}.items())
    return f"sglang:{name}{{{text}}} {value}\n"


def test_captured_answers() -> None:
    assert read_load("vllm", VLLM) == Load(2, 4, 0.0013745704467353903, 0)
    assert read_load("", VLLM) == read_load("vllm", VLLM)
    assert read_load("llamacpp", LLAMACPP) == Load()
    assert read_start(VLLM) == 1795965928.75
    assert read_start(LLAMACPP) is None


def test_vllms_ranks_are_added_up_and_their_use_averaged() -> None:
    body = "".join(
        f'vllm:{name}{{engine="{rank}",model_name="q"}} {value}\n'
        for rank, values in enumerate([(3, 1, 0.25, 4), (5, 2, 0.75, 5)])
        for name, value in zip(
            ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "num_preemptions_total"),
            values,
            strict=True,
        )
    )
    assert read_load("vllm", body.encode()) == Load(8, 3, 0.5, 9)


def test_vllms_old_name_of_its_use_is_known() -> None:
    assert read_load("vllm", vllm(more="vllm:gpu_cache_usage_perc 0.5\n")).kv_use == 0.5
    both = "vllm:gpu_cache_usage_perc 0.5\nvllm:kv_cache_usage_perc 0.25\n"
    assert read_load("vllm", vllm(more=both)).kv_use == 0.25


def test_sglangs_workers_of_one_rank_repeat_it_and_other_ranks_add_to_it() -> None:
    body = "".join(
        sglang(name, value, dp_rank=dp, tp_rank=tp)
        for name, values in (
            ("num_running_reqs", (3, 5)),
            ("num_queue_reqs", (1, 2)),
            ("token_usage", (0.25, 0.75)),
        )
        for dp, value in enumerate(values)
        for tp in range(4)
    )
    assert read_load("sglang", body.encode()) == Load(8, 3, 0.5)


def test_sglangs_priorities_are_parts_of_its_sum() -> None:
    body = "".join(
        sglang(name, value, priority=priority)
        for name in ("num_running_reqs", "num_queue_reqs")
        for priority, value in (("10", 9), ("", 14), ("-9223372036854775808", 5))
    )
    assert read_load("sglang", body.encode()) == Load(14, 14)


def test_trtllm() -> None:
    body = (
        b'trtllm_num_requests_running{engine_type="trtllm",model_name="q"} 3.0\n'
        b'trtllm_num_requests_waiting{engine_type="trtllm",model_name="q"} 1.0\n'
        b'trtllm_kv_cache_utilization{engine_type="trtllm",model_name="q"} 0.5\n'
    )
    assert read_load("trtllm", body) == Load(3, 1, 0.5)
    assert METRICS_PATH["trtllm"] == "/prometheus/metrics"


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "llamacpp", ""])
@pytest.mark.parametrize("body", [b"", b"<html>not here</html>", b"\xff\x00\n" * 100])
def test_what_is_missing_is_said(engine: str, body: bytes) -> None:
    with pytest.raises(ValueError, match=r"^tells no \S+run\S+$|^tells no \S+processing$"):
        read_load(engine, body)


def test_each_family_is_needed_but_the_cache() -> None:
    with pytest.raises(ValueError, match=r"^tells no vllm:num_requests_waiting$"):
        read_load("vllm", b"vllm:num_requests_running 1\n")
    assert read_load("vllm", vllm()) == Load(1, 2)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "1e300", "many", ""])
def test_what_is_no_count_is_as_good_as_missing(value: str) -> None:
    with pytest.raises(ValueError, match=r"^tells no vllm:num_requests_running$"):
        read_load("vllm", vllm(value))


def test_a_value_may_have_its_time_behind_it() -> None:
    assert read_load("vllm", vllm("1 1795965928000")).running == 1


def test_use_is_at_most_one() -> None:
    assert read_load("vllm", vllm(more="vllm:kv_cache_usage_perc 1.5\n")).kv_use == 1.0


def test_a_family_is_its_whole_name_at_the_start_of_a_line() -> None:
    body = (
        b"# HELP vllm:num_requests_running 9\n"
        b"vllm:num_requests_running_by_reason 9\n"
        b"a vllm:num_requests_running 9\n"
        b"avllm:num_requests_running 9\n" + vllm(4)
    )
    assert read_load("vllm", body).running == 4
    assert read_load("vllm", vllm(4)[:-1]).running == 4


def test_labels_may_hold_anything() -> None:
    body = rb'm{a="}\" 7",b="x=\"y\",{",c=""} 3' + b'\nm 4\nm{a="broken} 5\n'
    assert list(samples(body, "m")) == [
        ({"a": r"}\" 7", "b": r"x=\"y\",{", "c": ""}, 3.0),
        ({}, 4.0),
        ({}, 5.0),
    ]
    assert total(body, "m") == 5


@pytest.mark.parametrize("noise", [b"a", b"}", b'a="', b'a="\\', b" ", b'",'])
def test_garbage_costs_no_more_than_its_length(noise: bytes) -> None:
    """Quadratic work over a million bytes would take minutes."""
    body = b"vllm:num_requests_running{" + noise * (1_000_000 // len(noise)) + b"} 1"
    assert [value for _, value in samples(body, "vllm:num_requests_running")] in ([], [1.0])


@given(
    st.lists(
        st.sampled_from(
            [b"vllm:num_requests_running", b"vllm:num_requests_waiting", b"\n", b"{", b"}", b'"', b" "]
        )
        | st.binary(max_size=4)
        | st.sampled_from([digit.encode() for digit in string.digits])
    )
)
def test_garbage_is_read_or_refused(parts: list[bytes]) -> None:
    try:
        load = read_load("vllm", b"".join(parts))
    except ValueError:
        return
    assert min(load.running, load.waiting) >= 0
