"""Runs made by hand, for tests of what is told of them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from maitred.bench.shot import Ending, Own, Run, Shot

TOKENS = 11


def answered(due_at: float = 0.0, ttft_s: float = 0.2, tpot_s: float = 0.02, **more: object) -> Shot:
    """One that was completed at an even pace, sent a millisecond late."""
    words: dict[str, object] = {
        "number": 1,
        "kind": "chat",
        "tenant": "support",
        "stage": 0,
        "tokens": TOKENS,
    }
    first_at = due_at + ttft_s
    words |= {
        "sent_at": due_at + 0.001,
        "first_at": first_at,
        "answer_at": first_at,
        "over_at": first_at + tpot_s * (TOKENS - 1),
        "ending": Ending.COMPLETED,
        "status": 200,
        "gap_max_s": 2 * tpot_s,
        "gaps": TOKENS - 1,
        "prompt_tokens": 1000,
    }
    return Shot(due_at=due_at, **words | more)  # type: ignore[arg-type]


def mixed(count: int) -> list[int]:
    """The numbers from 0 on, in an order without a trend: values that rise over a run hang together."""
    return Random(1).sample(range(count), count)


def lost(due_at: float = 0.0, ending: Ending = Ending.FAILED, why: str = "reset", **more: object) -> Shot:
    """One that was not served, and knew after 10 ms."""
    words: dict[str, object] = {"number": 1, "kind": "chat", "tenant": "support", "stage": 0}
    words |= {"sent_at": due_at, "over_at": due_at + 0.01}
    return Shot(due_at=due_at, ending=ending, why=why, **words | more)  # type: ignore[arg-type]


def run(shots: Sequence[Shot], **more: object) -> Run:
    """A run that ended with the last of them."""
    words: dict[str, object] = {
        "target": "http://127.0.0.1:8000",
        "workload": "chat",
        "seed": 1,
        "own": Own(),
    }
    words |= {"duration_s": max((shot.over_at for shot in shots), default=0.0)}
    return Run(shots=list(shots), **words | more)  # type: ignore[arg-type]


def busy_day(seed: int = 1, slow: float = 1.0) -> Run:
    """A run with everything in it: three stages, two classes and tenants, refusals, failures, reasoning."""
    rng, at, shots = Random(seed), 0.0, []
    for number in range(1, 601):
        at += rng.expovariate(10)
        kind, tenant = rng.choice((("chat", "support"), ("documents", "nightly")))
        of: dict[str, Any] = {"number": number, "kind": kind, "tenant": tenant, "stage": (number - 1) // 200}
        if kind == "documents" and rng.random() < 0.1:
            shots.append(lost(at, Ending.REFUSED, "queue_full", status=429, **of))
        elif rng.random() < 0.02:
            shots.append(lost(at, **of))
        else:
            ttft_s = slow * rng.uniform(0.1, 1)
            shot = answered(at, ttft_s, slow * rng.uniform(0.02, 0.04), **of)
            shot.cached_tokens, shot.queue_s = 400, ttft_s / 4
            shots.append(shot)
    shots.sort(key=lambda shot: shot.over_at)
    rates = {0: 5.0, 1: 10.0, 2: 15.0}
    return run(shots, slo_ttft_s=0.8, slo_tpot_s=0.035, rates=rates)
