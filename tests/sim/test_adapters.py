"""LoRA adapters: loading takes a while, and the longest unused makes room."""

from __future__ import annotations

from maitred.sim.adapters import Adapters


def test_one_is_ready_when_it_is_loaded() -> None:
    adapters = Adapters(2, 3.0)
    assert not adapters.ready("a", 10.0)
    assert (adapters.next_at(10.0), adapters.loaded(10.0)) == (13.0, [])
    assert not adapters.ready("a", 12.9)
    assert adapters.ready("a", 13.0)
    assert (adapters.next_at(13.0), adapters.loaded(13.0)) == (None, ["a"])


def test_the_longest_unused_makes_room() -> None:
    adapters = Adapters(2, 0.0)
    for name in ("a", "b", "a"):
        assert adapters.ready(name, 0.0)
        adapters.begin(name)
        adapters.end(name)
    assert adapters.ready("c", 1.0)
    assert adapters.loaded(1.0) == ["a", "c"]


def test_one_in_use_or_on_its_way_stays() -> None:
    adapters = Adapters(2, 5.0)
    adapters.ready("a", 0.0)
    adapters.ready("b", 1.0)
    assert not adapters.ready("c", 2.0)
    assert adapters.next_at(2.0) == 5.0
    adapters.begin("a")
    adapters.begin("a")
    adapters.end("a")
    assert not adapters.ready("c", 5.5)
    assert adapters.next_at(5.5) == 6.0
    adapters.end("a")
    assert not adapters.ready("c", 5.9)
    assert adapters.loaded(20.0) == ["b", "c"]
