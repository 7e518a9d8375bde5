"""The published fleet: what a benchmark of eight replicas measured, and what the model says of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from maitred.config.load import load
from maitred.sim.simulate import simulate
from maitred.sim.summary import StageRow, ladder, summarize
from maitred.sim.workload import load_workload

EXAMPLE = Path(__file__).parents[2] / "examples" / "published-fleet"
SPEC = load_workload(EXAMPLE / "ladder.yaml")
PUBLISHED: list[dict[str, Any]] = yaml.safe_load((EXAMPLE / "published.yaml").read_text())["round-robin"]


@pytest.fixture(scope="module")
def stages() -> dict[float, StageRow]:
    """The ladder under one seed, by rate."""
    run = simulate("published", load(EXAMPLE / "fleet.yaml", {}), SPEC, seed=1)
    assert len(run.records) == 16_334  # without the 750 of the warm-up
    rows = ladder(summarize([run]), SPEC.rates())
    assert [row.rate for row in rows] == [row["rate"] for row in PUBLISHED]
    assert not any(row.refused or row.failed for row in rows)
    return {row.rate: row for row in rows}


def test_rates_are_as_published(stages: dict[float, StageRow]) -> None:
    errors = [
        abs(math.log(stages[row["rate"]].output_tokens_per_s / row["output_tokens_per_s"]))
        for row in PUBLISHED
    ]
    assert sum(errors) / len(errors) <= 0.08


def test_waits_under_load_are_as_published(stages: dict[float, StageRow]) -> None:
    under_load = [row for row in PUBLISHED if row["rate"] >= 49]
    assert len(under_load) == 5
    for row in under_load:
        assert stages[row["rate"]].ttft_p90_s == pytest.approx(row["ttft_p90_s"], rel=0.15)
