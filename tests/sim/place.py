"""Small fleets for tests: two engines that are easy to reckon with, and arrivals one by one."""

from __future__ import annotations

from collections.abc import Iterable

from maitred.config.simulate import Fault
from maitred.core.words import PoolSettings, Settings
from maitred.sim.arrival import Arrival, Record
from maitred.sim.fleet import Fleet, Waits
from maitred.sim.node import Node
from maitred.sim.profile import Profile, StepTime
from maitred.sim.world import World

ONE, TWO = "http://127.0.0.1:8101", "http://127.0.0.1:8102"
PROFILE = Profile(
    "test",
    "m",
    "none",
    StepTime(0.01, 0.0, 0.0, 10_000.0),
    kv_blocks=400,
    context_tokens_max=4096,
    start=(("load", 20.0),),
)
"""A step of 10 ms and 10 more for each 100 tokens of prompt; 6,400 tokens of cache; 20 s to start."""


class Script:
    """Arrivals as listed; `after` follow the end of the one with their number."""

    def __init__(self, first: Iterable[Arrival], after: dict[int, list[Arrival]] | None = None) -> None:
        self._first = list(first)
        self._after = after or {}

    def begin(self, at: float) -> Iterable[Arrival]:
        return self._first

    def over(self, arrival: Arrival, at: float) -> Iterable[Arrival]:
        for follower in self._after.get(arrival.number, ()):
            follower.at += at
            yield follower


def arrival(
    number: int,
    at: float = 0.0,
    prompt: int = 100,
    output: int = 10,
    patience_s: float | None = None,
    *,
    stream: bool = True,
) -> Arrival:
    segments = ((1000 + number, prompt),)
    return Arrival(
        number, at, "m", segments, prompt, output, 5000 + number, patience_s=patience_s, stream=stream
    )


def fleet(
    workload: Script,
    pool: PoolSettings = PoolSettings(),  # noqa: B008 - a value
    faults: tuple[Fault, ...] = (),
    urls: tuple[str, ...] = (ONE, TWO),
    seed: int = 1,
    waits: Waits = Waits(),  # noqa: B008 - a value
) -> Fleet:
    nodes = [Node("m", url, PROFILE) for url in urls]
    house = Fleet(Settings(pools={"m": pool}), nodes, workload, seed, waits)
    World(house, 5.0, faults).begin()
    house.begin()
    return house


def run(house: Fleet) -> dict[int, Record]:
    """To the end; the records by number of arrival."""
    while house.expected and house.step():
        pass
    assert house.watch.live == 0
    records = {record.arrival.number: record for record in house.records}
    assert len(records) == len(house.records)
    return records
