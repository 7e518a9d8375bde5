"""Sides compared: what differs is said, and what may be chance is not, but for one time in a hundred."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import pytest

from maitred.bench.shot import Ending, Run
from maitred.bench.statistics import SECTIONS
from maitred.bench.verdict import FIGURES, Verdict, compare, doubts
from tests.bench.finished import answered, busy_day, lost, run
from tests.bench.queues import queued


def by_name(verdicts: Sequence[Verdict]) -> dict[str, Verdict]:
    return {verdict.name: verdict for verdict in verdicts}


def steady(ttfts_s: Iterable[float], **more: object) -> Run:
    """One request a second, all at an even pace."""
    return run([answered(float(at), ttft_s) for at, ttft_s in enumerate(ttfts_s)], **more)


def of_rate(tokens_per_s: float) -> Run:
    return run([answered(0.0, 0.5, 0.05, tokens=int(tokens_per_s))])


@pytest.mark.parametrize(
    ("sides", "requests", "load"),
    [((1, 1), 300, 0.5), ((1, 1), 600, 0.8), ((3, 3), 100, 0.8), ((2, 4), 100, 0.8)],
)
def test_the_same_server_is_hardly_ever_called_better_or_worse(
    sides: tuple[int, int], requests: int, load: float
) -> None:
    """At most one in a hundred, and a little more by chance: each of the pairs has other seeds."""
    pairs, said = 120, Counter[str]()
    for pair in range(pairs):
        runs = [queued(100 * pair + number, requests, load, fails=0.02) for number in range(sum(sides))]
        for verdict in compare(runs[: sides[0]], runs[sides[0] :]):
            said[verdict.name] += verdict.said != "cannot tell"
    assert max(said.values()) <= 5
    assert said.total() <= 0.02 * pairs * len(FIGURES)


def test_a_slower_server_is_found_in_five_runs_a_side() -> None:
    a = [queued(seed, 400, 0.5) for seed in range(5)]
    b = [queued(50 + seed, 400, 0.5, slow=1.2) for seed in range(5)]
    worse, better = by_name(compare(a, b)), by_name(compare(b, a))
    for name in ("tpot_p50_s", "tpot_p90_s", "e2e_p50_s"):
        found = worse[name]
        assert (found.said, better[name].said) == ("worse", "better")
        assert found.low is not None
        assert found.high is not None
        assert found.low < found.effect < found.high
        assert found.effect == pytest.approx(found.b / found.a - 1, abs=0.05)
    assert worse["tpot_p50_s"].effect == pytest.approx(0.2, abs=0.05)


def test_a_slower_server_is_found_in_two_long_runs() -> None:
    found = by_name(compare([queued(1, 2000, 0.5)], [queued(2, 2000, 0.5, slow=1.2)]))
    assert found["tpot_p50_s"].said == found["e2e_p50_s"].said == "worse"
    assert found["tpot_p50_s"].effect == pytest.approx(0.2, abs=0.05)


def test_runs_that_differ_among_themselves_do_not_decide() -> None:
    """Output tokens/s of a published trio of runs of one configuration, against another that lies between."""
    trio = [of_rate(123_000), of_rate(84_000), of_rate(122_000)]
    for other in ([of_rate(100_000)], [of_rate(100_000)] * 3, [of_rate(140_000), of_rate(139_000)]):
        assert by_name(compare(trio, other))["output_tokens_per_s"].said == "cannot tell"
    alike = [of_rate(123_000), of_rate(121_000), of_rate(122_000)]
    assert by_name(compare(alike, [of_rate(100_000)]))["output_tokens_per_s"].said == "worse"
    assert by_name(compare([of_rate(100_000)], alike))["output_tokens_per_s"].said == "better"


def test_a_single_run_is_taken_to_spread_like_the_others() -> None:
    """Student's t of two degrees, 9.92, times the spread of 2 %, times the root of 1 + 1/3."""
    several = [of_rate(98_000), of_rate(100_000), of_rate(102_000)]
    for verdicts in (compare(several, [of_rate(100_000)]), compare([of_rate(100_000)], several)):
        found = by_name(verdicts)["output_tokens_per_s"]
        assert found.high == pytest.approx(math.exp(9.925 * 0.02 * math.sqrt(4 / 3)) - 1, rel=0.02)


def test_a_bad_stretch_is_no_verdict() -> None:
    """The same times, once in a row and once mixed: neighbours that are alike count for less."""
    a = steady([1.0] * 200)
    in_a_row = [1.0] * 60 + [1.1] * 140
    mixed = [1.1, 1.1, 1.0, 1.1, 1.1, 1.0, 1.1, 1.1, 1.0, 1.1]
    assert by_name(compare([a], [steady(in_a_row)]))["ttft_p50_s"].said == "cannot tell"
    spread = [ttft_s for ttft_s in mixed for _ in range(200 // SECTIONS)]
    assert by_name(compare([a], [steady(spread)]))["ttft_p50_s"].said == "worse"


def test_equal_runs_do_not_differ() -> None:
    for verdict in compare([busy_day()], [busy_day()]):
        assert (verdict.effect, verdict.said) == (0, "cannot tell")
    for verdict in compare([busy_day()] * 2, [busy_day()] * 2):
        assert (verdict.effect, verdict.said) == (0, "cannot tell")


def test_few_requests_tell_nothing() -> None:
    found = by_name(compare([steady([1.0] * 49)], [steady([2.0] * 49)]))["ttft_p50_s"]
    assert found.effect == pytest.approx(1)
    assert (found.low, found.high, found.said) == (None, None, "cannot tell")
    assert by_name(compare([steady([1.0] * 50)], [steady([2.0] * 50)]))["ttft_p50_s"].said == "worse"


@pytest.mark.parametrize(("runs", "said"), [(2, "cannot tell"), (4, "cannot tell"), (5, "worse")])
def test_a_few_equal_runs_do_not_prove_that_runs_are_equal(runs: int, said: str) -> None:
    """Of so many runs a side, the order is as clear as this one time in 3, in 35, in 126."""
    found = by_name(compare([steady([1.0] * 50)] * runs, [steady([1.1] * 50)] * runs))["ttft_p50_s"]
    assert (found.low, found.high, found.said) == (None, None, said)


def test_a_rounding_error_is_no_spread() -> None:
    a, b = ([steady([ttft_s + n * 1e-12] * 50) for n in range(2)] for ttft_s in (1.0, 1.1))
    assert by_name(compare(a, b))["ttft_p50_s"].said == "cannot tell"


def test_one_run_against_others_without_spread_tells_nothing() -> None:
    found = by_name(compare([steady([1.0] * 50)] * 3, [steady([1.1] * 50)]))["ttft_p50_s"]
    assert (found.low, found.said) == (None, "cannot tell")


@pytest.mark.parametrize("runs", [1, 5])
def test_who_refuses_is_not_the_faster_for_it(runs: int) -> None:
    """Most are refused at once, the rest are served twice as fast."""
    refused = [lost(float(at), Ending.REFUSED, "429") for at in range(200)]
    for at in range(0, 200, 4):
        refused[at] = answered(float(at), 0.1)
    found = by_name(
        compare([steady([0.2] * 200, slo_ttft_s=1.0)] * runs, [run(refused, slo_ttft_s=1.0)] * runs)
    )
    assert (found["ttft_p50_s"].b, found["ttft_p50_s"].effect) == (math.inf, math.inf)
    assert found["ttft_p50_s"].said == found["e2e_p90_s"].said == "worse"
    assert found["goodput_share"].said == found["goodput_per_s"].said == "worse"
    assert found["goodput_share"].effect == pytest.approx(-0.75)
    assert found["output_tokens_per_s"].said == "worse"


def test_the_limits_of_the_first_run_judge_both() -> None:
    a = steady([0.2] * 100, slo_ttft_s=0.5)
    b = steady([0.7] * 100, slo_ttft_s=1.0)
    share = by_name(compare([a], [b]))["goodput_share"]
    assert (share.a, share.b, share.said) == (1, 0, "worse")


def test_what_a_side_does_not_have_is_left_out() -> None:
    whole = run([answered(float(at), first_at=None) for at in range(100)])
    assert set(by_name(compare([whole], [whole]))) == {
        "e2e_p50_s",
        "e2e_p90_s",
        "e2e_p99_s",
        "output_tokens_per_s",
    }
    assert compare([whole], [run([])]) == []
    assert "ttft_p50_s" not in by_name(compare([busy_day(), whole], [busy_day()]))
    assert compare([busy_day(), run([])], [busy_day()]) == compare([busy_day()], [busy_day()])
    assert set(by_name(compare([busy_day()], [busy_day()]))) == set(FIGURES)


def test_what_speaks_against_a_comparison() -> None:
    twice = [busy_day(1), busy_day(2)]
    assert doubts(twice, twice) == []
    assert "repeat it" in doubts(twice, [busy_day()])[0]
    other = run([answered()], workload="documents", slo_ttft_s=9.0, ended_early=True)
    assert len(doubts(twice, [other, other])) == 3
    slower = busy_day()
    slower.rates = {0: 1.0}
    assert "rates" in doubts(twice, [slower, slower])[0]
