"""Runs against a server of known behaviour: requests queue for a few places, so they hang together."""

from __future__ import annotations

import heapq
from random import Random

from maitred.bench.shot import Run, Shot
from tests.bench.finished import TOKENS, answered, lost, run


def queued(
    seed: int,
    requests: int = 300,
    load: float = 0.6,
    places: int = 4,
    service_s: float = 1.0,
    fails: float = 0.0,
    slow: float = 1.0,
) -> Run:
    """Poisson arrivals at `load` of the server's capacity; answers take a lognormal time, `slow` times that.

    The first token comes after a tenth of it. A share `fails` gets no answer, and knows at once.
    """
    rng, at = Random(seed), 0.0
    free_at = [0.0] * places
    shots: list[Shot] = []
    for number in range(requests):
        at += rng.expovariate(load * places / service_s)
        served_s = slow * service_s * rng.lognormvariate(-0.125, 0.5)
        if rng.random() < fails:
            shots.append(lost(at))
            continue
        begins_at = max(at, heapq.heappop(free_at))
        heapq.heappush(free_at, begins_at + served_s)
        ttft_s = begins_at - at + served_s / 10
        tpot_s = 0.9 * served_s / (TOKENS - 1)
        shots.append(answered(at, ttft_s, tpot_s, number=number, sent_at=at))
    shots.sort(key=lambda shot: shot.over_at)
    return run(shots, slo_ttft_s=1.0)
