#!/usr/bin/env python3
"""What it costs to choose an endpoint: microseconds of CPU of the default policy, keys given.

    .venv/bin/python benchmarks/decision_cost.py

One decision is looking a prompt up in the index, choosing, and writing down where it went and, of one before
it, that it is over. Half the prompts go on with what an endpoint has, half are new; the index is as full as
it gets, and streams run everywhere.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections import deque
from random import Random

from maitred.core.homes import homes
from maitred.core.pool import Pool
from maitred.core.prefix import BYTE_ENDS
from maitred.core.words import (
    Api,
    Endpoint,
    EndpointState,
    Facts,
    Identity,
    Leg,
    PoolSettings,
    Request,
    Settings,
)

WHO = Identity("t")
KV_TOKENS = 300_000
BYTES_PER_TOKEN = 4
FLEETS = (16, 256)
BODIES = {"2 KB": 2_000, "64 KB": 64_000}
CALLS = 4_000
RUNNING = 4
"""Legs of one endpoint, of which the index is told; more would hold all there is of it."""
GOALS_US = {("2 KB", 16): 15.0, ("64 KB", 16): 60.0}


class House:
    """A pool of so many endpoints, and the prompts that come to it."""

    def __init__(self, endpoints: int, body_bytes: int) -> None:
        self.limits = PoolSettings(routing="default", cap=1_000_000)
        self.pool = Pool("p", self.limits, Settings().bands)
        self.terms = self.pool.learn_terms(Settings(), "", WHO)
        self.random, self.fresh = Random(1), itertools.count(1)
        self.keys = sum(end <= body_bytes for end in BYTE_ENDS)
        self.body_bytes = body_bytes
        self.known: list[tuple[int, ...]] = []
        self.running: deque[Leg] = deque()
        self.endpoints = [self.endpoint(number) for number in range(endpoints)]

    def endpoint(self, number: int) -> Endpoint:
        """One of them."""
        name, facts = f"p/{number}:1", Facts(kv_tokens=KV_TOKENS)
        return Endpoint(name, "p", "", EndpointState.READY, facts=facts, running=self.random.randrange(64))

    def request(self) -> Request:
        """The next one: another turn of what was said before, or a new one."""
        begin: tuple[int, ...] = ()
        if self.known and self.random.random() < 0.5:
            begin = self.random.choice(self.known)[: self.keys * 3 // 4]
        keys = begin + tuple(next(self.fresh) for _ in range(self.keys - len(begin)))
        self.known.append(keys)
        del self.known[:-1000]
        tokens = self.body_bytes // BYTES_PER_TOKEN
        return Request("r", Api.CHAT, "m", "p", True, self.body_bytes, prompt_tokens=tokens, prefix=keys)

    def decide_us(self, turn: int) -> float:
        """One decision, and what it took."""
        pool, prefixes = self.pool, self.pool.prefixes
        assert prefixes is not None
        ticket = pool.ticket(self.request(), WHO, self.terms, 0.0)
        since = time.thread_time_ns()
        pool.look_up(ticket, 0.0)
        pool.send_home(ticket)
        endpoint = homes(self.endpoints, ticket, self.limits, 0.0)
        assert endpoint is not None
        prefixes.sent(ticket.request, endpoint, begins=not ticket.home)
        if len(self.running) >= RUNNING * len(self.endpoints):
            over = self.running.popleft()
            prefixes.left(over.ticket.request, over.endpoint, over.incarnation)
        took_us = (time.thread_time_ns() - since) / 1000
        self.running.append(Leg(turn, ticket, endpoint, endpoint.incarnation, 1, 0.0))
        endpoint.turn, endpoint.running = turn, self.random.randrange(64)
        return took_us


def main() -> None:
    """Fill the index, then measure."""
    print(f"{'us a decision':14} {'endpoints':>9} {'keys':>5} {'median':>8} {'p99':>8} {'goal':>6}")
    for (name, body_bytes), count in itertools.product(BODIES.items(), FLEETS):
        house = House(count, body_bytes)
        fill = min(100_000, 5 * count * KV_TOKENS * BYTES_PER_TOKEN // body_bytes)
        for turn in range(fill):
            house.decide_us(turn)
        took = sorted(house.decide_us(fill + turn) for turn in range(CALLS))
        goal = GOALS_US.get((name, count))
        median, p99 = statistics.median(took), took[len(took) * 99 // 100]
        print(f"{name:14} {count:9} {house.keys:5} {median:8.1f} {p99:8.1f} {goal or '':>6}")


if __name__ == "__main__":
    main()
