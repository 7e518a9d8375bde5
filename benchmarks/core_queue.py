"""What a request costs the core while very many wait: 100,000 of 10,000 tenants in 10 pools, 9 of them full.

    .venv/bin/python benchmarks/core_queue.py

The tenth pool has room: what is let in there is seated by the next `release`. The others are backlogged: one
ends, and `release` seats the next in its place. Prints a table of microseconds of CPU a call, the pauses
of the garbage collector, set as `serve` sets it, and memory.
"""

from __future__ import annotations

import gc
import resource
import sys
import time
from collections.abc import Callable
from random import Random

from maitred.app.run import GC_THRESHOLDS
from maitred.core.gateway import Gateway
from maitred.core.outcome import Outcome
from maitred.core.words import (
    Abilities,
    Api,
    Endpoints,
    Go,
    Identity,
    Leg,
    PoolSettings,
    Probed,
    Request,
    Settings,
    Usage,
)

WAITING, TENANTS, POOLS, ENDPOINTS, CAP = 100_000, 10_000, 10, 8, 64
CALLS = 20_000
ROOMY = "p0"
PAUSE_S = 0.010


class Pauses:
    """How long the garbage collector held everything up."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._since = 0.0
        gc.callbacks.append(self._hears)

    def _hears(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._since = time.thread_time()
        else:
            self.seconds.append(time.thread_time() - self._since)


class House:
    """A gateway, the requests given to it, and what each call took."""

    def __init__(self) -> None:
        limits = PoolSettings(cap=CAP, queue_requests_max=WAITING, queue_wait_s=3600.0)
        self.core = Gateway(Settings(default=limits), Abilities(), Random(1))
        self.random, self.now, self.count = Random(2), 1000.0, 0
        self.took: dict[str, list[int]] = {}
        self.seated: dict[str, list[Leg]] = {f"p{number}": [] for number in range(POOLS)}
        self.tenants = [Identity(f"t{number}") for number in range(TENANTS)]
        hosts = {pool: tuple(f"http://{pool}-{n}:1" for n in range(ENDPOINTS)) for pool in self.seated}
        self.core.update(Endpoints(hosts), self.now)
        for name in list(self.core.table.by_name):
            self.core.update(Probed(name, ok=True), self.now)

    def timed(self, row: str, call: Callable[[], object]) -> None:
        """Make the call and write down what it took."""
        since = time.thread_time_ns()
        call()
        self.took.setdefault(row, []).append(time.thread_time_ns() - since)

    def accept(self, pool: str, row: str) -> None:
        """Somebody comes."""
        self.now += 0.0001
        self.count += 1
        prompt_tokens = self.random.randrange(50, 4000)
        request = Request(
            f"r{self.count}", Api.CHAT, "m", pool, True, 4 * prompt_tokens, prompt_tokens=prompt_tokens
        )
        identity = self.tenants[self.random.randrange(TENANTS)]
        self.timed(row, lambda: self.core.accept(request, identity, self.now))

    def release(self, row: str) -> None:
        """What to do now: note who was seated."""
        effects: list[object] = []
        self.timed(row, lambda: effects.extend(self.core.release(self.now)))
        for effect in effects:
            if isinstance(effect, Go):
                self.seated[effect.ticket.request.pool].extend(effect.legs)

    def end(self, pool: str, row: str) -> None:
        """One of those seated there is done."""
        legs = self.seated[pool]
        place = self.random.randrange(len(legs))
        legs[place], legs[-1] = legs[-1], legs[place]
        ticket = legs.pop().ticket
        usage = Usage(ticket.prompt_tokens, 0, self.random.randrange(20, 800))
        self.timed(row, lambda: self.core.finish(ticket, Outcome.COMPLETED, usage, self.now))


def rss_mib() -> float:
    """The most memory this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Fill the queues, then let some come and go."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    house, pauses, before = House(), Pauses(), rss_mib()
    full = [pool for pool in house.seated if pool != ROOMY]
    while house.core.waiting < WAITING:
        house.accept(full[house.count % len(full)], "accept, to wait")
        if house.core.waiting % 100 == 0:
            house.release("release, nobody is seated")
    filled = rss_mib()
    for number in range(CALLS):
        house.accept(ROOMY, "accept, where there is room")
        house.release("release, seats it")
        house.end(ROOMY, "finish, nobody waited")
        pool = full[number % len(full)]
        house.end(pool, "finish, others wait")
        house.release("release, seats who is next")
        house.accept(pool, "accept, in its place")
        house.release("release, nobody is seated")
    sys.stdout.write(f"{'us a call':30} {'calls':>8} {'median':>8} {'p99':>8} {'max':>8}\n")
    for row, took in house.took.items():
        took.sort()
        median, p99 = took[len(took) // 2] / 1000, took[len(took) * 99 // 100] / 1000
        sys.stdout.write(f"{row:30} {len(took):8,} {median:8.1f} {p99:8.1f} {took[-1] / 1000:8.0f}\n")
    long = [pause for pause in pauses.seconds if pause > PAUSE_S]
    longest_ms = max(pauses.seconds, default=0.0) * 1000
    sys.stdout.write(
        f"gc: {len(pauses.seconds)} pauses, {len(long)} over {PAUSE_S * 1000:.0f} ms,"
        f" longest {longest_ms:.1f} ms\n"
        f"memory: {before:.0f} MiB, {filled:.0f} with {WAITING:,} waiting, {rss_mib():.0f} at the end\n"
    )


if __name__ == "__main__":
    main()
