"""Traces rolled from a seed: many small overloads, with up to four things that go wrong or are changed."""

from __future__ import annotations

from random import Random

from msgspec import structs

from maitred.config.cache import Cache, Events
from maitred.config.simulate import Fault, Simulate
from maitred.config.tree import Config, Upstream
from maitred.net.sweep import PERIOD_S as SWEEP_S
from maitred.sim.arrival import Arrival
from tests.equivalence.trace import PROFILE, URLS, Act, Flaw, Trace, arrival, changed, config
from tests.equivalence.verbs import Verb

REQUESTS = 40
HEARD = ("slow", "status", "cap", "crash", "hang")
MISHAPS = (*HEARD, "break", "list", "hold")
"""Through the former an engine is listened to all the time, unless it is ejected for failures."""
LISTENED_S = 1.1
"""By then somebody listens to the engines that are there from the start."""
TIGHT = structs.replace(PROFILE, kv_blocks=60)
PATIENT = Upstream(first_byte_s=10.1, idle_s=60.0)
"""Few blocks: some requests are preempted, and then silent for longer than anybody has to expect."""


class Roll:
    """One trace in the making. `precise`: engines tell of their caches, and no failures put them out."""

    def __init__(self, seed: int | str, *, precise: bool = False) -> None:
        self._rng = Random(seed)
        self._precise = precise
        self._faults: list[Fault] = []
        self._flaws: list[Flaw] = []
        self._acts: list[Act] = []

    def trace(self) -> Trace:
        """The trace."""
        rng = self._rng
        arrivals = self._arrivals()
        profile, upstream = rng.choice([(PROFILE, config().upstream), (TIGHT, PATIENT)])
        routing = rng.choice(["least-requests", "round-robin", "default", "default"])
        begin = changed(config(cap=rng.choice([1, 2, 2, 5])), routing=routing)
        begin = structs.replace(begin, upstream=upstream)
        if self._precise:
            begin = changed(begin, routing="default", cache=Cache(events=Events()))
            begin = structs.replace(begin, health=structs.replace(begin.health, failures_max=REQUESTS))
        mishaps = HEARD if self._precise else MISHAPS
        for mishap in rng.sample(mishaps, rng.randint(1, min(4, len(mishaps)))):
            self._add(mishap, rng.uniform(0.5, arrivals[-1].at), begin)
        begin = structs.replace(begin, simulate=Simulate(faults=tuple(self._faults)))
        flaws, acts = tuple(self._flaws), tuple(self._acts)
        return Trace(begin, arrivals, flaws, acts, profile, rng.getrandbits(32))

    def _arrivals(self) -> tuple[Arrival, ...]:
        rng, at, arrivals = self._rng, LISTENED_S if self._precise else 0.0, list[Arrival]()
        rate = rng.uniform(2.0, 5.0)
        for number in range(REQUESTS):
            at += rng.expovariate(rate)
            patience_s = rng.choice([None, None, rng.uniform(0.02, 5.0)])
            tokens = rng.choice([1, 7, 17, 33, 48, 90])
            arrivals.append(
                arrival(number, at, tokens, rng.randint(90, 400), patience_s, stream=rng.random() < 0.7)
            )
        return tuple(arrivals)

    def _add(self, mishap: str, at: float, begin: Config) -> None:
        rng, url = self._rng, self._rng.choice(URLS[:2])
        until = at + rng.uniform(0.5, 5.0)
        match mishap:
            case "crash":
                self._faults.append(Fault(at, url, "crash"))
            case "hang":
                self._faults.append(Fault(_before_a_look(at), url, "hang", until - at))
            case "slow":
                self._faults.append(Fault(at, url, "slow", until - at))
            case "status":
                self._flaws.append(Flaw(at, until, URLS[0], status=503))
            case "break":
                self._flaws.append(Flaw(at, until, URLS[1], tokens=rng.choice([16, 32])))
            case "list":
                self._acts.append(Act(at, changed(begin, endpoints=URLS[rng.randint(0, 1) :])))
            case "hold":
                self._acts += [Act(at, url=url, held=True), Act(until, url=url)]
            case _:
                self._acts.append(Act(at, changed(begin, cap=rng.choice([1, 3, 5]))))


def _before_a_look(at: float) -> float:
    """Just before the gateway looks for late answers.

    It counts a stream's silence from the look before the last token, the simulator from the one before the
    hang. So there should be none between the two.
    """
    return at // SWEEP_S * SWEEP_S + 0.97 * SWEEP_S


def tied(verbs: list[Verb]) -> bool:
    """Whether something depends on which of two things that fall on one instant comes first.

    The gateway looks for late answers four times a second and for ill engines each second; where both do
    something at once, the order of its timers decides, and that is anybody's guess.
    """
    return any(
        verb.name == "fail" and "timeout" in verb.given[1]["kind"] and abs(verb.at - round(verb.at)) < 1e-6
        for verb in verbs
    )
