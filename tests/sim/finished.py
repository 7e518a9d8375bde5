"""Finished runs made by hand, for tests of what is told of them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from maitred.config.tree import Slo
from maitred.core.outcome import Outcome
from maitred.sim.arrival import Arrival, Record
from maitred.sim.run import EndpointUse, Run, Sample

MODEL = "qwen3-32b"


def arrival(
    at: float = 0.0, tenant: str = "anonymous", band: str = "", stage: int = 0, **more: object
) -> Arrival:
    """One request of 1,000 prompt tokens."""
    words: dict[str, object] = {"number": 0, "model": MODEL, "prompt": ((1, 1000),), "prompt_tokens": 1000}
    words |= {"output_tokens": 11, "answer": 2, **more}
    return Arrival(at=at, tenant=tenant, band=band, stage=stage, **words)  # type: ignore[arg-type]


def answered(
    of: Arrival, ttft_s: float = 1.0, tpot_s: float = 0.1, tokens: int = 11, cached: int = 0
) -> Record:
    """It was completed, at an even pace."""
    over_at = of.at + ttft_s + tpot_s * (tokens - 1)
    return Record(
        of, Outcome.COMPLETED, over_at, ttft_s / 2, ttft_s, tokens, cached, attempts=1, endpoint="a"
    )


def run(records: Sequence[Record], name: str = "config", seed: int = 1, **more: object) -> Run:
    """A run that ended with its last record."""
    words: dict[str, object] = {"endpoints": (), "samples": (), "began_at": 0.0}
    words |= {"ended_at": max((record.over_at for record in records), default=0.0), **more}
    return Run(name=name, seed=seed, records=records, **words)  # type: ignore[arg-type]


def busy_day(name: str, seed: int, slow: float = 1.0) -> Run:
    """A run with everything in it: three stages, two tenants, refusals, failures, endpoints and samples."""
    rng, at = Random(seed), 0.0
    records = []
    for number in range(300):
        at += rng.expovariate(10)
        tenant = rng.choice(("chat", "nightly"))
        request = arrival(at, tenant, band=f"{tenant}-band", stage=number // 100)
        if tenant == "nightly" and rng.random() < 0.3:
            records.append(Record(request, Outcome.QUEUE_FULL, at))
        elif rng.random() < 0.02:
            records.append(Record(request, Outcome.FAILED_UPSTREAM, at + 1, attempts=2))
        else:
            records.append(
                answered(request, slow * rng.uniform(0.1, 1), slow * rng.uniform(0.02, 0.04), 100, 400)
            )
    endpoints = [
        EndpointUse(f"pool/{host}:8000", "h100", 0.5 * at, 100, 9000, 90_000, 40_000, 3) for host in "ab"
    ]
    samples = [Sample(second, second % 7, second, second / 100) for second in range(30)]
    slos = {MODEL: Slo(0.5, 0.03)}
    return run(records, name, seed, endpoints=endpoints, samples=samples, ended_at=at, slos=slos)
