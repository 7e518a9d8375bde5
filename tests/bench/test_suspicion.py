"""What a run says against itself."""

from __future__ import annotations

import pytest

from maitred.bench.shot import UNFINISHED, Ending, Own, Run, Shot
from maitred.bench.suspicion import BUFFERED_BYTES_MAX, doubts, verdict
from tests.bench.finished import answered, lost, run


def enough(count: int = 368, **more: object) -> list[Shot]:
    """Requests of which every percentile has an upper bound."""
    return [answered(float(number), **more) for number in range(count)]  # type: ignore[arg-type]


def texts(of: Run) -> list[str]:
    return [doubt.text for doubt in doubts(of)]


def test_a_run_in_order_is_not_doubted() -> None:
    assert doubts(run(enough())) == []
    assert verdict([]) == ""


@pytest.mark.parametrize(
    ("own", "words"),
    [
        (Own(cpu_share_max=0.95), "95 % of its core"),
        (Own(stall_s=0.3), "stood still for 300 ms"),
        (Own(buffered_bytes=2 * BUFFERED_BYTES_MAX), "2.1 MB"),
    ],
)
def test_what_the_client_suffered_is_told_first(own: Own, words: str) -> None:
    found = doubts(run(enough(10), own=own))
    assert words in found[0].text
    assert [doubt.own for doubt in found] == [True, False]
    assert "client was a bottleneck" in verdict(found)


@pytest.mark.parametrize(
    "own", [Own(cpu_share=0.8, cpu_share_max=0.85), Own(stall_s=0.05), Own(connects=100, buffered_bytes=9999)]
)
def test_what_is_usual_is_not_told(own: Own) -> None:
    assert doubts(run(enough(), own=own)) == []


@pytest.mark.parametrize(
    ("lag_s", "ttft_s", "late"),
    [(0.02, 0.2, True), (0.02, 2.0, False), (0.004, 0.02, False), (0.2, 2.0, True)],
)
def test_lateness_is_held_against_what_is_measured(lag_s: float, ttft_s: float, late: bool) -> None:
    shots = [answered(float(n), ttft_s=ttft_s, sent_at=n + lag_s) for n in range(368)]
    found = texts(run(shots))
    assert bool(found) is late
    assert not late or found[0].startswith("requests were sent late, the p50 by ")


def test_a_few_late_ones_in_a_hundred_are_told_and_one_is_not() -> None:
    for late, told in ((3, 0), (4, 1)):
        shots = enough()
        for shot in shots[:late]:
            shot.sent_at += 0.1
        assert len(doubts(run(shots))) == told


def test_a_rare_lateness_is_held_against_what_is_as_rare() -> None:
    shots = [answered(float(n), ttft_s=5.0 if n % 50 == 0 else 0.1) for n in range(400)]
    for shot in shots[:10]:
        shot.sent_at += 0.05
    assert doubts(run(shots)) == []


def test_a_constant_lateness_is_seen_too() -> None:
    shots = [answered(float(n), ttft_s=0.6, sent_at=n + 0.5) for n in range(368)]
    assert doubts(run(shots))[0].own


def test_the_time_of_a_new_connection_is_not_the_clients() -> None:
    shots = [answered(float(n), sent_at=n + 0.1, connect_s=0.1) for n in range(368)]
    assert doubts(run(shots)) == []


def test_where_nothing_is_streamed_lateness_is_held_against_the_whole() -> None:
    shots = [
        answered(float(n), first_at=None, answer_at=None, over_at=n + 5.0, sent_at=n + 0.1)
        for n in range(368)
    ]
    assert doubts(run(shots)) == []


def test_only_what_this_machine_lacks_is_the_clients_fault() -> None:
    """A server that refuses connections is no bottleneck of the client's."""
    own = Own(connects=365, connect_failures=3)
    shots = [*enough(), lost(why="connect"), lost(why="connect")]
    local, remote = doubts(run([*shots, lost(why="local_limit")], own=own))
    assert (local.own, remote.own) == (True, False)
    assert local.text.startswith("1 of 368 connections could not be opened, for this machine has too few")
    assert remote.text.startswith("2 of 368 connections could not be opened: the server")
    [refused] = doubts(run([*shots, lost(why="connect")], own=own))
    assert not refused.own
    assert verdict([refused]) == ""


def test_too_few_requests() -> None:
    [few] = texts(run(enough(40)))
    assert few.startswith("40 requests were completed, too few independent ones for an upper bound of ")
    assert few.endswith(" of the p95 (72), the p99 (368)")
    [none] = texts(run([lost()]))
    assert none.startswith("no request was completed")


def test_requests_that_hang_together_may_be_too_few() -> None:
    shots = [answered(float(n), ttft_s=0.1 + n // 40 * 0.01) for n in range(400)]
    [few] = texts(run(shots))
    assert "the p90 (36; these are worth " in few
    assert "the p50" not in few


def test_counted_tokens_and_an_early_end_are_told() -> None:
    shots = [*enough(counted=True), lost(ending=Ending.LEFT, why=UNFINISHED)]
    counted, early = texts(run(shots, ended_early=True))
    assert counted.startswith("368 answers came without usage")
    assert early == "the run was ended early; what was under way then (1) is in no figure"
    [*_, cut] = texts(run(shots, overloaded=True))
    assert cut.startswith("the run was cut short, for the server got more than it can do; ")
