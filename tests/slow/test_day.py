"""A day and a night of a small fleet in virtual time, in which everything fails now and then.

At the end nobody waits, nothing runs, nothing is set aside: whatever went wrong, all of it was given back.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from maitred.config.load import load
from maitred.config.simulate import Fault
from maitred.core.outcome import Outcome
from maitred.sim.fleet import Fleet, Waits
from maitred.sim.simulate import nodes_of
from maitred.sim.workload import load_workload
from maitred.sim.world import World

DAY_S = 24 * 3600
HOUSE = """
version: 1
bands: [{name: chat}, {name: batch, deadline: 10m, share_min: 10%}]
tenants:
  day: {bands: [chat], limits: {tokens_per_min: 40k, concurrent: 40}}
  night: {bands: [batch], limits: {tokens_per_min: 200k}}
models:
  - name: m
    endpoints: [http://127.0.0.1:8101, http://127.0.0.1:8102, http://127.0.0.1:8103]
    cap: auto
    queue: {wait: 20s, requests: 64}
    slo: {ttft: 2s, tpot: 100ms}
simulate: {profile: l40s-llama-3.1-8b}
"""
LOAD = """
version: 1
traffic:
  - name: chat
    model: m
    tenant: day
    prompts: {tokens: {median: 600, p95: 2500}}
    output: {median: 150, p95: 500}
    patience: 30s
    arrivals: {stages: [{rate: 20/m, duration: 24h}]}
  - name: batch
    model: m
    tenant: night
    stream: false
    prompts: {tokens: {median: 3000, p95: 8k}}
    output: 300
    arrivals: {pattern: {burst: 10}, stages: [{rate: 10/m, duration: 24h}]}
"""
KINDS = ("crash", "hang", "slow", "cut", "mute")


def faults(seed: int) -> list[Fault]:
    """One every ten minutes or so, to one of them."""
    rng, at_s, some = Random(seed), 60.0, []
    while at_s < DAY_S:
        url = f"http://127.0.0.1:{rng.choice((8101, 8102, 8103))}"
        kind = rng.choice(KINDS)
        for_s = None if kind == "crash" else rng.uniform(1.0, 120.0)
        some.append(Fault(at_s, url, kind, for_s, rng.choice((2, 5, 20))))
        at_s += rng.expovariate(1 / 600)
    return some


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_after_a_day_of_failures_nothing_is_left_over(tmp_path: Path, seed: int) -> None:
    (tmp_path / "house.yaml").write_text(HOUSE)
    (tmp_path / "load.yaml").write_text(LOAD)
    config, spec = load(tmp_path / "house.yaml", {}), load_workload(tmp_path / "load.yaml")
    upstream = config.upstream
    waits = Waits(upstream.connect_s, upstream.first_byte_s, upstream.idle_s)
    fleet = Fleet(config.core_settings(), nodes_of(config), spec.workload(Random(seed)), seed, waits)
    World(fleet, config.scrape.period_s, tuple(faults(seed)), config.health).begin()
    fleet.begin()
    while fleet.expected and fleet.step():
        pass
    ended = Counter(record.outcome for record in fleet.records)
    assert sum(ended.values()) > 40_000
    assert ended[Outcome.COMPLETED] > 0.9 * sum(ended.values())
    assert ended[Outcome.FAILED_UPSTREAM] + ended[Outcome.FAILED_TRUNCATED] > 0  # things did go wrong
    gateway = fleet.gateway
    assert gateway.waiting == 0
    assert not any(gateway.waiting_by_pool().values())
    for endpoint in gateway.table.by_name.values():
        assert (endpoint.running, endpoint.reserved, endpoint.unread) == (0, 0, 0)
    for pool in gateway._pools.values():
        assert (pool.queue.waiting, pool.queue.body_bytes, pool.queue.odd) == (0, 0, {})
    for holder in gateway.limiter._holders.values():
        assert (holder.running, holder.reserved_tokens, holder.reserved_money) == (0, 0, 0)
