"""More than a server can do: seen soon where it is so, and not where a queue only breathes."""

from __future__ import annotations

from collections import deque
from statistics import median

import pytest

from maitred.bench.load import Progress
from maitred.bench.saturation import PERIOD_S, Lookout, Saturation, saturated_at
from maitred.bench.shot import Run
from tests.bench.finished import answered, run
from tests.bench.queues import queued

PLACES = 32
SERVICE_S = 8.0
SPAN_S = 240


def seen(load: float, seeds: int) -> list[float]:
    """When it was seen, over so many runs."""
    requests = int(SPAN_S * load * PLACES / SERVICE_S)
    runs = (queued(seed, requests, load, PLACES, SERVICE_S) for seed in range(seeds))
    return [at for at in map(saturated_at, runs) if at is not None]


@pytest.mark.parametrize(("load", "mistaken"), [(0.7, 0), (0.9, 0), (0.95, 1)])
def test_a_queue_that_breathes_is_not_over_saturated(load: float, mistaken: int) -> None:
    assert len(seen(load, 30)) <= mistaken


def test_more_than_it_can_do_is_seen_within_minutes() -> None:
    third, double = seen(1.3, 20), seen(2.0, 20)
    assert len(third) == len(double) == 20
    assert median(third) < 60
    assert median(double) < 40


def grown(seconds: int, ttft_s: float, more_s: float, in_flight: int, more: int) -> Saturation:
    """A server with ten first tokens a second, and both growing each second."""
    state = Saturation()
    for second in range(seconds):
        state.beat(second, in_flight + more * second)
        for _ in range(10):
            state.first(second, ttft_s + more_s * second)
    return state


def test_both_must_rise() -> None:
    assert grown(90, 2.0, 0.1, 50, 3).saturated()
    assert not grown(90, 5.0, 0.0, 50, 3).saturated()  # every wait is as long as the first
    assert not grown(90, 2.0, 0.1, 50, 0).saturated()  # so many users, and no more
    assert not grown(90, 20.0, 0.05, 50, 3).saturated()  # by a fifth only


def test_nobody_waits_for_long_below_the_least_ttft() -> None:
    assert not grown(90, 0.1, 0.02, 50, 3).saturated()


def test_it_takes_half_a_minute() -> None:
    assert not grown(int(5 * PERIOD_S), 2.0, 0.1, 50, 10).saturated()
    assert grown(int(5 * PERIOD_S) + 1, 2.0, 0.1, 50, 10).saturated()


def test_what_was_long_ago_is_forgotten() -> None:
    state = grown(300, 2.0, 0.1, 50, 3)
    for second in range(300, 620):
        state.beat(second, 950)
        for _ in range(10):
            state.first(second, 32.0)
    assert not state.saturated()


def test_only_the_time_of_sending_counts() -> None:
    """Eight a second, of which one is answered: 25 s are too short to tell, and then they get fewer."""
    burst = [answered(number / 8, ttft_s=1 + number * 7 / 8) for number in range(200)]
    assert saturated_at(run(burst)) is None
    longer = [answered(number / 8, ttft_s=1 + number * 7 / 8) for number in range(400)]
    assert saturated_at(run(longer)) == pytest.approx(5 * PERIOD_S, abs=PERIOD_S)
    assert saturated_at(run([])) is None


def seen_live(of: Run, until_s: float) -> float | None:
    """When a lookout first sees it that is shown the run four times a second, as a load shows itself."""
    lookout, sent = Lookout(until_s), sorted(shot.sent_at for shot in of.shots)
    over: deque[tuple[float, float]] = deque(maxlen=4096)
    shots = iter(of.shots)
    shot = next(shots, None)
    for quarter in range(1, int(4 * of.duration_s) + 8):
        now = quarter / 4
        while shot is not None and shot.over_at <= now:
            over.append((shot.over_at, shot.ttft_s or 0.0))
            shot = next(shots, None)
        in_flight = sum(at <= now for at in sent) - sum(one.over_at <= now for one in of.shots)
        at = over[-1][0] if over else 0.0
        if lookout.look(Progress(at=at, in_flight=in_flight, recent=over)):
            for later in range(1, 60):  # nothing is sent any more, and all is answered
                over.append((at + later, 0.1))
                assert lookout.look(Progress(at=at + later, recent=over))
            return now
    return None


@pytest.mark.parametrize(("load", "sees"), [(0.7, False), (2.0, True)])
def test_a_load_is_watched_while_it_runs(load: float, sees: bool) -> None:
    requests = int(SPAN_S * load * PLACES / SERVICE_S)
    for seed in range(3):
        found = seen_live(queued(seed, requests, load, PLACES, SERVICE_S), SPAN_S)
        assert (found is not None) is sees
        assert found is None or found < 90


def test_what_rises_after_the_last_was_sent_is_not_cut_short() -> None:
    requests = int(SPAN_S * 2 * PLACES / SERVICE_S)
    assert seen_live(queued(1, requests, 2.0, PLACES, SERVICE_S), until_s=25.0) is None
