"""What the core hears of simulated caches: what is in them, whatever happens to their engines."""

from __future__ import annotations

from random import Random

import pytest
from msgspec import structs

from maitred.config.cache import Cache, Events
from maitred.config.simulate import Fault
from maitred.config.simulate import Simulate as Simulated
from maitred.config.tree import Config, Model
from maitred.core.journal import Mismatch, replay
from maitred.core.words import KvEvents, PoolSettings, Settings
from maitred.sim.arrival import Arrival
from maitred.sim.fleet import Fleet, Waits
from maitred.sim.heard import Heard
from maitred.sim.node import Node
from maitred.sim.simulate import nodes_of
from maitred.sim.world import World
from tests.sim.kitchen import job
from tests.sim.place import ONE, PROFILE, TWO, Script


def test_what_has_changed_is_told_once() -> None:
    heard = Heard()
    heard.stored([1, 2, 3], None, job())
    heard.stored([2, 3], 1, job())  # in another rank
    assert heard.take("p/a") == KvEvents("p/a", (1, 2, 3))
    assert not heard.news
    heard.removed([3, 2])
    assert heard.take("p/a") == KvEvents("p/a")  # one still has them
    heard.removed([3])
    heard.removed([2])
    heard.stored([4, 2], 1, job())
    heard.stored([5], 4, job())
    heard.removed([5])
    assert heard.take("p/a") == KvEvents("p/a", (4,), (3,))
    heard.tell_all()
    assert heard.take("p/a") == KvEvents("p/a", (1, 4, 2), cleared=True)
    heard.cleared()
    heard.stored([7], None, job())
    assert heard.take("p/a") == KvEvents("p/a", (7,), cleared=True)
    heard.restarted()
    heard.stored([8], None, job())
    assert heard.take("p/a") == KvEvents("p/a", (8,), cleared=True)


def conversations(rng: Random, count: int) -> list[Arrival]:
    """Prompts that begin alike, many more than fit into the caches."""
    roots = [(number, rng.randrange(200, 900)) for number in range(12)]
    arrivals = []
    for number in range(count):
        root, own = rng.choice(roots), rng.randrange(50, 300)
        prompt = (root, (1000 + number, own))
        arrivals.append(Arrival(number, number / 20, "m", prompt, root[1] + own, 20, 5000 + number))
    return arrivals


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(
    "fault",
    [
        None,
        Fault(at_s=3.0, endpoint=ONE, fault="crash"),
        Fault(at_s=3.0, endpoint=ONE, fault="cut", for_s=4.0),
        Fault(at_s=3.0, endpoint=ONE, fault="hang", for_s=4.0),
        Fault(at_s=3.0, endpoint=ONE, fault="remove", for_s=4.0),
    ],
)
def test_in_the_end_the_core_knows_what_is_there(fault: Fault | None, ranks: int) -> None:
    profile = structs.replace(PROFILE, ranks=ranks, kv_blocks=PROFILE.kv_blocks // ranks)
    nodes = [Node("m", url, profile, Heard()) for url in (ONE, TWO)]
    arrivals = conversations(Random(5), 900)
    settings = Settings(pools={"m": PoolSettings(routing="default")})
    house = Fleet(settings, nodes, Script(arrivals), 1, Waits())
    World(house, 5.0, (fault,) if fault else ()).begin()
    house.begin()
    while house.step():
        pass
    assert len(house.records) == len(arrivals)
    told = house.gateway._pools["m"].blocks.told
    for node in nodes:
        there = {key for rank in node.engine._ranks for key in rank.pool._users}
        assert told[node.name].blocks == there != set()


def test_a_run_by_what_engines_tell_replays_and_not_without_that() -> None:
    nodes = [Node("m", url, PROFILE, Heard()) for url in (ONE, TWO)]
    settings, lines = Settings(pools={"m": PoolSettings(routing="default")}), list[bytes]()
    house = Fleet(settings, nodes, Script(conversations(Random(5), 300)), 1, Waits(), lines.append)
    World(house, 5.0, (Fault(at_s=3.0, endpoint=ONE, fault="crash"),)).begin()
    house.begin()
    while house.step():
        pass
    assert replay(lines) == len(lines) - 1
    deaf = [line for line in lines if b"KvEvents" not in line]
    assert len(deaf) < len(lines) - 300
    with pytest.raises(Mismatch, match="release"):
        replay(deaf)


def test_an_engine_is_heard_once_it_has_something_and_not_while_it_is_cut_off() -> None:
    node = Node("m", ONE, PROFILE, Heard())
    assert node.heard is not None
    settings = Settings(pools={"m": PoolSettings(routing="default")})
    house = Fleet(settings, [node], Script([]), 1, Waits())
    World(house, 5.0).begin()
    while house.step():
        pass
    known = house.gateway._pools["m"].blocks.told
    node.heard.stored([1], None, job())
    node.cut = True
    house.listen(node)
    assert not known
    node.cut = False
    house.listen(node)
    assert known[node.name].blocks == {1}


def test_engines_tell_where_the_gateway_would_listen_and_has_tokens() -> None:
    for cache, tokens, tells in (
        (Cache(events=Events()), "engine", True),
        (Cache(events=Events()), None, False),
        (Cache(), "engine", False),
    ):
        model = Model("m", (ONE,), cache=cache, tokens=tokens)
        (node,) = nodes_of(Config(models=(model,), simulate=Simulated(profile="h100-qwen3-32b")))
        assert (node.heard is not None) is tells
