"""Engines of two kinds behind one model: each gets what it can do, by what was learned of it alone."""

from __future__ import annotations

from pathlib import Path

from maitred.config.load import load
from maitred.sim.simulate import routed, simulate
from maitred.sim.workload import load_workload

HOUSE = """
version: 1
models:
  - name: m
    endpoints:
      - http://127.0.0.1:8101
      - http://127.0.0.1:8102
      - http://127.0.0.1:8103
      - http://127.0.0.1:8104
    cap: 256
    saturation: concurrency
simulate:
  engines:
    - {endpoint: http://127.0.0.1:8101, profile: h100-llama-3.1-8b}
    - {endpoint: http://127.0.0.1:8102, profile: l40s-llama-3.1-8b}
    - {endpoint: http://127.0.0.1:8103, profile: h100-llama-3.1-8b}
    - {endpoint: http://127.0.0.1:8104, profile: l40s-llama-3.1-8b}
"""
LOAD = """
version: 1
traffic:
  - name: chat
    model: m
    prompts: {tokens: {median: 2000, p95: 8000}}
    output: {median: 150, p95: 500}
    arrivals: {stages: [{rate: 17/s, duration: 90s}]}
"""
TTFT_S, TPOT_S = 2.0, 0.1


def good(tmp_path: Path, routing: str, seed: int) -> float:
    """The part of requests that was served within the goals."""
    (tmp_path / "house.yaml").write_text(HOUSE)
    (tmp_path / "load.yaml").write_text(LOAD)
    house = routed(load(tmp_path / "house.yaml", {}), routing)
    records = simulate(routing, house, load_workload(tmp_path / "load.yaml"), seed).records
    kept = 0
    for record in records:
        if record.ttft_s is not None and record.ttft_s <= TTFT_S:
            wrote_s = record.over_at - record.arrival.at - record.ttft_s
            kept += wrote_s <= TPOT_S * (record.tokens - 1)
    return kept / len(records)


def test_the_default_policy_makes_more_of_it_than_least_requests(tmp_path: Path) -> None:
    for seed in (1, 3):
        ours, others = (good(tmp_path, routing, seed) for routing in ("default", "least-requests"))
        assert ours >= 0.93
        assert ours >= others + 0.05, (ours, others)
