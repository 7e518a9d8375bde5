"""A fleet that gets more than it can do: who is served, who is refused, and how soon each is told.

Two small engines in virtual time, the production core before them. What they can do was found by a ladder of
rates without any flow control (benchmarks/overload.py): at 6 requests a second of this mix 99 % are served
within the goals, at 8 not a third.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from statistics import fmean

import pytest

from maitred.config.load import load
from maitred.core.outcome import Outcome
from maitred.sim.arrival import Record
from maitred.sim.fleet import Fleet
from maitred.sim.simulate import simulate
from maitred.sim.workload import load_workload

CAPACITY_PER_S = 6
SPAN_S = 120
TTFT_S, TPOT_S = 2.0, 0.1
BEFORE = {Outcome.QUEUE_FULL, Outcome.DEADLINE_UNMEETABLE}
"""Refused without having waited."""
WAITED = {Outcome.QUEUE_DEADLINE, Outcome.EVICTED}

HOUSE = """
version: 1
bands:
  - {name: chat}
  - {name: agent, deadline: 20s}
  - {name: batch, deadline: 10m, share_min: 10%}
tenants:
  support: {bands: [chat]}
  tools: {bands: [agent]}
  nightly: {bands: [batch]}
models:
  - name: m
    endpoints: [http://127.0.0.1:8101, http://127.0.0.1:8102]
    cap: auto
    queue: {wait: 20s, requests: 512}
    slo: {ttft: 2s, tpot: 100ms}
simulate: {profile: l40s-llama-3.1-8b}
"""
OPEN = HOUSE.replace("cap: auto", "cap: 100000\n    saturation: concurrency").replace(
    "slo: {ttft: 2s, tpot: 100ms}", ""
)
"""The same house, which lets everything through."""
CHAT = "prompts: {tokens: {median: 300, p95: 1200}}, output: {median: 150, p95: 500}"
AGENT = "prompts: {tokens: {median: 1500, p95: 4000}}, output: {median: 200, p95: 600}"
BATCH = "prompts: {tokens: {median: 3000, p95: 8k}}, output: 300"


class Look:
    """What waits inside the engines, seen each time something happens."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waiting: list[int] = []
        step = Fleet.step

        def seen(fleet: Fleet) -> bool:
            going = step(fleet)
            if fleet.now >= len(self.waiting):  # once a second
                self.waiting.append(sum(node.engine.waiting for node in fleet.nodes.values()))
            return going

        monkeypatch.setattr(Fleet, "step", seen)


def sent(tmp_path: Path, *classes: str, house: str = HOUSE, seed: int = 1) -> list[Record]:
    """What became of the requests of these classes of traffic."""
    (tmp_path / "house.yaml").write_text(house)
    lines = "".join(f"  - {{model: m, {each}}}\n" for each in classes)
    (tmp_path / "load.yaml").write_text(f"version: 1\ntraffic:\n{lines}")
    run = simulate("house", load(tmp_path / "house.yaml", {}), load_workload(tmp_path / "load.yaml"), seed)
    return list(run.records)


def mix(rate: float) -> list[str]:
    """Half of it chat, a third agents, the rest a batch."""
    parts = (("chat", "support", CHAT, 30), ("agent", "tools", AGENT, 18), ("batch", "nightly", BATCH, 12))
    return [
        f"name: {name}, tenant: {tenant}, {sizes}, "
        f"arrivals: {{stages: [{{rate: {round(part * rate)}/m, duration: {SPAN_S}s}}]}}"
        for name, tenant, sizes, part in parts
    ]


def good(record: Record) -> bool:
    """Served in full and within the goals."""
    if record.outcome is not Outcome.COMPLETED or record.ttft_s is None:
        return False
    tpot_s = (record.over_at - record.arrival.at - record.ttft_s) / max(1, record.tokens - 1)
    return record.ttft_s <= TTFT_S and tpot_s <= TPOT_S


def of(records: Iterable[Record], tenant: str) -> list[Record]:
    return [record for record in records if record.arrival.tenant == tenant]


def quantile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_twice_what_it_can_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    at_capacity = sum(map(good, sent(tmp_path, *mix(CAPACITY_PER_S), house=OPEN, seed=seed)))
    look = Look(monkeypatch)
    records = sent(tmp_path, *mix(2 * CAPACITY_PER_S), seed=seed)
    assert sum(map(good, records)) >= 0.95 * at_capacity
    chat = [record.ttft_s for record in of(records, "support") if record.ttft_s is not None]
    assert quantile(chat, 0.99) <= TTFT_S
    refused = [record for record in records if record.outcome in BEFORE]
    assert refused
    assert max(record.over_at - record.arrival.at for record in refused) < 0.05
    assert sum(record.outcome in WAITED for record in records) <= 0.01 * len(records)
    assert fmean(look.waiting) / 2 <= 1
    assert {record.outcome for record in records} <= {Outcome.COMPLETED, *BEFORE, *WAITED}
    assert sum(record.outcome is Outcome.COMPLETED for record in of(records, "nightly")) > 100  # it gets on


def test_equal_tenants_get_equal_parts_though_one_sends_ten_times_as_much(tmp_path: Path) -> None:
    house = HOUSE.replace("tenants:", "default_tenant: {bands: [batch]}\ntenants:")
    sizes = "prompts: {tokens: 1000}, output: 200"
    records = sent(
        tmp_path,
        f"name: greedy, tenant: greedy, {sizes}, arrivals: {{stages: [{{rate: 100/s, duration: 60s}}]}}",
        f"name: modest, tenant: modest, {sizes}, arrivals: {{stages: [{{rate: 10/s, duration: 60s}}]}}",
        house=house,
    )
    served: dict[str, int] = {}
    for tenant in ("greedy", "modest"):
        done = [r for r in of(records, tenant) if r.outcome is Outcome.COMPLETED and 15 < r.over_at < 60]
        served[tenant] = sum(r.arrival.prompt_tokens + 2 * r.tokens for r in done)
    assert served["greedy"] == pytest.approx(served["modest"], rel=0.05)


def test_long_prompts_all_at_once_are_served_in_time_or_refused(tmp_path: Path) -> None:
    house = HOUSE.replace("bands: [chat]", "bands: [chat], weight: 1")
    records = sent(
        tmp_path,
        "name: docs, tenant: support, prompts: {tokens: 4000}, output: 300, "
        "arrivals: {stages: [{users: 32, think: 100ms, duration: 120s}]}",
        house=house,
    )
    answered = [record for record in records if record.outcome is Outcome.COMPLETED]
    assert len(answered) > 50
    assert max(record.ttft_s or 0.0 for record in answered) <= TTFT_S
    assert {record.outcome for record in records} <= {Outcome.COMPLETED, *BEFORE, *WAITED}
    assert len(answered) < len(records)
