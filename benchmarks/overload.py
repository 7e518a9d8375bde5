#!/usr/bin/env python3
"""What becomes of a fleet that gets more than it can do, with flow control and without: docs/flow-control.md.

    .venv/bin/python benchmarks/overload.py

The mix of examples/three-bands at rising rates, before the same two simulated engines: as the example has
them, and behind a gateway that lets everything through. Prints a table, writes docs/images/overload-*.svg.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import structs

from maitred.config.load import load
from maitred.config.tree import Config
from maitred.core.outcome import Outcome
from maitred.sim.arrival import Record
from maitred.sim.plots import by_rate
from maitred.sim.simulate import simulate
from maitred.sim.stages import Arrivals, RateStage
from maitred.sim.traffic import Generated, Traffic
from maitred.sim.workload import Spec, load_workload

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "three-bands"
RATES = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24)
SEEDS = (1, 2, 3)
SPAN_S = 120.0


def at_rate(spec: Spec, rate: float) -> Spec:
    """The mix at another rate, in requests/s."""
    stages = [_stage(each) for each in spec.file.traffic]
    factor = rate / sum(stage.rate for stage in stages)
    traffic = tuple(
        structs.replace(
            each,
            arrivals=Arrivals((RateStage(stage.rate * factor, stage.duration_s),)),
        )
        for each, stage in zip(spec.file.traffic, stages, strict=True)
    )
    return structs.replace(spec, file=structs.replace(spec.file, traffic=traffic))


def _stage(traffic: Traffic) -> RateStage:
    """The only stage of a class."""
    assert isinstance(traffic, Generated) and traffic.arrivals is not None  # noqa: PT018 - the example
    (stage,) = traffic.arrivals.stages
    assert isinstance(stage, RateStage)
    return stage


def open_house(config: Config) -> Config:
    """The same without flow control: one band, no cap to speak of, and all the time in the world."""
    model = config.models[0]
    queue = structs.replace(model.queue, wait_s=3600.0, requests_max=1_000_000)
    model = structs.replace(model, cap=100_000, saturation="concurrency", queue=queue)
    return structs.replace(config, bands=(), tenants={}, models=(model,))


def good(record: Record, config: Config) -> bool:
    """Served in full and within the goals of the model."""
    goal = config.models[0].slo
    if record.outcome is not Outcome.COMPLETED or record.ttft_s is None:
        return False
    tpot_s = (record.over_at - record.arrival.at - record.ttft_s) / max(1, record.tokens - 1)
    return record.ttft_s <= (goal.ttft_s or 0) and tpot_s <= (goal.tpot_s or 0)


def measured(config: Config, spec: Spec) -> tuple[float, float, float, float]:
    """Goodput, all and of chat, in requests/s; TTFT p99 of chat in seconds; part of chat that was refused."""
    goods = chat_goods = chats = refused = 0
    ttft_s: list[float] = []
    for seed in SEEDS:
        for record in simulate("overload", config, spec, seed).records:
            is_good = good(record, config)
            goods += is_good
            if record.arrival.tenant != "support":
                continue
            chats, chat_goods = chats + 1, chat_goods + is_good
            refused += record.outcome is not Outcome.COMPLETED
            if record.ttft_s is not None:
                ttft_s.append(record.ttft_s)
    ttft_s.sort()
    span_s = SPAN_S * len(SEEDS)
    return goods / span_s, chat_goods / span_s, ttft_s[int(0.99 * len(ttft_s))], refused / chats


def main() -> None:
    """Run, print and draw."""
    with_it = load(EXAMPLE / "fleet.yaml", {})
    spec = load_workload(EXAMPLE / "workload.yaml")
    houses = {"flow control": with_it, "let through": open_house(with_it)}
    goodput: dict[str, list[tuple[float, float]]] = {name: [] for name in houses}
    first: dict[str, list[tuple[float, float]]] = {name: [] for name in houses}
    print("rate/s  house         goodput/s  of chat  chat TTFT p99 s  chat refused")
    for rate in RATES:
        for name, config in houses.items():
            all_good, chat_good, ttft_s, refused = measured(config, at_rate(spec, rate))
            print(f"{rate:6}  {name:12}  {all_good:9.2f}  {chat_good:7.2f}  {ttft_s:15.2f}  {refused:12.1%}")
            goodput[name].append((rate, all_good))
            first[name].append((rate, ttft_s))
    images = ROOT / "docs" / "images"
    drawn = {
        "overload-goodput.svg": by_rate("goodput", "Served within the goals", "requests/s", goodput),
        "overload-ttft.svg": by_rate("ttft", "First token of chat, p99", "seconds", first),
    }
    for file, svg in drawn.items():
        (images / file).write_text(svg)
        print(f"wrote docs/images/{file}")


if __name__ == "__main__":
    main()
