"""The watch: what a minute says, that a moment says nothing, and that no finding flaps."""

from __future__ import annotations

from random import Random

import pytest

from maitred.control.watch import ANSWERS_MIN, KINDS, LAG_S, LOOKS, PERIOD_S, STALE_S, Watch
from maitred.core import kept
from maitred.core.events import Answered
from maitred.core.gateway import Gateway
from maitred.core.words import (
    Abilities,
    Api,
    Endpoint,
    Endpoints,
    Identity,
    Leg,
    Load,
    Observed,
    PoolSettings,
    Probed,
    Request,
    Settings,
    Ticket,
    Usage,
)
from maitred.observe.findings import KINDS as ALL_KINDS
from maitred.observe.findings import Findings

CAP = 4
GOAL_S = 2.0


class Scene:
    """A gateway of one pool with two ready engines, and a watch that looks when it is told to."""

    def __init__(self, cap: int = CAP) -> None:
        self.now = 0.0
        self.gateway = Gateway(Settings(default=PoolSettings(cap=cap)), Abilities(), Random(1))
        self.gateway.update(Endpoints({"q": ("http://a:1", "http://b:1")}), 0.0)
        for endpoint in self.endpoints:
            self.gateway.update(Probed(endpoint.name, ok=True), 0.0)
        self.watch = Watch(self.gateway, Findings(), lambda: self.now)
        self.count = 0

    @property
    def endpoints(self) -> list[Endpoint]:
        return self.gateway.table.by_pool["q"]

    def ask(self, count: int) -> None:
        """So many requests come, and are seated or wait."""
        for _ in range(count):
            self.count += 1
            request = Request(f"r{self.count}", Api.CHAT, "q", "q")
            self.gateway.accept(request, Identity(), self.now)
            self.gateway.release(self.now)

    def observe(self, load: Load) -> None:
        for endpoint in self.endpoints:
            self.gateway.update(Observed(endpoint.name, load), self.now)

    def answer(self, count: int, ttft_s: float, queue_s: float = 0.0, goal_s: float = GOAL_S) -> None:
        """So many streams begin."""
        for _ in range(count):
            ticket = Ticket(Request("r", Api.CHAT, "q", "q", True), Identity(), self.now, self.now + 30)
            ticket.ttft_s = goal_s
            leg = Leg(1, ticket, self.endpoints[0], 0, 1, self.now + queue_s)
            self.watch.hears[Answered](Answered(self.now + ttft_s, leg))

    def found(self, count: int, thought: int, reported: int, *, exact: bool = False) -> None:
        """So many answers end, of whose prompts so much was thought cached, and so much reported."""
        for _ in range(count):
            ticket = Ticket(Request("r", Api.CHAT, "q", "q", True), Identity(), self.now, self.now + 30)
            leg = Leg(1, ticket, self.endpoints[0], 0, 1, self.now, thought=thought, exact=exact)
            kept.learn(leg, Usage(1000, reported, 1))

    def look(self, load: Load | None = None) -> dict[str, tuple[str, str]]:
        """What is found now, by place and kind, after another period in which engines said this."""
        self.now += PERIOD_S
        if load is not None:
            self.observe(load)
        return {f"{kind} {where}": (what, do) for kind, where, what, do in self.watch.look()}

    def minute(self, load: Load | None = None) -> dict[str, tuple[str, str]]:
        for _ in range(LOOKS):
            found = self.look(load)
        return found


def test_the_kinds_are_declared() -> None:
    assert ALL_KINDS.keys() >= set(KINDS)


# -- late although answered ---------------------------------------------------------------------------


@pytest.mark.parametrize(("queue_s", "advice"), [(1.5, "queue.wait"), (0.1, "lower cap")])
def test_streams_that_are_answered_but_late_are_found(queue_s: float, advice: str) -> None:
    scene = Scene()
    scene.answer(ANSWERS_MIN, GOAL_S + 1, queue_s)
    what, do = scene.look()["ttft_missed q"]
    assert "200" in what
    assert advice in do


@pytest.mark.parametrize(
    ("late", "in_time", "goal_s"), [(9, 0, GOAL_S), (10, 10, GOAL_S), (0, 20, GOAL_S), (20, 0, 0.0)]
)
def test_a_few_or_the_lesser_part_or_those_without_a_goal_are_no_finding(
    late: int, in_time: int, goal_s: float
) -> None:
    scene = Scene()
    scene.answer(late, GOAL_S + 1, goal_s=goal_s)
    scene.answer(in_time, GOAL_S - 1, goal_s=goal_s)
    assert scene.look() == {}


def test_it_stays_while_many_are_late_and_goes_when_few_are() -> None:
    scene = Scene()
    scene.answer(20, GOAL_S + 1, 1.5)
    first = scene.look()
    scene.answer(80, GOAL_S - 1)
    scene.answer(40, GOAL_S + 1, 0.1)  # other causes, but the same finding: it reads as before
    assert scene.look() == first != {}
    scene.answer(160, GOAL_S - 1)
    assert scene.look() == {}


def test_what_was_a_minute_ago_is_forgotten() -> None:
    scene = Scene()
    scene.answer(20, GOAL_S + 1)
    assert "ttft_missed q" in scene.look()
    assert scene.minute() == {}


# -- the cap ------------------------------------------------------------------------------------------


IDLE, BUSY = Load(CAP, 0, 0.3), Load(CAP, 0, 0.7)


def test_a_queue_before_idle_engines_at_their_cap_is_found_after_a_minute() -> None:
    scene = Scene()
    scene.ask(2 * CAP + 1)
    for _ in range(LOOKS - 1):
        assert scene.look(IDLE) == {}
    what, do = scene.look(IDLE)["cap_too_low q"]
    assert f"cap of {CAP}" in what
    assert do == "raise cap; more servers will not help"


@pytest.mark.parametrize("load", [BUSY, Load(CAP, 0, None), None])
def test_engines_that_are_full_or_say_nothing_are_no_reason_to_raise_it(load: Load | None) -> None:
    scene = Scene()
    scene.ask(2 * CAP + 1)
    assert scene.minute(load) == {}


@pytest.mark.parametrize("count", [2 * CAP, 1])
def test_without_a_queue_there_is_none_either(count: int) -> None:
    scene = Scene()
    scene.ask(count)
    assert scene.minute(IDLE) == {}


def test_a_cap_that_moves_by_itself_is_not_complained_of() -> None:
    scene = Scene(cap=0)
    scene.ask(1000)
    assert scene.gateway.waiting
    assert scene.minute(IDLE) == {}


def test_what_engines_said_long_ago_is_no_reason_to_raise_it() -> None:
    scene = Scene()
    scene.ask(2 * CAP + 1)
    assert scene.look(IDLE) == {}
    assert scene.minute() == {}


def test_a_moment_of_use_does_not_settle_it_and_half_a_minute_does() -> None:
    scene = Scene()
    scene.ask(2 * CAP + 1)
    assert scene.minute(IDLE)
    for _ in range(LOOKS // 2):
        assert "cap_too_low q" in scene.look(BUSY)
    assert scene.look(BUSY) == {}


# -- queues in engines --------------------------------------------------------------------------------


def test_a_queue_inside_the_engines_is_found_after_a_minute() -> None:
    scene = Scene()
    for _ in range(LOOKS - 1):
        assert scene.look(Load(CAP, 2)) == {}
    found = scene.look(Load(CAP, 2))
    assert found.keys() == {"engine_queues q/a:1", "engine_queues q/b:1"}
    assert "lower cap of q" in found["engine_queues q/a:1"][1]


def test_one_that_waits_now_and_then_is_none() -> None:
    scene = Scene()
    for waiting in (12, *[0] * (LOOKS - 1)):
        found = scene.look(Load(CAP, waiting))
    assert found == {}


def test_it_stays_until_the_mean_is_half() -> None:
    scene = Scene()
    assert scene.minute(Load(CAP, 2))
    for _ in range(8):
        assert scene.look(Load(CAP, 0))
    assert scene.look(Load(CAP, 0)) == {}


def test_what_an_engine_said_long_ago_is_no_finding() -> None:
    scene = Scene()
    assert scene.minute(Load(CAP, 5))
    for _ in range(int(STALE_S / PERIOD_S)):
        assert scene.look()
    assert scene.look() == {}


def test_an_engine_that_left_is_forgotten() -> None:
    scene = Scene()
    assert scene.minute(Load(CAP, 5))
    scene.gateway.update(Endpoints({"q": ("http://a:1",)}), scene.now)
    assert scene.look().keys() == {"engine_queues q/a:1"}


# -- the gateway itself -------------------------------------------------------------------------------


def late(scene: Scene, *late_s: float, looks: int = 1) -> set[str]:
    """What is found once every beat between looks was so late."""
    for _ in range(looks):
        for each_s in late_s:
            scene.watch.late(each_s)
        found = scene.look()
    return set(found)


def test_a_loop_that_is_late_throughout_a_minute_is_found_with_what_to_do() -> None:
    scene = Scene()
    assert late(scene, 0.0, 2.5 * LAG_S, looks=LOOKS - 1) == set()
    scene.watch.late(2.0 * LAG_S)
    what, do = scene.look()["loop_lag gateway"]
    assert "bottleneck" in what
    assert "run another" in do


def test_a_loop_that_was_held_once_or_is_never_very_late_is_no_bottleneck() -> None:
    scene = Scene()
    for lates in ((60.0,), *[(LAG_S, 0.5 * LAG_S)] * (LOOKS - 1)):
        assert late(scene, *lates) == set()
    assert late(scene, looks=LOOKS) == set()  # a loop that tells no beat at all tells nothing


def test_it_is_settled_once_the_loop_was_in_time_for_more_than_half_of_a_minute() -> None:
    scene = Scene()
    assert late(scene, 0.5, looks=LOOKS) == {"loop_lag gateway"}
    assert late(scene, 0.0, looks=LOOKS // 2) == {"loop_lag gateway"}
    assert late(scene, 0.0) == set()


# -- caches --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reported", "exact", "advice"),
    [(0, False, "--enable-prompt-tokens-details"), (70, False, "cache.events"), (350, True, "token ids")],
)
def test_a_cache_that_has_far_less_than_was_thought_is_found(reported: int, exact: bool, advice: str) -> None:
    scene = Scene()
    scene.found(ANSWERS_MIN, 800, reported, exact=exact)
    what, do = scene.look()["cache_absent q/a:1"]
    assert f"8000 tokens thought cached in a minute it reports {reported * ANSWERS_MIN}" in what
    assert advice in do
    scene.found(2 * ANSWERS_MIN, 800, 800, exact=exact)
    assert scene.look() == {}


@pytest.mark.parametrize(
    ("count", "thought", "reported", "exact"),
    [(9, 800, 0, False), (20, 0, 0, False), (20, 800, 80, False), (20, 800, 400, True), (20, 800, 900, True)],
)
def test_a_few_answers_or_enough_of_it_are_no_finding(
    count: int, thought: int, reported: int, exact: bool
) -> None:
    scene = Scene()
    scene.found(count, thought, reported, exact=exact)
    assert scene.look() == {}


def test_a_cache_has_to_have_half_as_much_again_to_be_well() -> None:
    scene = Scene()
    scene.found(10, 800, 60)
    assert scene.look()
    scene.found(10, 800, 170)
    assert "cache_absent q/a:1" in scene.look()
    scene.found(10, 800, 200)
    assert scene.look() == {}
